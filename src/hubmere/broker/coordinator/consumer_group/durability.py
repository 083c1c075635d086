"""Delays answers until the changes of a group are durable.

Changes are numbered. One write runs at a time; changes during a write are covered by the next one, so a group of many
members does not write once per member. If nothing has changed since the last write, an answer is sent at once.
Thread rule: the owner's thread only.
"""

from collections.abc import Callable

from hubmere.model.errors import Refusal

Respond = Callable[[Refusal | None], None]
# Makes the group durable as it is now, then calls back.
Write = Callable[[Respond], None]


class Durability:
    """Which changes of a group are durable, and the callbacks that wait for them."""

    __slots__ = ("_durable", "_is_closed", "_is_writing", "_on_written", "_waiting", "_write", "changes")

    def __init__(self, write: Write, on_written: Callable[[], None]) -> None:
        """`on_written` is called after each write, after the requests that waited for it have been answered."""
        self._write = write
        self._on_written = on_written
        # The number of changes so far.
        self.changes = 0
        self._durable = 0
        self._is_writing = False
        self._is_closed = False
        self._waiting: list[tuple[int, Respond]] = []

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._is_writing

    def note_change(self) -> None:
        """Count a change that must survive a restart."""
        self.changes += 1

    def when_durable(self, respond: Respond) -> None:
        """Call back when everything up to now is durable, or with the reason why it is not."""
        if self._durable == self.changes:
            respond(None)
            return
        self._waiting.append((self.changes, respond))
        self._write_next()

    def close(self) -> list[Respond]:
        """Stop writing and return the callbacks that still wait."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        return [respond for _, respond in waiting]

    def _write_next(self) -> None:
        if self._is_writing or self._is_closed or not self._waiting:
            return
        self._is_writing = True
        written = self.changes

        def on_written(refusal: Refusal | None) -> None:
            self._is_writing = False
            if refusal is None:
                self._durable = max(self._durable, written)
            due = [respond for change, respond in self._waiting if change <= written]
            self._waiting = [entry for entry in self._waiting if entry[0] > written]
            for respond in due:
                respond(refusal)
            if not self._is_closed:
                self._on_written()
            self._write_next()

        self._write(on_written)
