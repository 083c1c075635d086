"""The receipt of a publication: a promise that the log keeps when the events are durable.

The log makes it, the broker passes it on and every endpoint waits for it, so it belongs to no single layer.
"""

from collections.abc import Callable


class Receipt:
    """What a publish returns: where the events will stand, and whether they are durable yet.

    Thread rule: made and completed on the thread that owns the partition. `sequence_number`, `offset` and
    `enqueued_at_ms` hold from the moment `is_done` (an engine in front of a cluster learns them only then).
    """

    __slots__ = (
        "_callback",
        "count",
        "enqueued_at_ms",
        "error",
        "is_done",
        "is_duplicate",
        "offset",
        "sequence_number",
        "size_bytes",
    )

    def __init__(self, count: int, size_bytes: int, callback: "Callable[[Receipt], None] | None" = None) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.sequence_number = -1
        self.offset = -1
        self.enqueued_at_ms = -1
        self.is_duplicate = False
        self.is_done = False
        self.error: Exception | None = None
        self._callback = callback

    def when_done(self, callback: "Callable[[Receipt], None]") -> None:
        """Call back when the receipt completes; for a receipt that is not done and was made without a callback."""
        assert not self.is_done
        assert self._callback is None
        self._callback = callback

    def follow(self, other: "Receipt") -> None:
        """Complete as another receipt did, with its place in the log: the events were appended later."""
        self.sequence_number, self.offset = other.sequence_number, other.offset
        self.enqueued_at_ms, self.is_duplicate = other.enqueued_at_ms, other.is_duplicate
        self.complete(other.error)

    def complete(self, error: Exception | None = None) -> None:
        """Settle the receipt once: durable, or failed with the refusal to hand on."""
        self.error = error
        self.is_done = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)
