"""The receipt of a publication: completes when the events are durable, or when that has failed. The log creates it, the
broker passes it on and every endpoint waits for it, so it belongs to no single layer.
"""

from collections.abc import Callable


class Receipt:
    """The result of a publish: the position of the events, and whether they are durable yet.

    Thread rule: created and completed on the thread that owns the partition. `sequence_number`, `offset` and
    `enqueued_at_ms` are valid once `is_done` (on a cluster they are known only then).
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
        """Complete like another receipt, with its position in the log: the events were appended later."""
        self.sequence_number, self.offset = other.sequence_number, other.offset
        self.enqueued_at_ms, self.is_duplicate = other.enqueued_at_ms, other.is_duplicate
        self.complete(other.error)

    def complete(self, error: Exception | None = None) -> None:
        """Complete the receipt, once: durable, or failed with a refusal."""
        self.error = error
        self.is_done = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)
