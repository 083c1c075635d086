"""Entities are created, changed and deleted in a running broker (reference: service 1, 11)."""

from functools import partial

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.model.entity import GeoRole, KeyKind, Rights, Status
from hubmere.model.errors import (
    AlreadyExists,
    ClusterBusy,
    Conflict,
    GroupNotFound,
    HubNotFound,
    InvalidArgument,
    LimitReached,
    NamespaceNotFound,
    NotFound,
    NotInTier,
    PartitionCountFixed,
    ServerBusy,
)
from hubmere.model.names import alias_name, group_name, hub_name, namespace_name, publisher_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import Profile
from hubmere.store.catalog.view import Drop, Step
from hubmere.store.engine import OnDurable
from store.builders import log_ids


def test_a_new_hub_has_the_service_s_defaults(harness: BrokerHarness) -> None:
    """The defaults are 4 partitions, 168 hours, Active, and the group $Default."""
    hub = harness.a_hub("telemetry", spec=HubSpec())

    assert hub.entity.partition_ids == ("0", "1", "2", "3")
    assert hub.entity.retention.hours == 168
    assert hub.entity.status is Status.ACTIVE
    assert [group.name for group in harness.catalog.view.groups(hub.entity)] == ["$Default"]


def test_names_are_case_insensitive_and_unique(harness: BrokerHarness) -> None:
    """`Orders` and `orders` are one hub."""
    with pytest.raises(AlreadyExists):
        harness.a_hub("ORDERS")

    assert harness.broker._namespace("HUBMERE").hub("Orders") is harness.hub


def test_hub_beyond_the_limit_of_the_tier_is_refused(harness: BrokerHarness) -> None:
    """The refusal names the number of the tier."""
    for i in range(9):
        harness.a_hub(f"hub{i}")

    with pytest.raises(LimitReached) as refusal:
        harness.a_hub("one-more")

    assert refusal.value.limit == 10


def test_partition_count_is_fixed_in_standard_and_grows_in_premium(harness: BrokerHarness) -> None:
    """Stored events stay in their partitions."""
    spec = HubSpec(partition_count=8)
    with pytest.raises(PartitionCountFixed):
        harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), lambda _: None)

    premium = BrokerHarness(profile=Profile.PREMIUM)
    premium.hub.log(3).append(a_batch(2), NOW_MS)
    premium.do(lambda done: premium.manager.update_hub("hubmere", "orders", spec, premium.actor(), done))
    premium.turn.run()

    assert premium.hub.entity.partition_count == 8
    assert [log.state.committed for log in premium.hub.logs()] == [0, 0, 0, 2, 0, 0, 0, 0]
    premium.close()


def test_deletion_that_cannot_be_forgotten_now_is_forgotten_later(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control log of a cluster may be away when the topic of a hub is gone."""
    harness.a_hub("later")
    submit, drops = harness.catalog.submit, []

    def refuse_first(*steps: Step, callback: OnDurable | None = None) -> None:
        if isinstance(steps[0], Drop):
            drops.append(steps[0])
            if len(drops) == 1:
                raise ClusterBusy("it does not answer")
        submit(*steps, callback=callback)

    monkeypatch.setattr(harness.catalog, "submit", refuse_first)
    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    harness.turn.run()
    harness.catalog.apply()
    assert len(harness.catalog.pending_deletions()) == 1

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "later", harness.actor(), done))
    harness.turn.run()
    harness.catalog.apply()

    assert not harness.catalog.pending_deletions()


def test_deleting_a_hub_deletes_its_files_and_frees_its_name(harness: BrokerHarness) -> None:
    """A hub that is created again under the name is empty."""
    harness.hub.log(0).append(a_batch(5), NOW_MS)
    harness.turn.run()

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))
    left = log_ids(harness.engine)
    again = harness.a_hub("orders")

    assert left == []
    assert again.log(0).state.committed == 0
    with pytest.raises(HubNotFound):
        harness.manager.delete_hub("hubmere", "nothing", harness.actor(), lambda _: None)


def test_default_consumer_group_cannot_be_deleted(harness: BrokerHarness) -> None:
    """Every hub has the group $Default."""
    with pytest.raises(Conflict):
        harness.manager.delete_group("hubmere", "orders", "$default", harness.actor(), lambda _: None)


def test_consumer_groups_can_be_created_changed_and_deleted(harness: BrokerHarness) -> None:
    """A second group of the same name is refused."""
    name = group_name("cg1")
    harness.do(lambda done: harness.manager.create_group("hubmere", "orders", name, "first", harness.actor(), done))
    with pytest.raises(AlreadyExists):
        harness.manager.create_group("hubmere", "orders", group_name("CG1"), "", harness.actor(), lambda _: None)
    harness.do(lambda done: harness.manager.update_group("hubmere", "orders", "cg1", "second", harness.actor(), done))

    assert harness.catalog.view.group(harness.hub.entity, "CG1").user_metadata == "second"
    harness.do(lambda done: harness.manager.delete_group("hubmere", "orders", "cg1", harness.actor(), done))
    with pytest.raises(GroupNotFound):
        harness.catalog.view.group(harness.hub.entity, "cg1")


def test_number_of_rules_is_limited_and_keys_can_be_rotated(harness: BrokerHarness) -> None:
    """An entity has at most 12 rules; the 13th is refused and the 12 are unchanged."""
    for i in range(12):
        harness.do(
            partial(
                harness.manager.write_rule, "hubmere", "orders", rule_name(f"rule{i}"), Rights.SEND, harness.actor()
            )
        )
    before = harness.catalog.view.rule(harness.hub.entity, "rule3")

    with pytest.raises(LimitReached):
        harness.manager.write_rule("hubmere", "orders", rule_name("x"), Rights.SEND, harness.actor(), lambda _: None)
    harness.do(
        lambda d: harness.manager.regenerate_key(
            "hubmere", "orders", "rule3", KeyKind.PRIMARY, None, harness.actor(), d
        )
    )
    after = harness.catalog.view.rule(harness.hub.entity, "rule3")

    assert len(harness.catalog.view.rules(harness.hub.entity)) == 12
    assert after.primary_key != before.primary_key
    assert after.secondary_key == before.secondary_key


def test_writing_a_rule_again_changes_rights_and_keeps_keys(harness: BrokerHarness) -> None:
    """PUT on an existing rule is an update."""
    name = rule_name("app")
    harness.do(lambda d: harness.manager.write_rule("hubmere", None, name, Rights.SEND, harness.actor(), d))
    namespace = harness.catalog.view.namespace("hubmere")
    first = harness.catalog.view.rule(namespace, "app")

    harness.do(
        lambda d: harness.manager.write_rule(
            "hubmere", None, name, Rights.LISTEN, harness.actor(), d, secondary_key="a-key-of-my-own"
        )
    )
    second = harness.catalog.view.rule(namespace, "app")

    assert (second.rights, second.primary_key) == (Rights.LISTEN, first.primary_key)
    assert second.secondary_key == "a-key-of-my-own"
    harness.do(lambda d: harness.manager.delete_rule("hubmere", None, "app", harness.actor(), d))
    assert harness.catalog.view.find_rule(namespace, "app") is None


def test_added_throughput_units_apply_at_once() -> None:
    """Scaling needs no restart."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    publisher = harness.broker.open_publisher(harness.hub)

    harness.do(lambda d: harness.manager.scale("hubmere", 4, harness.actor(), d))
    for second in range(3):
        harness.now = 1.0 + second
        for _ in range(3):
            publisher.publish(a_batch(), count=1, size_bytes=1 << 20, key=None, now=harness.now, now_ms=NOW_MS)

    assert harness.hub.counters.throttled_requests == 0
    with pytest.raises(InvalidArgument):
        harness.manager.scale("hubmere", 41, harness.actor(), lambda _: None)
    harness.close()


def test_deleting_a_namespace_deletes_its_hubs(harness: BrokerHarness) -> None:
    """Deleting the namespace also frees the logs of its hubs."""
    name = namespace_name("second")
    harness.do(lambda d: harness.manager.create_namespace(name, NamespaceSpec(), harness.actor(), d))
    harness.do(lambda d: harness.manager.create_hub("second", hub_name("h"), HubSpec(), harness.actor(), d))
    harness.broker._namespace("second").hub("h").log(0)

    harness.do(lambda d: harness.manager.delete_namespace("SECOND", harness.actor(), d))

    assert log_ids(harness.engine) == []
    with pytest.raises(NamespaceNotFound):
        harness.broker._namespace("second")


@pytest.mark.parametrize(
    ("host", "namespace"),
    [
        (None, "hubmere"),
        ("localhost", "hubmere"),
        ("127.0.0.1", "hubmere"),
        ("Second.servicebus.windows.net", "second"),
        ("second.localhost:5671", "second"),
        ("nowhere.example.com", "hubmere"),
    ],
)
def test_host_name_selects_the_namespace(harness: BrokerHarness, host: str | None, namespace: str) -> None:
    """Its first label is the name; any other host means the node's own namespace."""
    name = namespace_name("second")
    harness.do(lambda d: harness.manager.create_namespace(name, NamespaceSpec(), harness.actor(), d))

    assert harness.broker.namespace_at(host).entity.name == namespace


def test_alias_refers_to_the_secondary_after_a_failover(harness: BrokerHarness) -> None:
    """Metadata is copied when the namespaces are paired; after the failover the pairing has ended."""
    partner = namespace_name("partner")
    harness.do(lambda d: harness.manager.create_namespace(partner, NamespaceSpec(), harness.actor(), d))
    harness.do(lambda d: harness.manager.create_group("hubmere", "orders", group_name("cg1"), "", harness.actor(), d))
    alias = alias_name("shop-events")

    harness.do(lambda d: harness.manager.pair("hubmere", alias, "partner", "", harness.actor(), d))

    assert harness.broker.namespace_at("shop-events.localhost").entity.name == "hubmere"
    copy = harness.broker._namespace("partner").hub("orders")
    assert [group.name for group in harness.catalog.view.groups(copy.entity)] == ["$Default", "cg1"]
    harness.a_hub("later")
    harness.do(lambda d: harness.manager.create_group("hubmere", "later", group_name("cg2"), "", harness.actor(), d))
    disabled = HubSpec(status=Status.DISABLED)
    harness.do(lambda d: harness.manager.update_hub("hubmere", "later", disabled, harness.actor(), d))
    follower = harness.broker._namespace("partner").hub("later")
    assert follower.entity.status is Status.DISABLED
    assert harness.catalog.view.find_group(follower.entity, "cg2") is not None
    harness.do(lambda d: harness.manager.delete_hub("hubmere", "later", harness.actor(), d))
    assert [hub.name for hub in harness.catalog.view.hubs("partner")] == ["orders"]
    with pytest.raises(Conflict):
        harness.manager.create_hub("partner", hub_name("x"), HubSpec(), harness.actor(), lambda _: None)
    with pytest.raises(Conflict):
        harness.manager.delete_alias("hubmere", "shop-events", harness.actor(), lambda _: None)
    with pytest.raises(Conflict):
        harness.manager.fail_over("hubmere", "shop-events", harness.actor(), lambda _: None)
    harness.do(lambda d: harness.manager.fail_over("partner", "shop-events", harness.actor(), d))
    assert harness.broker.namespace_at("shop-events.localhost").entity.name == "partner"
    assert harness.catalog.view.alias("partner", "shop-events").role is GeoRole.PRIMARY_NOT_REPLICATING
    harness.do(lambda d: harness.manager.create_hub("partner", hub_name("x"), HubSpec(), harness.actor(), d))
    harness.do(lambda d: harness.manager.delete_alias("partner", "shop-events", harness.actor(), d))


def test_breaking_a_pairing_leaves_the_alias_with_the_primary(harness: BrokerHarness) -> None:
    """The secondary can be changed again."""
    partner = namespace_name("partner")
    harness.do(lambda d: harness.manager.create_namespace(partner, NamespaceSpec(), harness.actor(), d))
    alias = alias_name("shop-events")
    harness.do(lambda d: harness.manager.pair("hubmere", alias, "partner", "", harness.actor(), d))
    with pytest.raises(Conflict):
        harness.manager.delete_namespace("partner", harness.actor(), lambda _: None)

    harness.do(lambda d: harness.manager.break_pairing("hubmere", "shop-events", harness.actor(), d))

    assert harness.broker.namespace_at("shop-events.localhost").entity.name == "hubmere"
    harness.do(lambda d: harness.manager.delete_namespace("partner", harness.actor(), d))


def test_revoking_a_publisher_twice_and_restoring_an_unknown_one_are_refused(harness: BrokerHarness) -> None:
    """The management API answers 409 and 404."""
    name = publisher_name("dev")
    harness.do(lambda d: harness.manager.revoke_publisher("hubmere", "orders", name, harness.actor(), d))

    with pytest.raises(AlreadyExists):
        harness.manager.revoke_publisher("hubmere", "orders", name, harness.actor(), lambda _: None)
    with pytest.raises(NotFound):
        harness.manager.restore_publisher("hubmere", "orders", "somebody", harness.actor(), lambda _: None)


def test_runtime_information_has_first_and_last_sequence_number(harness: BrokerHarness) -> None:
    """Empty partitions show -1, as in the service."""
    harness.hub.log(1).append(a_batch(4), NOW_MS)
    harness.turn.run()

    empty = harness.broker.runtime_information.partition_info(harness.hub.view, "0", 0.0)
    filled = harness.broker.runtime_information.partition_info(harness.hub.view, "1", 0.0)

    assert (empty.begin_sequence, empty.last_sequence, empty.last_offset, empty.is_empty) == (0, -1, -1, True)
    assert (filled.begin_sequence, filled.last_sequence, filled.is_empty) == (0, 3, False)
    assert filled.last_enqueued_ms == NOW_MS
    assert harness.broker.runtime_information.hub_info(harness.hub.view, 0.0).partition_ids == ("0", "1", "2", "3")


def test_too_many_runtime_information_requests_are_refused_in_a_throttled_tier() -> None:
    """The limit is 50 a second; further requests get server busy with sub-code 50008."""
    harness = BrokerHarness(profile=Profile.STANDARD)
    for _ in range(50):
        harness.broker.runtime_information.hub_info(harness.hub.view, 0.0)

    with pytest.raises(ServerBusy) as refusal:
        harness.broker.runtime_information.hub_info(harness.hub.view, 0.0)

    assert refusal.value.code == 50008
    harness.close()


def test_namespaces_beyond_the_limit_are_refused() -> None:
    """One namespace exists from the start."""
    harness = BrokerHarness(limits={"namespaces": 2})
    harness.do(
        lambda d: harness.manager.create_namespace(namespace_name("second"), NamespaceSpec(), harness.actor(), d)
    )

    with pytest.raises(LimitReached):
        harness.manager.create_namespace(namespace_name("another"), NamespaceSpec(), harness.actor(), lambda _: None)

    harness.close()


def test_geo_recovery_is_refused_in_a_tier_without_it() -> None:
    """Basic namespaces have no alias, neither on this node nor on another."""
    harness = BrokerHarness(profile=Profile.BASIC)
    alias = alias_name("shop-events")

    with pytest.raises(NotInTier):
        harness.manager.pair("hubmere", alias, "", "", harness.actor(), lambda _: None)
    with pytest.raises(NotInTier):
        harness.manager.pair_away("hubmere", alias, "far", "", "id", harness.actor(), lambda _: None)

    harness.close()
