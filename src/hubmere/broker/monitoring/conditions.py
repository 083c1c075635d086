"""Problems of the node's environment: a full disk, a clock that jumped, an unreachable cluster. The node sets them.

A condition has a name, so that setting it again replaces its text, and a severity: WARNING while everything is still
served, CRITICAL while something is refused. Health, metrics and portal show them.
Thread rule: the owner's thread only.
"""

from dataclasses import dataclass
from enum import StrEnum

# Every condition that a node can be in.
CLOCK, DISK, CLUSTER, CERTIFICATE = "clock", "disk", "cluster", "certificate"
NAMES = (CLOCK, DISK, CLUSTER, CERTIFICATE)


class ConditionSeverity(StrEnum):
    """Whether requests are refused because of the problem."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One problem, and what the operator can do."""

    name: str
    severity: ConditionSeverity
    text: str
    remedy: str


class Conditions:
    """The current conditions, by name."""

    def __init__(self) -> None:
        self._conditions: dict[str, Condition] = {}
        # Related numbers, by the name of their metric.
        self.measures: dict[str, float] = {}

    def set(self, condition: Condition) -> bool:
        """Set a condition; True when it is new, or had another severity."""
        known = self._conditions.get(condition.name)
        self._conditions[condition.name] = condition
        return known is None or known.severity is not condition.severity

    def clear(self, name: str) -> bool:
        """End a condition; True when there was one."""
        return self._conditions.pop(name, None) is not None

    def find(self, name: str) -> Condition | None:
        """A current condition by its name."""
        return self._conditions.get(name)

    def all(self) -> list[Condition]:
        """All current conditions, sorted by name."""
        return [self._conditions[name] for name in sorted(self._conditions)]
