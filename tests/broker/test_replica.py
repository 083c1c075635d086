"""The secondary of a pairing of two nodes: which changes a copy causes, and that only its primary is accepted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker.builders import BrokerHarness
from hubmere.broker.management.replica import GroupReplica, HubReplica, PairingClaim, RuleReplica
from hubmere.model.entity import CleanupPolicy, GeoRole, Rights
from hubmere.model.errors import AliasNotFound, AlreadyExists, Conflict, FailedOver, HubNotFound, LimitReached
from hubmere.model.names import DEFAULT_GROUP, alias_name, group_name, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import Profile

PAIRING = "0123456789abcdef"
WEST, SHOP = "west-ns", alias_name("shop")
CLAIM = PairingClaim(namespace=WEST, alias=SHOP, pairing=PAIRING)
DEFAULT = GroupReplica(name=DEFAULT_GROUP)
SEND = RuleReplica(name=rule_name("send"), rights=Rights.SEND, primary_key="first", secondary_key="second")


class Secondary:
    """A secondary namespace, and the requests of its primary on another node."""

    def __init__(self, profile: Profile = Profile.DEVELOPER) -> None:
        self.broker_harness = BrokerHarness(profile=profile)
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.manager.create_namespace(
                namespace_name(WEST), NamespaceSpec(), broker_harness.actor(), done
            )
        )
        self.begin()

    def begin(self, pairing: str = PAIRING) -> None:
        """Become the secondary of `east-ns`."""
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.broker.replicas.begin(
                WEST, SHOP, "east-ns", pairing, broker_harness.actor(), done
            )
        )

    def take(self, wanted_hub: HubReplica, claim: PairingClaim = CLAIM) -> None:
        """Apply a copy of a hub."""
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.broker.replicas.apply_hub(claim, wanted_hub, broker_harness.actor(), done)
        )

    def apply_namespace(self, *hubs: str, rules: tuple[RuleReplica, ...] = ()) -> None:
        """Apply a copy of the namespace."""
        broker_harness = self.broker_harness
        broker_harness.do(
            lambda done: broker_harness.broker.replicas.apply_namespace(
                CLAIM, rules, hubs, broker_harness.actor(), done
            )
        )

    @property
    def version(self) -> int:
        """The version of the catalog, which changes with every entity."""
        return self.broker_harness.catalog.view.version

    def groups(self, hub: str) -> dict[str, str]:
        """Metadata of a hub's groups by their names."""
        view = self.broker_harness.catalog.view
        return {group.name: group.user_metadata for group in view.groups(view.hub(WEST, hub))}


@pytest.fixture
def secondary() -> Iterator[Secondary]:
    """A secondary on a node with standard limits."""
    made = Secondary()
    yield made
    made.broker_harness.close()


def a_hub(
    name: str = "copied", *groups: GroupReplica, rules: tuple[RuleReplica, ...] = (), **spec: object
) -> HubReplica:
    """A hub in the form that a primary sends."""
    wanted_hub = HubSpec(**{"partition_count": 2, "cleanup_policy": CleanupPolicy.DELETE, **spec})  # type: ignore[arg-type]
    return HubReplica(name=hub_name(name), spec=wanted_hub, groups=(DEFAULT, *groups), rules=rules)


def test_copy_that_arrives_twice_changes_nothing(secondary: Secondary) -> None:
    """A primary sends everything again when it does not know what arrived."""
    hub = a_hub("copied", GroupReplica(name=group_name("mine")), rules=(SEND,))
    secondary.take(hub)
    secondary.apply_namespace("copied", rules=(SEND,))
    before = secondary.version

    secondary.begin()
    secondary.take(hub)
    secondary.apply_namespace("copied", rules=(SEND,))

    assert secondary.version == before


def test_changed_hub_is_updated_in_place(secondary: Secondary) -> None:
    """The hub keeps its id and its events."""
    secondary.take(a_hub("copied", GroupReplica(name=group_name("mine"), user_metadata="old")))
    uid = secondary.broker_harness.catalog.view.hub(WEST, "copied").uid

    secondary.take(a_hub("copied", GroupReplica(name=group_name("mine"), user_metadata="new"), user_metadata="changed"))

    hub = secondary.broker_harness.catalog.view.hub(WEST, "copied")
    assert (hub.uid, hub.user_metadata) == (uid, "changed")
    assert secondary.groups("copied") == {"$Default": "", "mine": "new"}


@pytest.mark.parametrize(
    "spec", [{"partition_count": 4}, {"partition_count": 1}, {"cleanup_policy": CleanupPolicy.COMPACT}]
)
def test_hub_whose_change_is_impossible_is_created_again(secondary: Secondary, spec: dict[str, Any]) -> None:
    """It was deleted and created again on the primary."""
    secondary.take(a_hub())
    uid = secondary.broker_harness.catalog.view.hub(WEST, "copied").uid

    secondary.take(a_hub("copied", **spec))

    assert secondary.broker_harness.catalog.view.hub(WEST, "copied").uid != uid


def test_default_consumer_group_is_never_deleted_by_a_copy(secondary: Secondary) -> None:
    """Readers of every hub rely on it."""
    secondary.take(a_hub())

    secondary.take(replace(a_hub(), groups=()))

    assert secondary.groups("copied") == {"$Default": ""}


def test_hubs_that_the_primary_does_not_have_are_deleted(secondary: Secondary) -> None:
    """This includes hubs whose deletion was not replicated because the connection was lost."""
    secondary.take(a_hub("kept"))
    secondary.take(a_hub("gone"))

    secondary.apply_namespace("KEPT")

    assert [hub.name for hub in secondary.broker_harness.catalog.view.hubs(WEST)] == ["kept"]


def test_copy_that_the_tier_does_not_allow_is_refused_as_a_whole(secondary: Secondary) -> None:
    """The primary shows the reason, and no part of the copy is applied."""
    groups = (GroupReplica(name=group_name(f"group{number}")) for number in range(21))

    with pytest.raises(LimitReached):
        secondary.take(a_hub("copied", *groups))

    with pytest.raises(HubNotFound):
        secondary.broker_harness.catalog.view.hub(WEST, "copied")


def test_old_primary_is_refused_after_a_failover(secondary: Secondary) -> None:
    """The id of the pairing is checked; an unknown primary gets no information."""
    broker_harness = secondary.broker_harness
    broker_harness.do(lambda done: broker_harness.manager.fail_over(WEST, SHOP, broker_harness.actor(), done))

    with pytest.raises(FailedOver):
        secondary.take(a_hub())
    with pytest.raises(AliasNotFound):
        secondary.take(a_hub(), PairingClaim(namespace=WEST, alias=SHOP, pairing="another-pairing-id"))

    assert broker_harness.catalog.view.alias(WEST, SHOP).role is GeoRole.PRIMARY_NOT_REPLICATING


def test_namespace_is_the_secondary_of_at_most_one_pairing(secondary: Secondary) -> None:
    """Neither another primary nor a second pairing with the same one is accepted, and no name is used twice."""
    broker_harness = secondary.broker_harness
    broker_harness.do(
        lambda done: broker_harness.manager.pair("hubmere", alias_name("taken"), "", "", broker_harness.actor(), done)
    )

    with pytest.raises(Conflict):
        secondary.begin("another-pairing-id")
    with pytest.raises(AlreadyExists):
        broker_harness.broker.replicas.begin(
            WEST, alias_name("taken"), "east-ns", PAIRING, broker_harness.actor(), lambda _: None
        )


def test_an_alias_that_replicates_is_not_paired_again(secondary: Secondary) -> None:
    """The first partner would remain a secondary without a primary."""
    broker_harness, other = secondary.broker_harness, alias_name("other")
    broker_harness.do(
        lambda done: broker_harness.manager.pair_away(
            "hubmere", other, "north-ns", "", "another-pairing-id", broker_harness.actor(), done
        )
    )

    with pytest.raises(Conflict, match="break the pairing first"):
        broker_harness.manager.pair("hubmere", other, "", "", broker_harness.actor(), lambda _: None)
