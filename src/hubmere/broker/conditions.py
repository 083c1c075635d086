"""What is wrong below the node: a full disk, a clock that jumped, a cluster out of reach. Set by the node.

A condition has a name, so that setting it again replaces its text, and a severity: WARNING while everything is still
served, CRITICAL while something is refused. Health, metrics and portal read them when they are asked.
Thread rule: the owner's thread only.
"""

from dataclasses import dataclass
from enum import StrEnum

# Every condition that a node can be in.
CLOCK, DISK, CLUSTER = "clock", "disk", "cluster"
NAMES = (CLOCK, DISK, CLUSTER)


class ConditionSeverity(StrEnum):
    """Whether something is refused already."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that is wrong, and what helps."""

    name: str
    severity: ConditionSeverity
    text: str
    remedy: str


class Conditions:
    """The conditions in force, by name."""

    def __init__(self) -> None:
        self._conditions: dict[str, Condition] = {}
        # Numbers beside them, by the name of their metric.
        self.measures: dict[str, float] = {}

    def set(self, condition: Condition) -> bool:
        """Put a condition in force; True when it was not, or had another severity."""
        known = self._conditions.get(condition.name)
        self._conditions[condition.name] = condition
        return known is None or known.severity is not condition.severity

    def clear(self, name: str) -> bool:
        """End a condition; True when it was in force."""
        return self._conditions.pop(name, None) is not None

    def find(self, name: str) -> Condition | None:
        """A condition if it is in force."""
        return self._conditions.get(name)

    def all(self) -> list[Condition]:
        """Everything in force, by name."""
        return [self._conditions[name] for name in sorted(self._conditions)]
