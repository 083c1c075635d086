"""Which metadata a primary must still send to its secondary on another node: copies that are not confirmed yet.

A copy is complete in itself: the namespace with its rules and the names of its hubs, or one hub with its groups and
rules. So the newest copy replaces all older ones, the order of hubs does not matter, a copy may be sent twice, and
after a failure everything is sent again. This module decides what is sent; the endpoint sends and waits.
"""

from dataclasses import dataclass
from enum import StrEnum

from hubmere.broker.management.entities import Entities
from hubmere.model.entity import AccessRule, ConsumerGroup, GeoAlias, Hub, Namespace
from hubmere.model.names import HubName, fold


@dataclass(frozen=True, slots=True)
class NamespaceCopy:
    """The rules of a primary and the names of all its hubs; the secondary deletes what is not listed."""

    rules: tuple[AccessRule, ...]
    hubs: tuple[HubName, ...]

    @property
    def key(self) -> str:
        """Key of the last confirmed copy; no hub has an empty name."""
        return ""


@dataclass(frozen=True, slots=True)
class HubCopy:
    """One hub of a primary with its consumer groups and rules."""

    hub: Hub
    groups: tuple[ConsumerGroup, ...]
    rules: tuple[AccessRule, ...]

    @property
    def key(self) -> str:
        """Key of the last confirmed copy."""
        return fold(self.hub.name)


Copy = NamespaceCopy | HubCopy


class Progress(StrEnum):
    """State of a pairing in ARM (`provisioningState`)."""

    ACCEPTED = "Accepted"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def copies_of(entities: Entities, namespace: Namespace) -> list[Copy]:
    """All copies of a primary: the namespace first, because it deletes hubs and so makes room for others."""
    hubs = entities.hubs(namespace.name)
    whole = NamespaceCopy(tuple(entities.rules(namespace)), tuple(hub.name for hub in hubs))
    return [whole, *(HubCopy(hub, tuple(entities.groups(hub)), tuple(entities.rules(hub))) for hub in hubs)]


class Outbox:
    """Confirmed copies and state of one pairing.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_confirmed", "_was_synchronized", "problem")

    def __init__(self) -> None:
        self._confirmed: dict[str, Copy] = {}
        self._was_synchronized = False
        # Why the last copy could not be sent, for the operator; empty if it was.
        self.problem = ""

    def pending(self, copies: list[Copy]) -> list[Copy]:
        """The copies that the partner does not have yet, in sending order."""
        return [copy for copy in copies if self._confirmed.get(copy.key) != copy]

    def confirm(self, copy: Copy) -> None:
        """Record that the partner has stored this copy."""
        if isinstance(copy, NamespaceCopy):
            kept = {"", *map(fold, copy.hubs)}
            self._confirmed = {key: known for key, known in self._confirmed.items() if key in kept}
        self._confirmed[copy.key] = copy
        self.problem = ""

    def on_synchronized(self) -> None:
        """Record that the partner has every copy."""
        self._was_synchronized = True

    def on_failed(self, problem: str) -> None:
        """Record a failure: the partner may have changed when it is back, so it gets everything again."""
        self._confirmed.clear()
        self.problem = problem

    @property
    def progress(self) -> Progress:
        """State of the pairing."""
        if self.problem:
            return Progress.FAILED
        return Progress.SUCCEEDED if self._was_synchronized else Progress.ACCEPTED


class Outboxes:
    """The outbox of every pairing with another node, by its id.

    Thread rule: the owner's thread only.
    """

    def __init__(self) -> None:
        self._by_pairing: dict[str, Outbox] = {}

    def of(self, alias: GeoAlias) -> Outbox:
        """The outbox of a pairing; a new pairing gets an empty one."""
        return self._by_pairing.setdefault(alias.pairing, Outbox())

    def forget(self, pairing: str) -> None:
        """Drop the outbox of a pairing that has ended."""
        self._by_pairing.pop(pairing, None)
