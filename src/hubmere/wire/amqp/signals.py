"""The signals that the engine returns: each states one action of the peer, in the order of the actions. Values only.

Every link reported by `AttachRequested` or `LinkAttached` ends with exactly one `LinkDetached`, every session
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
    """The peer authenticates with PLAIN or EXTERNAL: call `accept_credentials` or `refuse_credentials`. Until then no
    further input is processed.

    `hostname` is the host that the peer named, if any.
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
    """The peer requests a link: call `link.accept` or `link.refuse`, now or later."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class LinkAttached:
    """The peer answered our attach. A null source or target means refusal: a detach follows."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class CreditChanged:
    """The receiving peer changed the credit of a link on which we send; `link.credit` and `link.drain` are updated."""

    link: Link


@dataclass(slots=True)
class WindowOpened:
    """A session whose remote window was exhausted may send again; check all its sending links."""

    session: Session


@dataclass(slots=True)
class DeliveriesReceived:
    """A run of complete deliveries of one link, all with the same message format and settled flag."""

    link: Link
    message_format: int
    settled: bool
    ids: list[int]
    payloads: list[bytes]


@dataclass(slots=True)
class DeliveryOversized:
    """A delivery exceeded the link's size limit. Its bytes were dropped; the link stays open. Reject it unless
    settled."""

    link: Link
    delivery_id: int
    size_bytes: int
    settled: bool


@dataclass(slots=True)
class DispositionReceived:
    """The peer's disposition of deliveries `first` to `last`. With `by_receiver` they are ours, and all were sent."""

    session: Session
    by_receiver: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


@dataclass(slots=True)
class LinkDetached:
    """A link has ended. `error` is the peer's error, if it sent one."""

    link: Link
    error: Error | None
    closed: bool


@dataclass(slots=True)
class SessionEnded:
    """A session has ended. `error` is the peer's error; `violation` is the reason if we ended it."""

    session: Session
    error: Error | None
    violation: RemoteProtocolError | None = None


@dataclass(slots=True)
class ConnectionClosed:
    """The peer closed, answered our close, or disconnected. Write the queued bytes, then close the transport."""

    error: Error | None


@dataclass(slots=True)
class ConnectionFailed:
    """The peer violated the protocol or timed out. The closing frame is queued: write it, then close the transport."""

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
