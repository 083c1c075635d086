"""The secondary's half of a pairing between two nodes: copies become differences, and only for their own pairing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker.builders import Bench
from hubmere.broker.management.replica import Claim, GroupReplica, HubReplica, RuleReplica
from hubmere.model.entity import CleanupPolicy, GeoRole, Rights
from hubmere.model.errors import AliasNotFound, AlreadyExists, Conflict, FailedOver, HubNotFound, LimitReached
from hubmere.model.names import DEFAULT_GROUP, alias_name, group_name, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import Profile

PAIRING = "0123456789abcdef"
WEST, SHOP = "west-ns", alias_name("shop")
CLAIM = Claim(namespace=WEST, alias=SHOP, pairing=PAIRING)
DEFAULT = GroupReplica(name=DEFAULT_GROUP)
SEND = RuleReplica(name=rule_name("send"), rights=Rights.SEND, primary_key="first", secondary_key="second")


class Secondary:
    """A namespace that follows one on another node, with the requests of a primary."""

    def __init__(self, profile: Profile = Profile.DEVELOPER) -> None:
        self.bench = Bench(profile=profile)
        bench = self.bench
        bench.do(
            lambda done: bench.manager.create_namespace(namespace_name(WEST), NamespaceSpec(), bench.actor(), done)
        )
        self.begin()

    def begin(self, pairing: str = PAIRING) -> None:
        """Become the secondary of `east-ns`."""
        bench = self.bench
        bench.do(lambda done: bench.broker.replicas.begin(WEST, SHOP, "east-ns", pairing, bench.actor(), done))

    def take(self, wanted_hub: HubReplica, claim: Claim = CLAIM) -> None:
        """Take a copy of a hub."""
        bench = self.bench
        bench.do(lambda done: bench.broker.replicas.apply_hub(claim, wanted_hub, bench.actor(), done))

    def apply_namespace(self, *hubs: str, rules: tuple[RuleReplica, ...] = ()) -> None:
        """Take a copy of the namespace."""
        bench = self.bench
        bench.do(lambda done: bench.broker.replicas.apply_namespace(CLAIM, rules, hubs, bench.actor(), done))

    @property
    def version(self) -> int:
        """Moves with every change of an entity."""
        return self.bench.catalog.view.version

    def groups(self, hub: str) -> dict[str, str]:
        """Metadata of a hub's groups by their names."""
        view = self.bench.catalog.view
        return {group.name: group.user_metadata for group in view.groups(view.hub(WEST, hub))}


@pytest.fixture
def secondary() -> Iterator[Secondary]:
    """A secondary on a node of standard limits."""
    made = Secondary()
    yield made
    made.bench.close()


def a_hub(
    name: str = "copied", *groups: GroupReplica, rules: tuple[RuleReplica, ...] = (), **spec: object
) -> HubReplica:
    """A hub as a primary sends it."""
    wanted_hub = HubSpec(**{"partition_count": 2, "cleanup_policy": CleanupPolicy.DELETE, **spec})  # type: ignore[arg-type]
    return HubReplica(name=hub_name(name), spec=wanted_hub, groups=(DEFAULT, *groups), rules=rules)


def test_a_copy_that_comes_twice_changes_nothing(secondary: Secondary) -> None:
    """A primary that is not sure sends everything again."""
    hub = a_hub("copied", GroupReplica(name=group_name("mine")), rules=(SEND,))
    secondary.take(hub)
    secondary.apply_namespace("copied", rules=(SEND,))
    before = secondary.version

    secondary.begin()
    secondary.take(hub)
    secondary.apply_namespace("copied", rules=(SEND,))

    assert secondary.version == before


def test_what_changed_is_replaced_in_place(secondary: Secondary) -> None:
    """The hub stays the hub that it was, with its events."""
    secondary.take(a_hub("copied", GroupReplica(name=group_name("mine"), user_metadata="old")))
    uid = secondary.bench.catalog.view.hub(WEST, "copied").uid

    secondary.take(a_hub("copied", GroupReplica(name=group_name("mine"), user_metadata="new"), user_metadata="changed"))

    hub = secondary.bench.catalog.view.hub(WEST, "copied")
    assert (hub.uid, hub.user_metadata) == (uid, "changed")
    assert secondary.groups("copied") == {"$Default": "", "mine": "new"}


@pytest.mark.parametrize(
    "spec", [{"partition_count": 4}, {"partition_count": 1}, {"cleanup_policy": CleanupPolicy.COMPACT}]
)
def test_a_hub_that_cannot_be_changed_is_made_anew(secondary: Secondary, spec: dict[str, Any]) -> None:
    """On the primary it must have been deleted and made again."""
    secondary.take(a_hub())
    uid = secondary.bench.catalog.view.hub(WEST, "copied").uid

    secondary.take(a_hub("copied", **spec))

    assert secondary.bench.catalog.view.hub(WEST, "copied").uid != uid


def test_the_default_group_stays_whatever_comes(secondary: Secondary) -> None:
    """Readers of every hub count on it."""
    secondary.take(a_hub())

    secondary.take(replace(a_hub(), groups=()))

    assert secondary.groups("copied") == {"$Default": ""}


def test_hubs_that_the_primary_has_not_go(secondary: Secondary) -> None:
    """Also those whose deletion was not replicated, because the connection was broken."""
    secondary.take(a_hub("kept"))
    secondary.take(a_hub("gone"))

    secondary.apply_namespace("KEPT")

    assert [hub.name for hub in secondary.bench.catalog.view.hubs(WEST)] == ["kept"]


def test_what_the_tier_refuses_is_refused_whole(secondary: Secondary) -> None:
    """The primary shows why; nothing half done is left."""
    groups = (GroupReplica(name=group_name(f"group{number}")) for number in range(21))

    with pytest.raises(LimitReached):
        secondary.take(a_hub("copied", *groups))

    with pytest.raises(HubNotFound):
        secondary.bench.catalog.view.hub(WEST, "copied")


def test_after_a_failover_the_old_primary_is_refused(secondary: Secondary) -> None:
    """By the id of the pairing; an unknown primary gets no information."""
    bench = secondary.bench
    bench.do(lambda done: bench.manager.fail_over(WEST, SHOP, bench.actor(), done))

    with pytest.raises(FailedOver):
        secondary.take(a_hub())
    with pytest.raises(AliasNotFound):
        secondary.take(a_hub(), Claim(namespace=WEST, alias=SHOP, pairing="another-pairing-id"))

    assert bench.catalog.view.alias(WEST, SHOP).role is GeoRole.PRIMARY_NOT_REPLICATING


def test_a_namespace_is_the_secondary_of_one_pairing(secondary: Secondary) -> None:
    """Neither another primary nor the same one again may take it over, and no name is used twice."""
    bench = secondary.bench
    bench.do(lambda done: bench.manager.pair("hubmere", alias_name("taken"), "", "", bench.actor(), done))

    with pytest.raises(Conflict):
        secondary.begin("another-pairing-id")
    with pytest.raises(AlreadyExists):
        bench.broker.replicas.begin(WEST, alias_name("taken"), "east-ns", PAIRING, bench.actor(), lambda _: None)


def test_an_alias_that_replicates_is_not_paired_again(secondary: Secondary) -> None:
    """The first partner would stay a secondary without a primary."""
    bench, other = secondary.bench, alias_name("other")
    bench.do(
        lambda done: bench.manager.pair_away(
            "hubmere", other, "north-ns", "", "another-pairing-id", bench.actor(), done
        )
    )

    with pytest.raises(Conflict, match="break the pairing first"):
        bench.manager.pair("hubmere", other, "", "", bench.actor(), lambda _: None)
