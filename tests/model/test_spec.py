"""From a spec to an entity: defaults, ranges and tier limits."""

import base64
from dataclasses import replace

import pytest

from hubmere.model import spec
from hubmere.model.entity import (
    ApplicationGroup,
    CaptureDescription,
    CaptureDestination,
    CleanupPolicy,
    DefaultAction,
    KeyKind,
    LogSettings,
    NetworkRuleSet,
    Rights,
    Status,
    ThrottlingMetric,
    ThrottlingPolicy,
    VirtualNetworkRule,
)
from hubmere.model.errors import (
    Conflict,
    InvalidArgument,
    LimitReached,
    NotInTier,
    PartitionCountFixed,
)
from hubmere.model.names import application_group_name, group_name, hub_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import Tier
from model.builders import NOW_MS, a_hub, a_hub_and_group, a_namespace, a_rule, limits


def test_new_namespace_has_a_root_rule_with_three_rights_and_two_keys() -> None:
    """Conformance: Model 1."""
    rule = spec.root_rule(a_namespace(), now_ms=NOW_MS)

    assert rule.name == "RootManageSharedAccessKey"
    assert rule.rights is Rights.ALL
    assert rule.primary_key != rule.secondary_key
    assert {len(rule.primary_key), len(rule.secondary_key)} == {44}
    assert len(base64.b64decode(rule.primary_key)) == 32


def test_thirteenth_rule_is_refused() -> None:
    """Conformance: Model 2."""
    hub = a_hub()
    twelve = [a_rule(hub, f"rule{number}") for number in range(12)]

    with pytest.raises(LimitReached) as refusal:
        spec.new_rule(hub, rule_name("one-more"), Rights.SEND, limits(), existing=twelve, now_ms=NOW_MS)

    assert refusal.value.limit == 12


def test_new_hub_without_settings_has_the_defaults_of_the_service() -> None:
    """Conformance: Model 4."""
    hub, group = a_hub_and_group()

    assert hub.partition_ids == ("0", "1", "2", "3")
    assert (hub.retention.hours, hub.retention.policy) == (168, CleanupPolicy.DELETE)
    assert hub.status is Status.ACTIVE
    assert (group.name, group.hub_uid) == ("$Default", hub.uid)


def test_two_hubs_of_one_name_have_different_ids() -> None:
    """A hub that is created again must not use the old one's logs, nor Kafka clients the old topic."""
    first, second = a_hub(), a_hub()

    assert first.uid != second.uid
    assert first.topic_id != second.topic_id


def test_default_group_cannot_be_deleted() -> None:
    """Conformance: Model 5."""
    hub, group = a_hub_and_group()

    with pytest.raises(Conflict):
        spec.check_group_deletable(group)

    spec.check_group_deletable(spec.new_group(hub, group_name("cg1"), limits(), existing=[group], now_ms=NOW_MS))


def test_partition_count_of_a_standard_hub_is_fixed() -> None:
    """Conformance: Model 6, for Standard."""
    namespace = a_namespace()
    hub = a_hub(namespace=namespace)

    with pytest.raises(PartitionCountFixed):
        spec.apply_hub_spec(namespace, hub, HubSpec(partition_count=8), limits(), existing=[hub], now_ms=NOW_MS)


def test_partition_count_of_a_premium_hub_grows_and_never_shrinks() -> None:
    """Conformance: Model 6, for Premium; the id of the hub stays, so stored events stay in their partitions."""
    namespace = a_namespace(tier=Tier.PREMIUM)
    hub = a_hub(namespace=namespace)
    premium = limits(Tier.PREMIUM)

    grown = spec.apply_hub_spec(namespace, hub, HubSpec(partition_count=8), premium, existing=[hub], now_ms=NOW_MS + 1)

    assert (grown.partition_count, grown.uid, grown.updated_ms) == (8, hub.uid, NOW_MS + 1)
    with pytest.raises(PartitionCountFixed):
        spec.apply_hub_spec(namespace, grown, HubSpec(partition_count=4), premium, existing=[grown], now_ms=NOW_MS)


def test_update_replaces_settings_but_keeps_partitions_and_policy() -> None:
    """Omitted properties get their defaults; partition count and cleanup policy cannot be omitted."""
    namespace = a_namespace()
    wish = HubSpec(partition_count=2, retention_hours=5, user_metadata="x", cleanup_policy=CleanupPolicy.DELETE)
    hub = a_hub(namespace=namespace, spec=wish)

    changed = spec.apply_hub_spec(
        namespace, hub, HubSpec(status=Status.DISABLED), limits(), existing=[hub], now_ms=NOW_MS
    )

    assert (changed.partition_count, changed.retention.hours, changed.user_metadata) == (2, 168, "")
    assert changed.status is Status.DISABLED


def test_spec_of_a_hub_gives_the_same_hub() -> None:
    """A spec made by `of` changes one property and keeps the others."""
    namespace = a_namespace()
    capture = CaptureDescription(enabled=True, interval_s=60)
    hub = a_hub(namespace=namespace, spec=HubSpec(retention_hours=5, user_metadata="x", capture=capture))

    wish = replace(HubSpec.of(hub), status=Status.SEND_DISABLED)
    changed = spec.apply_hub_spec(namespace, hub, wish, limits(), existing=[hub], now_ms=NOW_MS)

    assert changed == replace(hub, status=Status.SEND_DISABLED)


def test_spec_of_a_namespace_gives_the_same_namespace() -> None:
    """The same for namespaces."""
    wish = NamespaceSpec(capacity=2, auto_inflate=True, maximum_throughput_units=4, tags={"a": "b"})
    namespace = a_namespace(spec=wish)

    assert spec.apply_namespace_spec(namespace, NamespaceSpec.of(namespace), limits(), now_ms=NOW_MS) == namespace


REFUSED_HUBS: list[tuple[Tier, HubSpec, type[Exception]]] = [
    (Tier.STANDARD, HubSpec(partition_count=0), InvalidArgument),
    (Tier.STANDARD, HubSpec(partition_count=33), InvalidArgument),
    (Tier.PREMIUM, HubSpec(partition_count=101), InvalidArgument),
    (Tier.STANDARD, HubSpec(retention_hours=0), InvalidArgument),
    (Tier.STANDARD, HubSpec(retention_hours=169), InvalidArgument),
    (Tier.BASIC, HubSpec(retention_hours=25), InvalidArgument),
    (Tier.BASIC, HubSpec(cleanup_policy=CleanupPolicy.COMPACT), NotInTier),
    (Tier.STANDARD, HubSpec(cleanup_policy=CleanupPolicy.COMPACT, retention_hours=5), InvalidArgument),
    (Tier.STANDARD, HubSpec(tombstone_hours=-1), InvalidArgument),
    (Tier.STANDARD, HubSpec(min_compaction_lag_minutes=-1), InvalidArgument),
    (Tier.STANDARD, HubSpec(status=Status.DELETING), InvalidArgument),
    (Tier.STANDARD, HubSpec(user_metadata="x" * 1025), InvalidArgument),
    (Tier.BASIC, HubSpec(capture=CaptureDescription(enabled=True)), NotInTier),
    (Tier.STANDARD, HubSpec(capture=CaptureDescription(enabled=True, interval_s=59)), InvalidArgument),
    (Tier.STANDARD, HubSpec(capture=CaptureDescription(enabled=True, interval_s=901)), InvalidArgument),
    (Tier.STANDARD, HubSpec(capture=CaptureDescription(enabled=True, size_limit_bytes=10_485_759)), InvalidArgument),
    (Tier.STANDARD, HubSpec(capture=CaptureDescription(enabled=True, size_limit_bytes=524_288_001)), InvalidArgument),
    (
        Tier.STANDARD,
        HubSpec(capture=CaptureDescription(enabled=True, destination=CaptureDestination(name="Tape"))),
        InvalidArgument,
    ),
]


@pytest.mark.parametrize(("tier", "wish", "refusal"), REFUSED_HUBS)
def test_hub_outside_the_limits_is_refused(tier: Tier, wish: HubSpec, refusal: type[Exception]) -> None:
    """The ranges are those of the reference and of the tier."""
    namespace = a_namespace(tier=tier)

    with pytest.raises(refusal):
        a_hub(namespace=namespace, spec=wish)


def test_archive_name_format_needs_all_nine_tokens() -> None:
    """Conformance: Capture 55; the refusal says which one is missing."""
    short = CaptureDestination(
        archive_name_format="{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}"
    )
    wish = HubSpec(capture=CaptureDescription(enabled=True, destination=short))

    with pytest.raises(InvalidArgument) as refusal:
        a_hub(spec=wish)

    assert refusal.value.allowed == "it lacks {Second}"


def test_disabled_capture_is_stored_unchecked() -> None:
    """The portal stores an incomplete description; it is checked when Capture is enabled."""
    off = CaptureDescription(enabled=False, interval_s=1)

    assert a_hub(spec=HubSpec(capture=off)).capture == off


def test_compacted_hub_keeps_events_for_ever_and_cannot_change_its_policy() -> None:
    """Compaction can only be chosen when the hub is created."""
    namespace = a_namespace()
    hub = a_hub(namespace=namespace, spec=HubSpec(cleanup_policy=CleanupPolicy.COMPACT))

    assert (hub.retention.hours, hub.retention.days) == (None, -1)
    wish = HubSpec(cleanup_policy=CleanupPolicy.DELETE)
    with pytest.raises(InvalidArgument):
        spec.apply_hub_spec(namespace, hub, wish, limits(), existing=[hub], now_ms=NOW_MS)


def test_basic_hub_keeps_events_for_one_day_by_default() -> None:
    """The default must not be above the tier's maximum."""
    assert a_hub(namespace=a_namespace(tier=Tier.BASIC)).retention.hours == 24


def test_eleventh_hub_of_a_standard_namespace_is_refused() -> None:
    """A namespace has ten hubs, and a setting can change that."""
    namespace = a_namespace()
    ten = [a_hub(f"eh{number}", namespace=namespace) for number in range(10)]
    one_more = (namespace, hub_name("one-more"), HubSpec())

    with pytest.raises(LimitReached):
        spec.new_hub(*one_more, limits(), existing=ten, now_ms=NOW_MS)

    hub, _ = spec.new_hub(*one_more, limits(hubs_per_namespace="unlimited"), existing=ten, now_ms=NOW_MS)
    assert hub.name == "one-more"


def test_partitions_of_all_premium_hubs_are_counted_together() -> None:
    """200 per processing unit."""
    namespace = a_namespace(tier=Tier.PREMIUM)
    full = [a_hub(f"eh{n}", namespace=namespace, spec=HubSpec(partition_count=100)) for n in range(2)]
    premium = limits(Tier.PREMIUM)

    with pytest.raises(LimitReached) as refusal:
        spec.new_hub(namespace, hub_name("third"), HubSpec(partition_count=1), premium, existing=full, now_ms=NOW_MS)

    assert refusal.value.limit == 200


def test_twenty_first_group_is_refused_and_default_counts() -> None:
    """Twenty consumer groups per hub; on Basic `$Default` is the only one."""
    hub, group = a_hub_and_group()

    with pytest.raises(LimitReached):
        spec.new_group(hub, group_name("x"), limits(), existing=[group] * 20, now_ms=NOW_MS)
    with pytest.raises(LimitReached):
        spec.new_group(hub, group_name("x"), limits(Tier.BASIC), existing=[group], now_ms=NOW_MS)


def test_group_metadata_is_replaced_and_limited() -> None:
    """1024 characters."""
    _, group = a_hub_and_group()

    assert spec.with_user_metadata(group, user_metadata="m", now_ms=NOW_MS).user_metadata == "m"
    with pytest.raises(InvalidArgument):
        spec.with_user_metadata(group, user_metadata="m" * 1025, now_ms=NOW_MS)


@pytest.mark.parametrize("which", list(KeyKind))
def test_regenerating_one_key_keeps_the_other(which: KeyKind) -> None:
    """Both keys are valid at once, so that one can be rotated while the other is in use."""
    rule = a_rule(a_namespace())

    changed = spec.with_new_key(rule, which, now_ms=NOW_MS + 1)

    is_primary = which is KeyKind.PRIMARY
    assert (changed.primary_key != rule.primary_key) is is_primary
    assert (changed.secondary_key != rule.secondary_key) is not is_primary


def test_key_can_be_chosen_within_a_length() -> None:
    """`regenerateKeys` accepts a key; the refusal does not repeat it."""
    rule = a_rule(a_namespace())

    assert spec.with_new_key(rule, KeyKind.PRIMARY, now_ms=NOW_MS, key="mine").primary_key == "mine"
    with pytest.raises(InvalidArgument) as refusal:
        spec.with_new_key(rule, KeyKind.PRIMARY, now_ms=NOW_MS, key="k" * 257)
    assert "kkk" not in refusal.value.text()


def test_rule_with_other_rights_keeps_its_keys() -> None:
    """Changing rights must not break clients that use a key."""
    rule = a_rule(a_hub(), rights=Rights.SEND)

    changed = spec.with_rights(rule, Rights.LISTEN, now_ms=NOW_MS)

    assert (changed.rights, changed.primary_key) == (Rights.LISTEN, rule.primary_key)


REFUSED_NAMESPACES: list[tuple[Tier, NamespaceSpec, type[Exception]]] = [
    (Tier.STANDARD, NamespaceSpec(capacity=0), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(capacity=41), InvalidArgument),
    (Tier.PREMIUM, NamespaceSpec(capacity=3), InvalidArgument),
    (Tier.BASIC, NamespaceSpec(auto_inflate=True, maximum_throughput_units=4), NotInTier),
    (Tier.STANDARD, NamespaceSpec(auto_inflate=True, maximum_throughput_units=41), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(auto_inflate=True, capacity=4, maximum_throughput_units=2), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(maximum_throughput_units=4), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(minimum_tls_version="0.9"), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(status=Status.CREATING), InvalidArgument),
    (Tier.STANDARD, NamespaceSpec(tags={str(n): "" for n in range(51)}), InvalidArgument),
    (Tier.BASIC, NamespaceSpec(kafka_enabled=True), NotInTier),
]


@pytest.mark.parametrize(("tier", "wish", "refusal"), REFUSED_NAMESPACES)
def test_namespace_outside_the_limits_is_refused(tier: Tier, wish: NamespaceSpec, refusal: type[Exception]) -> None:
    """The ranges are those of the reference and of the tier."""
    with pytest.raises(refusal):
        a_namespace(tier=tier, spec=wish)


def test_tier_of_a_namespace_cannot_change() -> None:
    """Standard to Premium needs a new namespace, as in the service."""
    namespace = a_namespace()

    with pytest.raises(InvalidArgument):
        spec.apply_namespace_spec(namespace, NamespaceSpec(tier=Tier.PREMIUM), limits(), now_ms=NOW_MS)


def test_number_of_network_rules_is_limited() -> None:
    """There may be 128 masks, each an address or a block."""
    namespace = a_namespace()
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8", "::1", "10.1.2.3/16"))

    assert spec.with_network_rules(namespace, rules, limits(), now_ms=NOW_MS).network == rules
    with pytest.raises(InvalidArgument):
        spec.with_network_rules(namespace, NetworkRuleSet(ip_masks=("10.0.0.256",)), limits(), now_ms=NOW_MS)
    with pytest.raises(LimitReached):
        spec.with_network_rules(namespace, NetworkRuleSet(ip_masks=("::1",) * 129), limits(), now_ms=NOW_MS)
    subnets = (VirtualNetworkRule(subnet_id="s"),) * 129
    with pytest.raises(LimitReached):
        spec.with_network_rules(namespace, NetworkRuleSet(virtual_networks=subnets), limits(), now_ms=NOW_MS)
    with pytest.raises(NotInTier):
        spec.with_network_rules(a_namespace(tier=Tier.BASIC), rules, limits(Tier.BASIC), now_ms=NOW_MS)


def test_application_group_needs_a_tier_an_identity_and_at_most_four_policies() -> None:
    """The tier is Premium or higher."""
    policy = ThrottlingPolicy(name="p", metric=ThrottlingMetric.INCOMING_MESSAGES, rate_per_s=10)
    group = ApplicationGroup(
        namespace=a_namespace().name,
        name=application_group_name("app"),
        client_id="SASKeyName=send",
        policies=(policy,) * 4,
    )
    premium = limits(Tier.PREMIUM)

    assert spec.check_application_group(group, premium, tier=Tier.PREMIUM) is group
    with pytest.raises(NotInTier):
        spec.check_application_group(group, limits(), tier=Tier.STANDARD)
    with pytest.raises(InvalidArgument):
        spec.check_application_group(replace(group, client_id="send"), premium, tier=Tier.PREMIUM)
    with pytest.raises(LimitReached):
        spec.check_application_group(replace(group, policies=(policy,) * 5), premium, tier=Tier.PREMIUM)
    with pytest.raises(InvalidArgument):
        spec.check_application_group(
            replace(group, policies=(replace(policy, rate_per_s=0),)), premium, tier=Tier.PREMIUM
        )


def test_log_settings_are_kept_when_another_api_replaces_a_hub() -> None:
    """Only Kafka can express them."""
    namespace, own = a_namespace(), LogSettings(segment_ms=60_000)
    hub = replace(a_hub(), log_settings=own)

    changed = spec.apply_hub_spec(namespace, hub, HubSpec(), limits(), existing=[hub], now_ms=NOW_MS)

    assert changed.log_settings == own


def test_log_settings_above_a_lowered_limit_do_not_prevent_other_changes() -> None:
    """A node may be started with lower limits than those at the creation of a hub."""
    namespace, own = a_namespace(), LogSettings(max_message_bytes=10 * limits().publication_bytes)
    hub = replace(a_hub(), log_settings=own)

    changed = spec.apply_hub_spec(
        namespace, hub, replace(HubSpec.of(hub), retention_hours=2), limits(), existing=[hub], now_ms=NOW_MS
    )

    assert (changed.retention.hours, changed.log_settings) == (2, own)


@pytest.mark.parametrize(
    "wanted",
    [
        LogSettings(max_message_bytes=2**40),
        LogSettings(retention_bytes=-5),
        LogSettings(segment_bytes=1),
        LogSettings(segment_ms=1),
        LogSettings(max_compaction_lag_ms=1),
    ],
)
def test_log_settings_out_of_range_are_refused(wanted: LogSettings) -> None:
    """The refusal names the range."""
    with pytest.raises(InvalidArgument, match=r"between|at least"):
        spec.new_hub(
            a_namespace(), hub_name("fresh"), HubSpec(log_settings=wanted), limits(), existing=[], now_ms=NOW_MS
        )
