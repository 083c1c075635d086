"""Errors in settings: one `Problem` per bad setting, and `BadSettings` with all of them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One bad setting: its name, its source, its value and what was expected."""

    setting: str
    origin: str
    value: object
    allowed: str

    def __str__(self) -> str:
        """One line for a terminal."""
        given = "missing" if self.value is None else f"{self.value!r} from {self.origin} is not allowed"
        return f"{self.setting}: {given}; expected {self.allowed}"


class BadSettings(Exception):
    """The settings cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
