"""Creates the namespaces, hubs and consumer groups that the settings ask for, when they do not exist yet.

Every creation goes through the `Manager`, so an entity of the settings passes the same checks and leaves the same audit
lines as one that a client creates. Existing entities are not changed. Nothing here waits: the owner starts one
creation after the other, each once the one before is durable.
Thread rule: the owner's thread only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hubmere.broker.management.entities import Entities
from hubmere.broker.management.manager import Actor, Manager, OnDone
from hubmere.broker.management.pairing import is_secondary
from hubmere.model.errors import Refusal
from hubmere.model.names import HubName, group_name, hub_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec


class ProvisioningFailed(Exception):
    """An entity of the settings was refused."""

    def __init__(self, entity: str, refusal: Refusal) -> None:
        super().__init__(entity, refusal)
        self.entity = entity
        self.refusal = refusal

    def __str__(self) -> str:
        """Names the entity and the reason."""
        return f"{self.entity} of the settings: {self.refusal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedHub:
    """A hub that must exist once the node is ready; `groups` are consumer groups besides `$Default`."""

    namespace: str
    name: str
    spec: HubSpec
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Creation:
    """One missing entity: its name for messages, and the call that has the manager create it."""

    entity: str
    start: Callable[[OnDone], object]


class Provisioning:
    """Finds out what is missing, one entity after the other.

    `check_hub_name` is the rule for names of new hubs; the emulator has its own. `skipped_hubs` collects hubs that
    belong to the secondary of a pairing: those come from the primary.
    """

    def __init__(
        self,
        planned: Entities,
        manager: Manager,
        actor: Callable[[], Actor],
        *,
        check_hub_name: Callable[[str], HubName] = hub_name,
    ) -> None:
        self._planned = planned
        self._manager = manager
        self._actor = actor
        self._check_hub_name = check_hub_name
        self.skipped_hubs: list[str] = []

    def creations(self, namespaces: Sequence[str], hubs: Sequence[WantedHub]) -> Iterator[Creation]:
        """What to create, parents first. Take the next one only when the last one is durable."""
        for name in (*namespaces, *(hub.namespace for hub in hubs)):
            if self._planned.find_namespace(name) is None:
                yield Creation(f"namespace '{name}'", partial(self._create_namespace, name))
        for hub in hubs:
            yield from self._hub_creations(hub)

    def _hub_creations(self, wanted: WantedHub) -> Iterator[Creation]:
        planned = self._planned
        is_missing = planned.find_hub(wanted.namespace, wanted.name) is None
        if is_missing and is_secondary(planned, wanted.namespace):
            self.skipped_hubs.append(f"{wanted.namespace}/{wanted.name}")
            return
        if is_missing:
            yield Creation(f"event hub '{wanted.name}'", partial(self._create_hub, wanted))
        for name in wanted.groups:
            hub = self._planned.find_hub(wanted.namespace, wanted.name)
            if hub is not None and self._planned.find_group(hub, name) is None:
                entity = f"consumer group '{name}' of event hub '{wanted.name}'"
                yield Creation(entity, partial(self._create_group, wanted, name))

    def _create_namespace(self, name: str, on_done: OnDone) -> None:
        self._manager.create_namespace(namespace_name(name), NamespaceSpec(), self._actor(), on_done)

    def _create_hub(self, wanted: WantedHub, on_done: OnDone) -> None:
        name = self._check_hub_name(wanted.name)
        self._manager.create_hub(wanted.namespace, name, wanted.spec, self._actor(), on_done)

    def _create_group(self, wanted: WantedHub, name: str, on_done: OnDone) -> None:
        self._manager.create_group(wanted.namespace, wanted.name, group_name(name), "", self._actor(), on_done)
