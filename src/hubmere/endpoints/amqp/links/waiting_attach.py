"""An attach that may have to wait until the log of its partition is open. Other links of the connection continue."""

from typing import Protocol, cast

from hubmere.broker import MAX_OPENING_WAIT_S, LogOpening
from hubmere.endpoints.amqp.links.link_handler import LinkHandler, WaitingLink
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.performatives import Attach


class AttachHost(Protocol):
    """What an attach needs of its connection."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    def attach(self, link: Link, attach: Attach) -> None:
        """Answer an attach; raises LogOpening, and has done nothing, if it needs a log that is being opened."""

    def refuse(self, link: Link, attach: Attach, refusal: Refusal) -> None:
        """Answer an attach with a refusal."""

    def flush_soon(self) -> None:
        """Write at the end of this turn."""


class WaitingAttach:
    """One attach, from its arrival to its answer. Thread rule: the loop's thread only.

    1. `run` answers it. If a log that it needs is being opened, it is answered again when that log is open.
    2. On a cluster an attach waits several times: for the end of the partition, and for the reader's place. All of it
       together takes no longer than one wait.
    3. An attach that waits for the same log again, or for too long, is refused.
    """

    __slots__ = ("_attach", "_deadline", "_host", "_link")

    def __init__(self, host: AttachHost, link: Link, attach: Attach) -> None:
        self._host = host
        self._link = link
        self._attach = attach
        self._deadline = 0.0

    def run(self) -> None:
        """Answer the attach now, or when its log is open."""
        try:
            self._host.attach(self._link, self._attach)
        except LogOpening as opening:
            self._deadline = self._host.clock.monotonic() + MAX_OPENING_WAIT_S
            self._wait(opening)

    def _wait(self, opening: LogOpening) -> None:
        now = self._host.clock.monotonic()
        try:
            waiting = opening.wait(lambda: self._on_opened(opening), now, max_wait_s=self._deadline - now)
        except LogOpening as refusal:
            self._host.refuse(self._link, self._attach, refusal)
        else:
            self._link.context = WaitingLink(waiting)

    def _on_opened(self, opening: LogOpening) -> None:
        host, link = self._host, self._link
        link.context = None
        try:
            host.attach(link, self._attach)
        except LogOpening as refusal:
            if not refusal.is_same(opening) and host.clock.monotonic() < self._deadline:
                self._wait(refusal)
            else:
                host.refuse(link, self._attach, refusal)
        else:
            handler = cast("LinkHandler | None", link.context)
            if handler is not None:
                # The peer may have given credit meanwhile.
                handler.on_flow()
        host.flush_soon()
