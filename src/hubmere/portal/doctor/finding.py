"""A finding of the doctor: one problem, where it is, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosed problem and its remedy."""

    severity: Severity
    problem: str
    location: str
    description: str
    remedy: str
