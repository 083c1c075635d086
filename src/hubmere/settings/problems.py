"""What can be wrong with settings: one `Problem` per bad one, and `BadSettings` that carries them all."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One bad setting: which, where it came from, what was given and what is allowed."""

    setting: str
    origin: str
    value: object
    allowed: str

    def __str__(self) -> str:
        """One line for a terminal."""
        given = "missing" if self.value is None else f"{self.value!r} from {self.origin} is not allowed"
        return f"{self.setting}: {given}; allowed is {self.allowed}"


class BadSettings(Exception):
    """The settings cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
