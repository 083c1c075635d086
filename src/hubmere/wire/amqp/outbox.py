"""What waits to be sent: frames in order, and sessions that owe dispositions.

Decides which frames the peer would not take and how a reason is cut to fit; never when something is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hubmere.wire.amqp.codec.frames import MIN_MAX_FRAME_BYTES, frame, frame_of, shorten
from hubmere.wire.amqp.codec.performatives import Error
from hubmere.wire.amqp.errors import FrameTooLarge

if TYPE_CHECKING:
    from hubmere.wire.amqp.session import Session


class Outbox:
    """The output of one connection. Not bounded by itself: input is answered with less than a few frames per frame, and
    what is sent beyond that is bounded by the peer's credit and window."""

    __slots__ = ("_frames", "_unsettled", "limit_bytes")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._unsettled: list[Session] = []
        self.limit_bytes = MIN_MAX_FRAME_BYTES  # until the peer's open says more

    def add(self, performative: Any, channel: int) -> None:
        """Queues a frame, or raises `FrameTooLarge` when the peer would not take it."""
        data = frame(performative, channel)
        if len(data) > self.limit_bytes:
            raise FrameTooLarge(len(data), self.limit_bytes)
        self._frames.append(data)

    def add_body(self, body: bytes, channel: int) -> None:
        """Queues a frame around an encoded body that is known to fit."""
        self._frames.append(frame_of(body, channel))

    def add_raw(self, data: bytes) -> None:
        """Queues whole frames."""
        self._frames.append(data)

    def add_ending(
        self, make: Callable[[Error | None], Any], condition: str | None, description: str, channel: int
    ) -> None:
        """Queues a frame that ends something; a reason that the peer's frames do not hold is cut."""
        if condition is None:
            self.add(make(None), channel)
            return
        try:
            self.add(make(Error(condition, description)), channel)
        except FrameTooLarge:
            self.add(make(Error(condition, shorten(description))), channel)

    def add_unsettled(self, session: Session) -> None:
        """Remembers that a session has settlements to send."""
        self._unsettled.append(session)

    def flush_settlements(self) -> None:
        """Queues the dispositions of all sessions that owe some."""
        owing, self._unsettled = self._unsettled, []
        for session in owing:
            session.flush_settlements()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._frames

    def take(self) -> bytes:
        """All that waits, once; a single piece is not copied."""
        if self._unsettled:
            self.flush_settlements()
        frames = self._frames
        if not frames:
            return b""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        frames.clear()
        return data
