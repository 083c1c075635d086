"""What the engine reports. Values only: each says what the peer did, in the order in which it did it.

Every link that was reported by `AttachRequested` or `LinkAttached` ends with exactly one `LinkDetached`, every session
reported by `SessionBegun` with one `SessionEnded`, also when the connection closes, fails or is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from hubmere.wire.amqp.codec.performatives import Attach, DeliveryState, Error, Open
from hubmere.wire.amqp.errors import RemoteProtocolError

if TYPE_CHECKING:
    from hubmere.wire.amqp.link import Link
    from hubmere.wire.amqp.session import Session


@dataclass(slots=True)
class CredentialsOffered:
    """The peer wants PLAIN or EXTERNAL: answer with `accept_credentials` or `refuse_credentials`; input waits.

    `hostname` is the host that the peer means, if it said so.
    """

    mechanism: str
    user: str
    password: str = field(repr=False)
    hostname: str | None = None


@dataclass(slots=True)
class ConnectionOpened:
    """The peer's open was read; a server has answered it."""

    open: Open


@dataclass(slots=True)
class SessionBegun:
    """Both directions of a session exist; a server has answered the begin."""

    session: Session


@dataclass(slots=True)
class AttachRequested:
    """The peer wants a link: answer with `link.accept` or `link.refuse`, at once or later."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class LinkAttached:
    """The peer answered our attach. A null source or target announces a refusal: its detach follows."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class CreditChanged:
    """The receiving peer moved the credit of a link on which we send; `link.credit` and `link.drain` are up to date."""

    link: Link


@dataclass(slots=True)
class WindowOpened:
    """A session whose remote window was used up may send again; look at all its sending links."""

    session: Session


@dataclass(slots=True)
class DeliveriesReceived:
    """A run of whole deliveries of one link, all with the same message format and settled flag.

    A payload is a view of the buffer that was given to `receive_data`, or bytes of its own after reassembly or out of a
    run: copy what must outlive the handling of this signal unless that buffer was `bytes`.
    """

    link: Link
    message_format: int
    settled: bool
    ids: list[int]
    payloads: list[memoryview | bytes]


@dataclass(slots=True)
class DeliveryOversized:
    """A delivery grew beyond the link's limit; its bytes are gone, the link lives on. Reject it unless settled."""

    link: Link
    delivery_id: int
    size_bytes: int
    settled: bool


@dataclass(slots=True)
class DispositionReceived:
    """The peer's word on deliveries `first` to `last`: on ours when `by_receiver`, and only on ids that we sent."""

    session: Session
    by_receiver: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


@dataclass(slots=True)
class LinkDetached:
    """A link is gone. `error` is the peer's reason, if it gave one."""

    link: Link
    error: Error | None
    closed: bool


@dataclass(slots=True)
class SessionEnded:
    """A session is gone. `error` is the peer's reason; `violation` says why we ended it on our own."""

    session: Session
    error: Error | None
    violation: RemoteProtocolError | None = None


@dataclass(slots=True)
class ConnectionClosed:
    """The peer closed, answered our close, or is gone; write what is queued, then close the transport."""

    error: Error | None


@dataclass(slots=True)
class ConnectionFailed:
    """The peer broke the protocol or fell silent. The closing frame is queued: write it, then close the transport."""

    violation: RemoteProtocolError


Signal: TypeAlias = (
    CredentialsOffered
    | ConnectionOpened
    | SessionBegun
    | AttachRequested
    | LinkAttached
    | CreditChanged
    | WindowOpened
    | DeliveriesReceived
    | DeliveryOversized
    | DispositionReceived
    | LinkDetached
    | SessionEnded
    | ConnectionClosed
    | ConnectionFailed
)
