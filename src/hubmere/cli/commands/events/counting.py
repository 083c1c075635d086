"""The progress bar of commands that count events: shown on a terminal, silent otherwise."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class EventCounter(Protocol):
    """Counts events for a person."""

    def advance(self, count: int) -> None:
        """Add to the number of events."""


class _SilentCounter:
    def advance(self, count: int) -> None:
        """Do nothing: standard error is no terminal."""


def open_counter(total: int | None, *, is_shown: bool = True) -> AbstractContextManager[EventCounter]:
    """A bar on standard error, removed at the end; `total` is None if it is not known."""
    if not is_shown or not sys.stderr.isatty():
        return nullcontext(_SilentCounter())
    from hubmere.cli.commands.events.progress import RateBar  # loads a library for terminals

    return RateBar(total)
