"""A progress bar with a rate on standard error, removed when the work is done."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class RateBar:
    """Counts events, with the rate since the start."""

    def __init__(self, total: int | None) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(),
            TextColumn("{task.completed:,.0f} events"),
            TextColumn("{task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, rate=0.0)
        self._began_at_s = time.monotonic()
        self._done = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, count: int) -> None:
        """Add to the number of acknowledged events."""
        self._done += count
        rate = self._done / max(time.monotonic() - self._began_at_s, 1e-3)
        self._progress.update(self._task, advance=count, rate=rate)
