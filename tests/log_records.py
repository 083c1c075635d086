"""What loggers write during a test: the records of the loggers that the test is about, and no others.

Other loggers of the process may write at the same time: a garbage collection reports what an earlier test has left, and
asyncio names the selector of each new loop.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def records_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    """The records of a logger and of those below it."""
    return [record for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")]


def messages_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The texts of the records of a logger and of those below it."""
    return [record.getMessage() for record in records_of(caplog, logger)]


class _Lines(logging.Handler):
    """Keeps all lines as text, with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def lines_of(*names: str, level: int) -> Iterator[list[str]]:
    """What these loggers write at a level and above it; their own levels are restored at the end."""
    handler, loggers = _Lines(), [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield handler.lines
    finally:
        for logger, before in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(before)
