"""From a wish to an entity: defaults, ranges and tier limits of everything that can be created or changed.

Pure functions: a wish, what is already there and the tier's limits go in; a new value comes out, or a refusal that says
what is allowed. In a spec None means "not given": the default on creation and on replacement. To change one property
and keep the others, start from `HubSpec.of(hub)` or `NamespaceSpec.of(namespace)`. Reference: service 1, 4.2, 6, 8.
"""

import base64
import ipaddress
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hubmere.model.capture import is_path_inside
from hubmere.model.entity import (
    DEFAULT_PARTITION_COUNT,
    AccessRule,
    ApplicationGroup,
    CaptureDescription,
    CaptureStart,
    CleanupPolicy,
    ConsumerGroup,
    Hub,
    KeyKind,
    LogSettings,
    Namespace,
    NetworkRuleSet,
    PublicNetworkAccess,
    Retention,
    Rights,
    Status,
    ThrottlingMetric,
    TimestampType,
)
from hubmere.model.errors import Conflict, InvalidArgument, LimitReached, NotInTier, PartitionCountFixed
from hubmere.model.names import DEFAULT_GROUP, ROOT_RULE, GroupName, HubName, NamespaceName, RuleName, fold
from hubmere.model.tier import Limits, Tier

KEY_BYTES = 32
# Long enough for the service's 44-character keys and for passphrases people bring; a bound on what HMAC is keyed with.
KEY_CHARACTERS = 256
USER_METADATA_CHARACTERS = 1024
TLS_VERSIONS = ("1.0", "1.1", "1.2", "1.3")
# As ARM bounds tags of any resource.
MAX_TAGS = 50

# As the node's own setting: Kafka takes no smaller ones either (KIP-1030), and positions in a file have 31 bits.
SEGMENT_BYTES = range(1024 * 1024, 2**31)
# Each segment is a few files: one that is rolled more often would fill a folder with them.
LEAST_SEGMENT_MS = 1000

CAPTURE_INTERVAL_S = range(60, 901)
CAPTURE_SIZE_BYTES = range(10_485_760, 524_288_001)
CAPTURE_DESTINATIONS = ("EventHubArchive.AzureBlockBlob", "EventHubArchive.AzureDataLake")
CAPTURE_TOKENS = (
    "{Namespace}", "{EventHub}", "{PartitionId}", "{Year}", "{Month}", "{Day}", "{Hour}", "{Minute}", "{Second}",
)  # fmt: skip


def random_key() -> str:
    """A fresh rule key: base64 of 32 random bytes, 44 characters."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def check_room(what: str, existing: int, limit: int | None) -> None:
    """Refuse one more when the limit is reached."""
    if limit is not None and existing >= limit:
        raise LimitReached(what, limit)


def _check_range(name: str, value: int, lowest: int, highest: int | None) -> int:
    if value >= lowest and (highest is None or value <= highest):
        return value
    allowed = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
    raise InvalidArgument(name, value, allowed)


def _check_status(status: Status) -> Status:
    if not status.is_settable:
        raise InvalidArgument("status", status.value, "Active, Disabled, SendDisabled or ReceiveDisabled")
    return status


def _check_metadata(text: str) -> str:
    if len(text) > USER_METADATA_CHARACTERS:
        raise InvalidArgument("user metadata", text, f"at most {USER_METADATA_CHARACTERS} characters")
    return text


# --- namespaces ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSpec:
    """What is wished of a namespace."""

    tier: Tier | None = None
    capacity: int | None = None
    auto_inflate: bool = False
    maximum_throughput_units: int | None = None
    minimum_throughput_units: int = 0
    status: Status = Status.ACTIVE
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    location: str = "local"
    subscription: str = ""
    resource_group: str = ""
    disable_local_auth: bool = False
    minimum_tls_version: str = "1.2"
    public_network_access: PublicNetworkAccess = PublicNetworkAccess.ENABLED
    kafka_enabled: bool | None = None
    zone_redundant: bool = False

    @classmethod
    def of(cls, namespace: Namespace) -> "NamespaceSpec":
        """The wish that a namespace as it is would fulfil."""
        return cls(**{name: getattr(namespace, name) for name in cls.__dataclass_fields__})


def new_namespace(name: NamespaceName, spec: NamespaceSpec, limits: Limits, *, tier: Tier, now_ms: int) -> Namespace:
    """A namespace of a tier; the caller has taken `limits` for that tier (the wished one, else the node's own)."""
    blank = Namespace(name=name, tier=tier, created_ms=now_ms, updated_ms=now_ms)
    return _fulfilled(blank, spec, limits)


def changed_namespace(namespace: Namespace, spec: NamespaceSpec, limits: Limits, *, now_ms: int) -> Namespace:
    """A namespace after its settings were replaced; the tier stays what it was."""
    if spec.tier not in (None, namespace.tier):
        raise InvalidArgument("tier", spec.tier, f"a namespace stays what it was created as, {namespace.tier}")
    return replace(_fulfilled(namespace, spec, limits), updated_ms=now_ms)


def _fulfilled(namespace: Namespace, spec: NamespaceSpec, limits: Limits) -> Namespace:
    capacity = _checked_capacity(1 if spec.capacity is None else spec.capacity, limits)
    if spec.minimum_tls_version not in TLS_VERSIONS:
        raise InvalidArgument("minimum TLS version", spec.minimum_tls_version, f"one of {', '.join(TLS_VERSIONS)}")
    if len(spec.tags) > MAX_TAGS:
        raise InvalidArgument("number of tags", len(spec.tags), f"at most {MAX_TAGS}")
    if spec.kafka_enabled and not limits.has_kafka:
        raise NotInTier("Kafka", namespace.tier)
    return replace(
        namespace,
        capacity=capacity,
        auto_inflate=spec.auto_inflate,
        maximum_throughput_units=_checked_maximum_units(spec, capacity, limits, namespace.tier),
        minimum_throughput_units=_checked_minimum_units(spec, capacity),
        status=_check_status(spec.status),
        tags=MappingProxyType(dict(spec.tags)),
        location=spec.location,
        subscription=spec.subscription,
        resource_group=spec.resource_group,
        disable_local_auth=spec.disable_local_auth,
        minimum_tls_version=spec.minimum_tls_version,
        public_network_access=spec.public_network_access,
        kafka_enabled=limits.has_kafka if spec.kafka_enabled is None else spec.kafka_enabled,
        zone_redundant=spec.zone_redundant,
    )


def _checked_capacity(capacity: int, limits: Limits) -> int:
    if limits.unit_steps and capacity not in limits.unit_steps:
        raise InvalidArgument("capacity", capacity, f"one of {', '.join(map(str, limits.unit_steps))}")
    return _check_range("capacity", capacity, 1, limits.units)


def _checked_maximum_units(spec: NamespaceSpec, capacity: int, limits: Limits, tier: Tier) -> int:
    maximum = spec.maximum_throughput_units or 0
    if not spec.auto_inflate:
        if maximum:
            raise InvalidArgument("maximum of throughput units", maximum, "0 while auto-inflate is off")
        return 0
    if not limits.has_auto_inflate:
        raise NotInTier("Auto-inflate", tier)
    return _check_range("maximum of throughput units", maximum, capacity, limits.units)


def _checked_minimum_units(spec: NamespaceSpec, capacity: int) -> int:
    minimum = spec.minimum_throughput_units
    if minimum and not spec.auto_inflate:
        raise InvalidArgument("minimum of throughput units", minimum, "0 while auto-inflate is off")
    return _check_range("minimum of throughput units", minimum, 0, capacity)


def changed_network(namespace: Namespace, rules: NetworkRuleSet, limits: Limits, *, now_ms: int) -> Namespace:
    """A namespace after its network rules were replaced."""
    has_rules = bool(rules.ip_masks or rules.virtual_networks)
    if has_rules and not limits.has_network_rules:
        raise NotInTier("The IP firewall", namespace.tier)
    _check_count("IP rules", len(rules.ip_masks), limits.ip_rules)
    _check_count("virtual network rules", len(rules.virtual_networks), limits.network_rules)
    for mask in rules.ip_masks:
        _check_mask(mask)
    return replace(namespace, network=rules, updated_ms=now_ms)


def _check_count(what: str, count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise LimitReached(what, limit)


def _check_mask(mask: str) -> None:
    try:
        ipaddress.ip_network(mask, strict=False)
    except ValueError:
        raise InvalidArgument("IP mask", mask, "an address or a CIDR block such as 10.1.0.0/16") from None


# --- hubs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSpec:
    """What is wished of a hub; hours win over days where an API has both (reference: service 8).

    `log_settings` that are not given stay as they were: only Kafka has words for them, and a hub that is replaced by
    another API must not lose them.
    """

    partition_count: int | None = None
    retention_hours: int | None = None
    cleanup_policy: CleanupPolicy | None = None
    tombstone_hours: int | None = None
    min_compaction_lag_minutes: int | None = None
    log_settings: LogSettings | None = None
    status: Status = Status.ACTIVE
    timestamp_type: TimestampType = TimestampType.LOG_APPEND
    user_metadata: str = ""
    capture: CaptureDescription | None = None

    @classmethod
    def of(cls, hub: Hub) -> "HubSpec":
        """The wish that a hub as it is would fulfil."""
        return cls(
            partition_count=hub.partition_count,
            retention_hours=hub.retention.hours,
            cleanup_policy=hub.retention.policy,
            tombstone_hours=hub.retention.tombstone_hours,
            min_compaction_lag_minutes=hub.retention.min_compaction_lag_minutes,
            log_settings=hub.log_settings,
            status=hub.status,
            timestamp_type=hub.timestamp_type,
            user_metadata=hub.user_metadata,
            capture=hub.capture,
        )


def new_hub(
    namespace: Namespace, name: HubName, spec: HubSpec, limits: Limits, *, existing: Collection[Hub], now_ms: int
) -> tuple[Hub, ConsumerGroup]:
    """A hub with its `$Default` group; `existing` are the hubs that the namespace has already."""
    check_room("event hubs in the namespace", len(existing), limits.hubs(namespace.capacity))
    count = DEFAULT_PARTITION_COUNT if spec.partition_count is None else spec.partition_count
    _check_range("partition count", count, limits.least_partitions_per_hub, limits.partitions_per_hub)
    _check_all_partitions(namespace, sum(hub.partition_count for hub in existing) + count, limits)
    hub = Hub(
        namespace=namespace.name,
        name=name,
        uid=uuid.uuid4().hex,
        topic_id=str(uuid.uuid4()),
        partition_count=count,
        retention=_checked_retention(spec, spec.cleanup_policy or CleanupPolicy.DELETE, limits, namespace.tier),
        log_settings=_checked_log_settings(spec.log_settings or LogSettings(), limits),
        status=_check_status(spec.status),
        timestamp_type=spec.timestamp_type,
        user_metadata=_check_metadata(spec.user_metadata),
        capture=_checked_capture(spec.capture, limits, namespace.tier),
        created_ms=now_ms,
        updated_ms=now_ms,
    )
    return hub, ConsumerGroup(hub_uid=hub.uid, name=DEFAULT_GROUP, created_ms=now_ms, updated_ms=now_ms)


def changed_hub(
    namespace: Namespace, hub: Hub, spec: HubSpec, limits: Limits, *, existing: Collection[Hub], now_ms: int
) -> Hub:
    """A hub after its settings were replaced; a partition count or cleanup policy that was not given stays."""
    if spec.cleanup_policy not in (None, hub.retention.policy):
        raise InvalidArgument("cleanup policy", spec.cleanup_policy, f"it stays {hub.retention.policy} once created")
    count = _grown(hub, spec.partition_count, limits)
    others = sum(other.partition_count for other in existing if other.uid != hub.uid)
    if count != hub.partition_count:
        _check_all_partitions(namespace, others + count, limits)
    return replace(
        hub,
        partition_count=count,
        retention=_checked_retention(spec, hub.retention.policy, limits, namespace.tier),
        log_settings=_changed_log_settings(hub.log_settings, spec.log_settings, limits),
        status=_check_status(spec.status),
        timestamp_type=spec.timestamp_type,
        user_metadata=_check_metadata(spec.user_metadata),
        capture=_checked_capture(spec.capture, limits, namespace.tier),
        updated_ms=now_ms,
    )


def _grown(hub: Hub, wanted: int | None, limits: Limits) -> int:
    if wanted is None or wanted == hub.partition_count:
        return hub.partition_count
    if not limits.partitions_may_grow:
        raise PartitionCountFixed("partition count", wanted, f"it stays {hub.partition_count} in this tier")
    if wanted < hub.partition_count:
        raise PartitionCountFixed("partition count", wanted, f"it can only grow from {hub.partition_count}")
    return _check_range("partition count", wanted, hub.partition_count, limits.partitions_per_hub)


def _check_all_partitions(namespace: Namespace, total: int, limits: Limits) -> None:
    limit = limits.partitions(namespace.capacity)
    if limit is not None and total > limit:
        raise LimitReached("partitions in the namespace", limit)


def _checked_retention(spec: HubSpec, policy: CleanupPolicy, limits: Limits, tier: Tier) -> Retention:
    if policy is not CleanupPolicy.DELETE and not limits.has_compaction:
        raise NotInTier("Compaction", tier)
    defaults = Retention()
    tombstone_hours = defaults.tombstone_hours if spec.tombstone_hours is None else spec.tombstone_hours
    return Retention(
        hours=_checked_hours(spec.retention_hours, policy, limits),
        policy=policy,
        tombstone_hours=_check_range("tombstone retention in hours", tombstone_hours, 0, None),
        min_compaction_lag_minutes=_check_range(
            "minimum compaction lag in minutes", spec.min_compaction_lag_minutes or 0, 0, None
        ),
    )


def _changed_log_settings(present: LogSettings, wanted: LogSettings | None, limits: Limits) -> LogSettings:
    """Settings that stay are not checked again: a node with lower limits than before can still change the others."""
    return present if wanted in (None, present) else _checked_log_settings(wanted, limits)


def _checked_log_settings(wanted: LogSettings, limits: Limits) -> LogSettings:
    for name, value, lowest, highest in (
        ("largest message in bytes", wanted.max_message_bytes, 0, limits.publication_bytes),
        ("retention in bytes", wanted.retention_bytes, 0, None),
        ("segment size in bytes", wanted.segment_bytes, SEGMENT_BYTES.start, SEGMENT_BYTES[-1]),
        ("segment age in milliseconds", wanted.segment_ms, LEAST_SEGMENT_MS, None),
        ("maximum compaction lag in milliseconds", wanted.max_compaction_lag_ms, LEAST_SEGMENT_MS, None),
    ):
        if value is not None:
            _check_range(name, value, lowest, highest)
    return wanted


def _checked_hours(hours: int | None, policy: CleanupPolicy, limits: Limits) -> int | None:
    if policy is CleanupPolicy.COMPACT:
        # Compaction alone never lets go by age: -1 and "not given" say the same, a number would be untrue.
        if hours not in (None, -1):
            raise InvalidArgument("retention in hours", hours, "-1 (for ever) with the cleanup policy Compact")
        return None
    wanted = limits.default_retention_hours if hours is None else hours
    return _check_range("retention in hours", wanted, 1, limits.retention_hours)


def _checked_capture(capture: CaptureDescription | None, limits: Limits, tier: Tier) -> CaptureDescription | None:
    if capture is None or not capture.enabled:
        return capture
    if not limits.has_capture:
        raise NotInTier("Capture", tier)
    _check_range("capture interval in seconds", capture.interval_s, CAPTURE_INTERVAL_S.start, CAPTURE_INTERVAL_S[-1])
    _check_range("capture size in bytes", capture.size_limit_bytes, CAPTURE_SIZE_BYTES.start, CAPTURE_SIZE_BYTES[-1])
    destination = capture.destination
    if destination.name not in CAPTURE_DESTINATIONS:
        raise InvalidArgument("capture destination", destination.name, f"one of {', '.join(CAPTURE_DESTINATIONS)}")
    missing = [token for token in CAPTURE_TOKENS if token not in destination.archive_name_format]
    if missing:
        raise InvalidArgument("archive name format", destination.archive_name_format, f"it lacks {', '.join(missing)}")
    if not is_path_inside(destination.archive_name_format):
        raise InvalidArgument("archive name format", destination.archive_name_format, "names below the destination")
    return capture


def with_capture_start(hub: Hub, before: Hub | None, ends: Callable[[], Sequence[int]], *, now_ms: int) -> Hub:
    """A changed hub with the moment from which it is captured: now if that was just switched on, else as it was.

    `ends` gives the end of each partition's log; it is asked only when it counts.
    """
    if not hub.is_captured:
        return replace(hub, capture_start=None)
    if before is not None and before.is_captured:
        return replace(hub, capture_start=before.capture_start)
    since = () if before is None else tuple(ends())
    return replace(hub, capture_start=CaptureStart(id=uuid.uuid4().hex, since=since, started_ms=now_ms))


# --- groups, rules, application groups -------------------------------------------------------------------------------


def new_group(
    hub: Hub,
    name: GroupName,
    limits: Limits,
    *,
    existing: Collection[ConsumerGroup],
    now_ms: int,
    user_metadata: str = "",
) -> ConsumerGroup:
    """A consumer group; `existing` are all groups that the hub has, with `$Default`, which counts."""
    check_room("consumer groups of the event hub", len(existing), limits.groups_per_hub)
    return ConsumerGroup(
        hub_uid=hub.uid,
        name=name,
        user_metadata=_check_metadata(user_metadata),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def changed_group(group: ConsumerGroup, *, user_metadata: str, now_ms: int) -> ConsumerGroup:
    """A group after its metadata was replaced."""
    return replace(group, user_metadata=_check_metadata(user_metadata), updated_ms=now_ms)


def check_group_deletable(group: ConsumerGroup) -> None:
    """Refuse to delete the group that every hub has."""
    if fold(group.name) == fold(DEFAULT_GROUP):
        raise Conflict("The consumer group '$Default' is part of every event hub and cannot be deleted.")


def root_rule(namespace: Namespace, *, now_ms: int) -> AccessRule:
    """The rule that a namespace is born with: every right, two random keys."""
    return AccessRule(
        namespace=namespace.name,
        name=ROOT_RULE,
        rights=Rights.ALL,
        primary_key=random_key(),
        secondary_key=random_key(),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def new_rule(
    scope: Namespace | Hub,
    name: RuleName,
    rights: Rights,
    limits: Limits,
    *,
    existing: Collection[AccessRule],
    now_ms: int,
    primary_key: str | None = None,
    secondary_key: str | None = None,
) -> AccessRule:
    """A rule on a namespace or hub; `rights` come from `Rights.parse`, keys that are not given are random."""
    check_room("authorization rules", len(existing), limits.rules_per_entity)
    hub = scope if isinstance(scope, Hub) else None
    return AccessRule(
        namespace=scope.namespace if isinstance(scope, Hub) else scope.name,
        hub=None if hub is None else hub.name,
        hub_uid=None if hub is None else hub.uid,
        name=name,
        rights=rights,
        primary_key=_checked_key(primary_key),
        secondary_key=_checked_key(secondary_key),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def changed_rule(rule: AccessRule, rights: Rights, *, now_ms: int) -> AccessRule:
    """A rule with other rights and the same keys."""
    return replace(rule, rights=rights, updated_ms=now_ms)


def with_new_key(rule: AccessRule, which: KeyKind, *, now_ms: int, key: str | None = None) -> AccessRule:
    """A rule after one key was regenerated or set; tokens of the old key stop working for new uses."""
    fresh = _checked_key(key)
    if which is KeyKind.PRIMARY:
        return replace(rule, primary_key=fresh, updated_ms=now_ms)
    return replace(rule, secondary_key=fresh, updated_ms=now_ms)


def _checked_key(key: str | None) -> str:
    if key is None:
        return random_key()
    if not 1 <= len(key) <= KEY_CHARACTERS:
        raise InvalidArgument("key", "(hidden)", f"1 to {KEY_CHARACTERS} characters")
    return key


# A rule of the namespace, of a hub, the first in its older form, or an application of Entra, which never signs in here.
_CLIENT_KINDS = ("NamespaceSASKeyName", "EntitySASKeyName", "SASKeyName", "AADAppID")
# The service's smallest rate of bytes is 1 KB; of messages it is 1.
_LEAST_BYTE_RATE = 1000


def checked_application_group(group: ApplicationGroup, limits: Limits, *, tier: Tier) -> ApplicationGroup:
    """An application group within the tier's limits."""
    if not limits.has_application_groups:
        raise NotInTier("Application groups", tier)
    kind, is_given, name = group.client_id.partition("=")
    if not is_given or not name or fold(kind) not in map(fold, _CLIENT_KINDS):
        allowed = ", ".join(f"{kind}={{name}}" for kind in _CLIENT_KINDS)
        raise InvalidArgument("client identifier", group.client_id, f"one of {allowed}")
    _check_count("throttling policies", len(group.policies), limits.policies_per_application_group)
    for policy in group.policies:
        is_bytes = policy.metric in (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.OUTGOING_BYTES)
        _check_range("rate limit", policy.rate_per_s, _LEAST_BYTE_RATE if is_bytes else 1, None)
    return group
