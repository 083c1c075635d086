"""What a primary still owes its secondary on another node: copies of its metadata that the partner has not confirmed.

A copy is a whole (the namespace with its rules and the names of its hubs, or one hub with its groups and rules), so the
newest one makes all older ones needless: order between hubs does not matter, a copy may be sent twice, and after a
failure everything is simply owed again. Decides what is sent; sending and waiting are the endpoint's.
"""

from dataclasses import dataclass
from enum import StrEnum

from hubmere.broker.management.entities import Entities
from hubmere.model.entity import AccessRule, ConsumerGroup, GeoAlias, Hub, Namespace
from hubmere.model.names import HubName, fold


@dataclass(frozen=True, slots=True)
class NamespaceCopy:
    """The rules of a primary and the names of all its hubs: what is not named here is to go."""

    rules: tuple[AccessRule, ...]
    hubs: tuple[HubName, ...]

    @property
    def key(self) -> str:
        """By which the last confirmed copy is kept; no hub has an empty name."""
        return ""


@dataclass(frozen=True, slots=True)
class HubCopy:
    """One hub of a primary with its consumer groups and rules."""

    hub: Hub
    groups: tuple[ConsumerGroup, ...]
    rules: tuple[AccessRule, ...]

    @property
    def key(self) -> str:
        """By which the last confirmed copy is kept."""
        return fold(self.hub.name)


Copy = NamespaceCopy | HubCopy


class Progress(StrEnum):
    """ARM's word for how a pairing is doing (`provisioningState`)."""

    ACCEPTED = "Accepted"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def copies_of(entities: Entities, namespace: Namespace) -> list[Copy]:
    """Everything that a secondary takes from a primary: the namespace first, since it makes room for the hubs."""
    hubs = entities.hubs(namespace.name)
    whole = NamespaceCopy(tuple(entities.rules(namespace)), tuple(hub.name for hub in hubs))
    return [whole, *(HubCopy(hub, tuple(entities.groups(hub)), tuple(entities.rules(hub))) for hub in hubs)]


class Outbox:
    """What one pairing has confirmed, and how it is doing.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_confirmed", "_was_in_step", "problem")

    def __init__(self) -> None:
        self._confirmed: dict[str, Copy] = {}
        self._was_in_step = False
        # Why the last copy did not arrive, in words for the operator; empty while all is well.
        self.problem = ""

    def owed(self, copies: list[Copy]) -> list[Copy]:
        """The copies that the partner does not have, in the order in which they go."""
        return [copy for copy in copies if self._confirmed.get(copy.key) != copy]

    def confirm(self, copy: Copy) -> None:
        """The partner has this copy."""
        if isinstance(copy, NamespaceCopy):
            kept = {"", *map(fold, copy.hubs)}
            self._confirmed = {key: known for key, known in self._confirmed.items() if key in kept}
        self._confirmed[copy.key] = copy
        self.problem = ""

    def in_step(self) -> None:
        """Nothing is owed any more."""
        self._was_in_step = True

    def failed(self, problem: str) -> None:
        """A copy did not arrive: whatever the partner is when it is back, it gets everything again."""
        self._confirmed.clear()
        self.problem = problem

    @property
    def progress(self) -> Progress:
        """How the pairing is doing."""
        if self.problem:
            return Progress.FAILED
        return Progress.SUCCEEDED if self._was_in_step else Progress.ACCEPTED


class Outboxes:
    """The outbox of every pairing with another node, by its id.

    Thread rule: the owner's thread only.
    """

    def __init__(self) -> None:
        self._by_pairing: dict[str, Outbox] = {}

    def of(self, alias: GeoAlias) -> Outbox:
        """The outbox of a pairing, empty when it is new."""
        return self._by_pairing.setdefault(alias.pairing, Outbox())

    def forget(self, pairing: str) -> None:
        """A pairing is over."""
        self._by_pairing.pop(pairing, None)
