"""Send queue of a connection: encoded frames in order, and sessions with settlements to send.

Decides which frames are too large for the peer and how an error text is shortened to fit, never when to send.
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
    """The send queue of one connection. It has no limit of its own: an incoming frame causes at most a few frames, and
    transfers are bounded by the peer's credit and window."""

    __slots__ = ("_frames", "_unsettled", "limit_bytes")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._unsettled: list[Session] = []
        self.limit_bytes = MIN_MAX_FRAME_BYTES  # until the peer's open announces more

    def add(self, performative: Any, channel: int) -> None:
        """Queue a frame; raises `FrameTooLarge` if it exceeds the peer's limit."""
        data = frame(performative, channel)
        if len(data) > self.limit_bytes:
            raise FrameTooLarge(len(data), self.limit_bytes)
        self._frames.append(data)

    def add_body(self, body: bytes, channel: int) -> None:
        """Queue a frame with an encoded body that is known to fit."""
        self._frames.append(frame_of(body, channel))

    def add_raw(self, data: bytes) -> None:
        """Queue complete frames."""
        self._frames.append(data)

    def add_ending(
        self, make: Callable[[Error | None], Any], condition: str | None, description: str, channel: int
    ) -> None:
        """Queue a detach, end or close; an error text that does not fit a frame of the peer is shortened."""
        if condition is None:
            self.add(make(None), channel)
            return
        try:
            self.add(make(Error(condition, description)), channel)
        except FrameTooLarge:
            self.add(make(Error(condition, shorten(description))), channel)

    def add_unsettled(self, session: Session) -> None:
        """Note that a session has settlements to send."""
        self._unsettled.append(session)

    def flush_settlements(self) -> None:
        """Queue the dispositions of all noted sessions."""
        owing, self._unsettled = self._unsettled, []
        for session in owing:
            session.flush_settlements()

    @property
    def is_empty(self) -> bool:
        """Whether no frame is queued and no session has settlements to send."""
        return not self._frames and not self._unsettled

    def take(self) -> bytes:
        """Remove and return all queued bytes; a single frame is not copied."""
        if self._unsettled:
            self.flush_settlements()
        frames = self._frames
        if not frames:
            return b""
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        frames.clear()
        return data
