"""Searches the files and command lines of processes for secrets."""

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.processes import family

_LOOK_SECONDS = 0.2
_ESCAPED = re.compile(r"[+/=%&]")
# A part of this length is not found by chance.
_LEAST_PART = 8


def shown(secrets: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Which secret is in which text; there should be none. The result does not contain the secrets."""
    telling = {secret: _telling_part(value) for secret, value in secrets.items()}
    return [f"{secret} in {place}" for place, text in texts.items() for secret, part in telling.items() if part in text]


def _telling_part(value: str) -> str:
    """The longest part of a secret without characters of base 64 that addresses and JSON escape."""
    part = max(_ESCAPED.split(value), key=len)
    assert len(part) >= _LEAST_PART
    return part


def texts_of(paths: Iterable[Path]) -> dict[str, str]:
    """Files by name, as texts."""
    return {str(path): path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()}


class CommandLines:
    """Collects the command lines of a process and its descendants, in a thread."""

    def __init__(self, ancestor: int) -> None:
        self._ancestor = ancestor
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.found: set[str] = set()

    def __enter__(self) -> Self:
        """Start collecting."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop collecting."""
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self.found.update(family(self._ancestor).values())

    def texts(self) -> dict[str, str]:
        """All command lines that were seen."""
        return {f"the command line of {command[:40]}": command for command in self.found}
