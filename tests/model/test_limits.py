"""Limits: each tier accepts a value at its limit and refuses the next one."""

import ast
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from hubmere.broker.coordinator.refusals import CONSUMER_MAX_SIZE
from hubmere.model import spec
from hubmere.model.entity import (
    ApplicationGroup,
    CaptureDescription,
    CleanupPolicy,
    NetworkRuleSet,
    Rights,
    ThrottlingMetric,
    ThrottlingPolicy,
    VirtualNetworkRule,
)
from hubmere.model.errors import (
    InvalidArgument,
    LimitReached,
    NotInTier,
    ReceiverLimit,
    Refusal,
    ServerBusy,
    ThrottledTooLong,
)
from hubmere.model.names import application_group_name, group_name, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.spec.checks import check_range
from hubmere.model.tier import STATED_ONLY, Limits, Tier
from hubmere.settings import Settings
from model.builders import NOW_MS, a_hub, a_hub_and_group, a_namespace, a_rule, limits

BASIC, STANDARD, PREMIUM, DEDICATED = Tier


def _hubs(tier: Tier, count: int) -> None:
    namespace = a_namespace(tier=tier)
    small = HubSpec(partition_count=limits(tier).least_partitions_per_hub)
    existing = [a_hub(namespace=namespace, spec=small)] * (count - 1)
    spec.new_hub(namespace, hub_name("last"), small, limits(tier), existing=existing, now_ms=NOW_MS)


def _partitions(tier: Tier, count: int) -> None:
    a_hub(namespace=a_namespace(tier=tier), spec=HubSpec(partition_count=count))


def _all_partitions(tier: Tier, count: int) -> None:
    namespace = a_namespace(tier=tier)
    others = replace(a_hub(namespace=namespace), partition_count=count - 1)
    wish = HubSpec(partition_count=1)
    spec.new_hub(namespace, hub_name("last"), wish, limits(tier), existing=[others], now_ms=NOW_MS)


def _groups(tier: Tier, count: int) -> None:
    """As many groups, including `$Default`."""
    hub, default = a_hub_and_group(namespace=a_namespace(tier=tier))
    if count > 1:
        existing = [default] * (count - 1)
        spec.new_group(hub, group_name("last"), limits(tier), existing=existing, now_ms=NOW_MS)


def _rules(tier: Tier, count: int) -> None:
    namespace = a_namespace(tier=tier)
    existing = [a_rule(namespace)] * (count - 1)
    spec.new_rule(namespace, rule_name("last"), Rights.LISTEN, limits(tier), existing=existing, now_ms=NOW_MS)


def _units(tier: Tier, count: int) -> None:
    a_namespace(tier=tier, spec=NamespaceSpec(capacity=count))


def _inflated(tier: Tier, count: int) -> None:
    a_namespace(tier=tier, spec=NamespaceSpec(auto_inflate=True, maximum_throughput_units=count))


def _retention(tier: Tier, hours: int) -> None:
    a_hub(namespace=a_namespace(tier=tier), spec=HubSpec(retention_hours=hours))


def _masks(tier: Tier, count: int) -> None:
    rules = NetworkRuleSet(ip_masks=("::1",) * count)
    spec.with_network_rules(a_namespace(tier=tier), rules, limits(tier), now_ms=NOW_MS)


def _subnets(tier: Tier, count: int) -> None:
    rules = NetworkRuleSet(virtual_networks=(VirtualNetworkRule(subnet_id="s"),) * count)
    spec.with_network_rules(a_namespace(tier=tier), rules, limits(tier), now_ms=NOW_MS)


def _policies(tier: Tier, count: int) -> None:
    policy = ThrottlingPolicy(name="p", metric=ThrottlingMetric.INCOMING_MESSAGES, rate_per_s=10)
    name = application_group_name("app")
    group = ApplicationGroup(
        namespace=namespace_name("ns1234"), name=name, client_id="SASKeyName=k", policies=(policy,) * count
    )
    spec.check_application_group(group, limits(tier), tier=tier)


def _captured(tier: Tier, _: int) -> None:
    a_hub(namespace=a_namespace(tier=tier), spec=HubSpec(capture=CaptureDescription(enabled=True)))


def _compacted(tier: Tier, _: int) -> None:
    a_hub(namespace=a_namespace(tier=tier), spec=HubSpec(cleanup_policy=CleanupPolicy.COMPACT))


def _with_kafka(tier: Tier, _: int) -> None:
    a_namespace(tier=tier, spec=NamespaceSpec(kafka_enabled=True))


def _grown(tier: Tier, count: int) -> None:
    hub = a_hub(namespace=a_namespace(tier=tier), spec=HubSpec(partition_count=4))
    namespace = a_namespace(tier=tier)
    wish = replace(HubSpec.of(hub), partition_count=count)
    spec.apply_hub_spec(namespace, hub, wish, limits(tier), existing=[hub], now_ms=NOW_MS)


# Limit, tier, function that uses it, the largest accepted number (None: nothing is accepted), the first refused number.
ROWS: list[tuple[str, Tier, Callable[[Tier, int], None], int | None, int | None]] = [
    ("hubs_per_namespace", BASIC, _hubs, 10, 11),
    ("hubs_per_namespace", STANDARD, _hubs, 10, 11),
    ("hubs_per_unit", PREMIUM, _hubs, 100, 101),
    ("hubs_per_namespace", DEDICATED, _hubs, 1000, 1001),
    ("least_partitions_per_hub", BASIC, _partitions, 2, 1),
    ("least_partitions_per_hub", STANDARD, _partitions, 2, 1),
    ("least_partitions_per_hub", PREMIUM, _partitions, 1, 0),
    ("partitions_per_hub", BASIC, _partitions, 32, 33),
    ("partitions_per_hub", STANDARD, _partitions, 32, 33),
    ("partitions_per_hub", PREMIUM, _partitions, 100, 101),
    ("partitions_per_hub", DEDICATED, _partitions, 1024, 1025),
    ("partitions_per_unit", PREMIUM, _all_partitions, 200, 201),
    ("partitions_per_unit", DEDICATED, _all_partitions, 2000, 2001),
    ("partitions_may_grow", STANDARD, _grown, 4, 5),
    ("partitions_may_grow", PREMIUM, _grown, 5, 3),
    ("groups_per_hub", BASIC, _groups, 1, 2),
    ("groups_per_hub", STANDARD, _groups, 20, 21),
    ("groups_per_hub", PREMIUM, _groups, 100, 101),
    ("groups_per_hub", DEDICATED, _groups, 1000, 1001),
    ("rules_per_entity", BASIC, _rules, 12, 13),
    ("units", BASIC, _units, 40, 41),
    ("units", STANDARD, _units, 40, 41),
    ("units", PREMIUM, _units, 16, 17),
    ("units", DEDICATED, _units, 20, 21),
    ("unit_steps", PREMIUM, _units, 2, 3),
    ("has_auto_inflate", BASIC, _inflated, None, 2),
    ("has_auto_inflate", STANDARD, _inflated, 40, 41),
    ("retention_hours", BASIC, _retention, 24, 25),
    ("retention_hours", STANDARD, _retention, 168, 169),
    ("retention_hours", PREMIUM, _retention, 2160, 2161),
    ("has_network_rules", BASIC, _masks, None, 1),
    ("ip_rules", STANDARD, _masks, 128, 129),
    ("network_rules", STANDARD, _subnets, 128, 129),
    ("has_application_groups", STANDARD, _policies, None, 1),
    ("policies_per_application_group", PREMIUM, _policies, 4, 5),
    ("has_capture", BASIC, _captured, None, 1),
    ("has_capture", STANDARD, _captured, 1, None),
    ("has_compaction", BASIC, _compacted, None, 1),
    ("has_compaction", STANDARD, _compacted, 1, None),
    ("has_kafka", BASIC, _with_kafka, None, 1),
    ("has_kafka", STANDARD, _with_kafka, 1, None),
]
# Limits of running parts, and the file with the test of the part that enforces them.
ELSEWHERE = {
    "publication_bytes": "tests/endpoints/amqp/test_publishing.py",
    "namespaces": "tests/broker/test_manage.py",
    "connections": "tests/endpoints/amqp/test_admission.py",
    "connections_per_unit": "tests/model/test_tier.py",
    "readers_per_partition": "tests/broker/test_read.py",
    "runtime_information_per_second": "tests/endpoints/amqp/test_management.py",
    "default_retention_hours": "tests/model/test_spec.py",
    "ingress_bytes_per_unit": "tests/broker/test_quota.py",
    "ingress_events_per_unit": "tests/endpoints/amqp/test_publishing.py",
    "egress_bytes_per_unit": "tests/endpoints/kafka/test_fetch.py",
    "egress_events_per_unit": "tests/endpoints/amqp/test_receiving.py",
    "offset_commits_per_second": "tests/endpoints/kafka/test_groups.py",
    "has_geo_recovery": "tests/broker/test_manage.py",
    "has_record_deletion": "tests/endpoints/kafka/test_admin.py",
}


@pytest.mark.parametrize(
    ("tier", "use", "taken", "refused"), [row[1:] for row in ROWS], ids=[f"{row[0]}-{row[1]}" for row in ROWS]
)
def test_limit_is_enforced(
    tier: Tier, use: Callable[[Tier, int], None], taken: int | None, refused: int | None
) -> None:
    """The last number that the service accepts is accepted, the next one is refused."""
    if taken is not None:
        use(tier, taken)
    if refused is not None:
        with pytest.raises(Refusal):
            use(tier, refused)


def test_every_limit_is_enforced_or_documented_as_not_enforced() -> None:
    """A limit in the manual that nothing enforces is a false promise."""
    root = Path(__file__).parents[2]
    tested = {row[0] for row in ROWS} | ELSEWHERE.keys() | STATED_ONLY

    assert all((root / name).is_file() for name in ELSEWHERE.values())
    assert tested == {field.name for field in fields(Limits)}


ROOT = Path(__file__).parents[2]
# Functions that check limits, and the argument that names the setting.
_CHECKS = {"check_limit": 3, "check_count": 3, "check_range": 4, "LimitReached": 2, "NotInTier": 2, "lifting_hint": 0}

# --- how to lift a limit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        LimitReached("event hubs in the namespace", 10, "hubs_per_namespace"),
        LimitReached("connections", 5000, "connections"),
    ],
)
def test_a_refusal_names_the_setting_that_lifts_the_limit(refusal: LimitReached) -> None:
    """The operator can change it, unlike in the service."""
    assert refusal.setting in Limits.__dataclass_fields__
    assert f"limits.{refusal.setting}" in refusal.text()
    assert "--as unlimited" in refusal.text()


@pytest.mark.parametrize(
    ("refusal", "settings"),
    [
        (ReceiverLimit(5, ["a"]), ["readers_per_partition"]),
        (ServerBusy(4.0), ["ingress_bytes_per_unit", "ingress_events_per_unit"]),
        (ServerBusy(1.0, limits=("runtime_information_per_second",)), ["runtime_information_per_second"]),
        (ThrottledTooLong(9.0, 1.0), ["ingress_bytes_per_unit", "ingress_events_per_unit"]),
        (NotInTier("Kafka", "Basic", "has_kafka"), ["has_kafka"]),
    ],
)
def test_refusals_of_messages_and_features_name_their_settings(refusal: Refusal, settings: list[str]) -> None:
    """The service's text comes first, since clients may match on it."""
    assert set(settings) <= set(Limits.__dataclass_fields__)
    assert all(f"limits.{name}" in refusal.text() for name in settings)
    assert refusal.text().endswith("and --as unlimited lifts all limits.")


def test_a_limit_without_a_setting_is_called_fixed() -> None:
    """The operator need not search for a setting."""
    assert LimitReached("groups", 100_000).text().endswith("(100000) has been reached. This limit is fixed.")


def test_every_limit_that_is_checked_is_named_by_its_setting() -> None:
    """A name in a check must be a field of the table, otherwise the hint would be wrong."""
    named: set[str] = set()
    for path in (ROOT / "src" / "hubmere").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CHECKS:
                named |= {
                    str(given.value) for given in node.args[_CHECKS[node.func.id] :] if isinstance(given, ast.Constant)
                }

    assert {"groups_per_hub", "rules_per_entity", "retention_hours", "namespaces"} <= named
    assert named <= set(Limits.__dataclass_fields__)


def test_every_setting_that_a_hint_names_exists() -> None:
    """A hint with the name of a setting that does not exist would send the operator into the void."""
    named = {
        str(node.args[0].value)
        for path in (ROOT / "src" / "hubmere").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setting_hint"
        if isinstance(node.args[0], ast.Constant)
    }

    assert {"max_connections", "memory_budget_bytes", "http_body_bytes"} <= named
    assert named | {CONSUMER_MAX_SIZE} <= {field.name for field in fields(Settings)}


def test_a_refusal_above_a_limit_names_the_setting() -> None:
    """The value comes from the client, but the upper limit is a setting of the node."""
    with pytest.raises(InvalidArgument, match=r"between 1 and 32; the setting limits\.partitions_per_hub changes it"):
        check_range("partition count", 33, 1, 32, "partitions_per_hub")
    with pytest.raises(InvalidArgument) as below:
        check_range("partition count", 0, 1, 32, "partitions_per_hub")
    assert "limits." not in below.value.text()


def test_a_refusal_below_a_limit_names_the_setting() -> None:
    """The standard tier begins at two partitions, which is a setting, too; no setting allows none."""
    names = ("partitions_per_hub", "least_partitions_per_hub")
    with pytest.raises(InvalidArgument, match=r"between 2 and 32; .* limits\.least_partitions_per_hub changes"):
        check_range("partition count", 1, 2, 32, *names)
    with pytest.raises(InvalidArgument) as below:
        check_range("partition count", 0, 2, 32, *names)
    assert "limits." not in below.value.text()
