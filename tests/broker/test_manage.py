"""Entities made, changed and removed while everything runs (reference: service 1, 11)."""

from functools import partial

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from hubmere.model.entity import GeoRole, KeyKind, Rights, Status
from hubmere.model.errors import (
    AlreadyExists,
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
from store.builders import log_ids


def test_a_new_hub_has_the_service_s_defaults(bench: Bench) -> None:
    """4 partitions, 168 hours, Active, $Default."""
    hub = bench.a_hub("telemetry", spec=HubSpec())

    assert hub.entity.partition_ids == ("0", "1", "2", "3")
    assert hub.entity.retention.hours == 168
    assert hub.entity.status is Status.ACTIVE
    assert [group.name for group in bench.catalog.view.groups(hub.entity)] == ["$Default"]


def test_names_are_found_in_any_case_and_taken_once(bench: Bench) -> None:
    """`Orders` and `orders` are one hub."""
    with pytest.raises(AlreadyExists):
        bench.a_hub("ORDERS")

    assert bench.broker._namespace("HUBMERE").hub("Orders") is bench.hub


def test_the_tenth_hub_is_the_last_in_the_standard_shape(bench: Bench) -> None:
    """The tier's count, refused with its number."""
    for i in range(9):
        bench.a_hub(f"hub{i}")

    with pytest.raises(LimitReached) as refusal:
        bench.a_hub("one-more")

    assert refusal.value.limit == 10


def test_partition_count_is_fixed_in_standard_and_grows_in_premium(bench: Bench) -> None:
    """Old events stay where they were."""
    spec = HubSpec(partition_count=8)
    with pytest.raises(PartitionCountFixed):
        bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), lambda _: None)

    premium = Bench(profile=Profile.PREMIUM)
    premium.hub.log(3).append(a_batch(2), NOW_MS)
    premium.do(lambda done: premium.manager.update_hub("hubmere", "orders", spec, premium.actor(), done))
    premium.turn.run()

    assert premium.hub.entity.partition_count == 8
    assert [log.state.committed for log in premium.hub.logs()] == [0, 0, 0, 2, 0, 0, 0, 0]
    premium.close()


def test_a_deleted_hub_frees_its_files_and_its_name(bench: Bench) -> None:
    """A hub that is created again under the name is empty."""
    bench.hub.log(0).append(a_batch(5), NOW_MS)
    bench.turn.run()

    bench.do(lambda done: bench.manager.delete_hub("hubmere", "orders", bench.actor(), done))
    left = log_ids(bench.engine)
    again = bench.a_hub("orders")

    assert left == []
    assert again.log(0).state.committed == 0
    with pytest.raises(HubNotFound):
        bench.manager.delete_hub("hubmere", "nothing", bench.actor(), lambda _: None)


def test_default_group_cannot_go(bench: Bench) -> None:
    """Every hub has it."""
    with pytest.raises(Conflict):
        bench.manager.delete_group("hubmere", "orders", "$default", bench.actor(), lambda _: None)


def test_groups_come_and_go(bench: Bench) -> None:
    """Create, change, refuse twice, delete."""
    name = group_name("cg1")
    bench.do(lambda done: bench.manager.create_group("hubmere", "orders", name, "first", bench.actor(), done))
    with pytest.raises(AlreadyExists):
        bench.manager.create_group("hubmere", "orders", group_name("CG1"), "", bench.actor(), lambda _: None)
    bench.do(lambda done: bench.manager.update_group("hubmere", "orders", "cg1", "second", bench.actor(), done))

    assert bench.catalog.view.group(bench.hub.entity, "CG1").user_metadata == "second"
    bench.do(lambda done: bench.manager.delete_group("hubmere", "orders", "cg1", bench.actor(), done))
    with pytest.raises(GroupNotFound):
        bench.catalog.view.group(bench.hub.entity, "cg1")


def test_rules_are_bounded_and_keys_rotate(bench: Bench) -> None:
    """12 on an entity; a 13th is refused and the 12 stay."""
    for i in range(12):
        bench.do(
            partial(bench.manager.write_rule, "hubmere", "orders", rule_name(f"rule{i}"), Rights.SEND, bench.actor())
        )
    before = bench.catalog.view.rule(bench.hub.entity, "rule3")

    with pytest.raises(LimitReached):
        bench.manager.write_rule("hubmere", "orders", rule_name("x"), Rights.SEND, bench.actor(), lambda _: None)
    bench.do(
        lambda d: bench.manager.regenerate_key("hubmere", "orders", "rule3", KeyKind.PRIMARY, None, bench.actor(), d)
    )
    after = bench.catalog.view.rule(bench.hub.entity, "rule3")

    assert len(bench.catalog.view.rules(bench.hub.entity)) == 12
    assert after.primary_key != before.primary_key
    assert after.secondary_key == before.secondary_key


def test_writing_a_rule_again_changes_rights_and_keeps_keys(bench: Bench) -> None:
    """PUT on an existing rule is an update."""
    name = rule_name("app")
    bench.do(lambda d: bench.manager.write_rule("hubmere", None, name, Rights.SEND, bench.actor(), d))
    namespace = bench.catalog.view.namespace("hubmere")
    first = bench.catalog.view.rule(namespace, "app")

    bench.do(
        lambda d: bench.manager.write_rule(
            "hubmere", None, name, Rights.LISTEN, bench.actor(), d, secondary_key="a-key-of-my-own"
        )
    )
    second = bench.catalog.view.rule(namespace, "app")

    assert (second.rights, second.primary_key) == (Rights.LISTEN, first.primary_key)
    assert second.secondary_key == "a-key-of-my-own"
    bench.do(lambda d: bench.manager.delete_rule("hubmere", None, "app", bench.actor(), d))
    assert bench.catalog.view.find_rule(namespace, "app") is None


def test_scaling_is_effective_at_once() -> None:
    """Units bought are units usable."""
    bench = Bench(profile=Profile.STANDARD)
    publisher = bench.broker.open_publisher(bench.hub)

    bench.do(lambda d: bench.manager.scale("hubmere", 4, bench.actor(), d))
    for second in range(3):
        bench.now = 1.0 + second
        for _ in range(3):
            publisher.publish(a_batch(), count=1, size_bytes=1 << 20, key=None, now=bench.now, now_ms=NOW_MS)

    assert bench.hub.counters.throttled_requests == 0
    with pytest.raises(InvalidArgument):
        bench.manager.scale("hubmere", 41, bench.actor(), lambda _: None)
    bench.close()


def test_namespaces_come_and_go_with_everything_in_them(bench: Bench) -> None:
    """Deleting a namespace frees its hubs' logs."""
    name = namespace_name("second")
    bench.do(lambda d: bench.manager.create_namespace(name, NamespaceSpec(), bench.actor(), d))
    bench.do(lambda d: bench.manager.create_hub("second", hub_name("h"), HubSpec(), bench.actor(), d))
    bench.broker._namespace("second").hub("h").log(0)

    bench.do(lambda d: bench.manager.delete_namespace("SECOND", bench.actor(), d))

    assert log_ids(bench.engine) == []
    with pytest.raises(NamespaceNotFound):
        bench.broker._namespace("second")


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
def test_the_host_name_chooses_the_namespace(bench: Bench, host: str | None, namespace: str) -> None:
    """The first label names it; anything else means the node's own."""
    name = namespace_name("second")
    bench.do(lambda d: bench.manager.create_namespace(name, NamespaceSpec(), bench.actor(), d))

    assert bench.broker.namespace_at(host).entity.name == namespace


def test_an_alias_follows_its_primary_through_a_failover(bench: Bench) -> None:
    """Metadata goes along at pairing; after the failover the alias means the secondary, and the pairing is over."""
    partner = namespace_name("partner")
    bench.do(lambda d: bench.manager.create_namespace(partner, NamespaceSpec(), bench.actor(), d))
    bench.do(lambda d: bench.manager.create_group("hubmere", "orders", group_name("cg1"), "", bench.actor(), d))
    alias = alias_name("shop-events")

    bench.do(lambda d: bench.manager.pair("hubmere", alias, "partner", "", bench.actor(), d))

    assert bench.broker.namespace_at("shop-events.localhost").entity.name == "hubmere"
    copy = bench.broker._namespace("partner").hub("orders")
    assert [group.name for group in bench.catalog.view.groups(copy.entity)] == ["$Default", "cg1"]
    bench.a_hub("later")
    bench.do(lambda d: bench.manager.create_group("hubmere", "later", group_name("cg2"), "", bench.actor(), d))
    disabled = HubSpec(status=Status.DISABLED)
    bench.do(lambda d: bench.manager.update_hub("hubmere", "later", disabled, bench.actor(), d))
    follower = bench.broker._namespace("partner").hub("later")
    assert follower.entity.status is Status.DISABLED
    assert bench.catalog.view.find_group(follower.entity, "cg2") is not None
    bench.do(lambda d: bench.manager.delete_hub("hubmere", "later", bench.actor(), d))
    assert [hub.name for hub in bench.catalog.view.hubs("partner")] == ["orders"]
    with pytest.raises(Conflict):
        bench.manager.create_hub("partner", hub_name("x"), HubSpec(), bench.actor(), lambda _: None)
    with pytest.raises(Conflict):
        bench.manager.delete_alias("hubmere", "shop-events", bench.actor(), lambda _: None)
    with pytest.raises(Conflict):
        bench.manager.fail_over("hubmere", "shop-events", bench.actor(), lambda _: None)
    bench.do(lambda d: bench.manager.fail_over("partner", "shop-events", bench.actor(), d))
    assert bench.broker.namespace_at("shop-events.localhost").entity.name == "partner"
    assert bench.catalog.view.alias("partner", "shop-events").role is GeoRole.PRIMARY_NOT_REPLICATING
    bench.do(lambda d: bench.manager.create_hub("partner", hub_name("x"), HubSpec(), bench.actor(), d))
    bench.do(lambda d: bench.manager.delete_alias("partner", "shop-events", bench.actor(), d))


def test_a_broken_pairing_leaves_the_alias_with_the_primary(bench: Bench) -> None:
    """And the secondary is free again."""
    partner = namespace_name("partner")
    bench.do(lambda d: bench.manager.create_namespace(partner, NamespaceSpec(), bench.actor(), d))
    alias = alias_name("shop-events")
    bench.do(lambda d: bench.manager.pair("hubmere", alias, "partner", "", bench.actor(), d))
    with pytest.raises(Conflict):
        bench.manager.delete_namespace("partner", bench.actor(), lambda _: None)

    bench.do(lambda d: bench.manager.break_pairing("hubmere", "shop-events", bench.actor(), d))

    assert bench.broker.namespace_at("shop-events.localhost").entity.name == "hubmere"
    bench.do(lambda d: bench.manager.delete_namespace("partner", bench.actor(), d))


def test_revoking_twice_and_restoring_nobody_are_refused(bench: Bench) -> None:
    """The management API answers 409 and 404."""
    name = publisher_name("dev")
    bench.do(lambda d: bench.manager.revoke_publisher("hubmere", "orders", name, bench.actor(), d))

    with pytest.raises(AlreadyExists):
        bench.manager.revoke_publisher("hubmere", "orders", name, bench.actor(), lambda _: None)
    with pytest.raises(NotFound):
        bench.manager.restore_publisher("hubmere", "orders", "somebody", bench.actor(), lambda _: None)


def test_runtime_information_has_begin_and_end(bench: Bench) -> None:
    """Empty partitions show -1 as the service does."""
    bench.hub.log(1).append(a_batch(4), NOW_MS)
    bench.turn.run()

    empty = bench.broker.partition_info(bench.hub.view, "0", 0.0)
    filled = bench.broker.partition_info(bench.hub.view, "1", 0.0)

    assert (empty.begin_sequence, empty.last_sequence, empty.last_offset, empty.is_empty) == (0, -1, -1, True)
    assert (filled.begin_sequence, filled.last_sequence, filled.is_empty) == (0, 3, False)
    assert filled.last_enqueued_ms == NOW_MS
    assert bench.broker.hub_info(bench.hub.view, 0.0).partition_ids == ("0", "1", "2", "3")


def test_too_many_questions_are_refused_in_a_throttled_tier() -> None:
    """50 a second; more is server busy 50008."""
    bench = Bench(profile=Profile.STANDARD)
    for _ in range(50):
        bench.broker.hub_info(bench.hub.view, 0.0)

    with pytest.raises(ServerBusy) as refusal:
        bench.broker.hub_info(bench.hub.view, 0.0)

    assert refusal.value.code == 50008
    bench.close()


def test_namespaces_beyond_the_limit_are_refused() -> None:
    """One is there from the start."""
    bench = Bench(limits={"namespaces": 2})
    bench.do(lambda d: bench.manager.create_namespace(namespace_name("second"), NamespaceSpec(), bench.actor(), d))

    with pytest.raises(LimitReached):
        bench.manager.create_namespace(namespace_name("another"), NamespaceSpec(), bench.actor(), lambda _: None)

    bench.close()


def test_geo_recovery_is_refused_in_a_tier_without_it() -> None:
    """Basic namespaces have no alias, on this node or with another."""
    bench = Bench(profile=Profile.BASIC)
    alias = alias_name("shop-events")

    with pytest.raises(NotInTier):
        bench.manager.pair("hubmere", alias, "", "", bench.actor(), lambda _: None)
    with pytest.raises(NotInTier):
        bench.manager.pair_away("hubmere", alias, "far", "", "id", bench.actor(), lambda _: None)

    bench.close()
