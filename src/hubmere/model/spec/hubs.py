"""Event hubs: from a spec to an entity, within the limits of the tier. Reference: service 1, 6, 8."""

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from hubmere.model.capture.targets import is_path_inside
from hubmere.model.entity import (
    DEFAULT_PARTITION_COUNT,
    CaptureDescription,
    CaptureEncoding,
    CaptureStart,
    CleanupPolicy,
    ConsumerGroup,
    Hub,
    LogSettings,
    Namespace,
    Retention,
    Status,
    TimestampType,
)
from hubmere.model.errors import InvalidArgument, LimitReached, NotInTier, PartitionCountFixed
from hubmere.model.names import DEFAULT_GROUP, HubName
from hubmere.model.spec.checks import check_limit, check_metadata, check_range, check_status
from hubmere.model.tier import Limits, Tier

# The range of the node's own setting: Kafka accepts no smaller segments (KIP-1030), and file positions have 31 bits.
SEGMENT_BYTES = range(1024 * 1024, 2**31)
# Each segment is a few files: rolling more often would create too many.
LEAST_SEGMENT_MS = 1000
CAPTURE_INTERVAL_S = range(60, 901)
CAPTURE_SIZE_BYTES = range(10_485_760, 524_288_001)
CAPTURE_DESTINATIONS = ("EventHubArchive.AzureBlockBlob", "EventHubArchive.AzureDataLake")
# Encodings that keep everything of an event, so that a reader gets the same event again.
COLD_ENCODINGS = (CaptureEncoding.AVRO, CaptureEncoding.AVRO_DEFLATE)
CAPTURE_TOKENS = (
    "{Namespace}", "{EventHub}", "{PartitionId}", "{Year}", "{Month}", "{Day}", "{Hour}", "{Minute}", "{Second}",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSpec:
    """The requested settings of a hub; hours take precedence over days if an API has both (reference: service 8).

    `log_settings` that are not given do not change: only Kafka clients can set them, and a hub that is replaced through
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
        """The spec of a hub as it is."""
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
    """A hub with its `$Default` group; `existing` are the other hubs of the namespace."""
    per_hubs = "hubs_per_namespace" if limits.hubs_per_unit is None else "hubs_per_unit"
    check_limit("event hubs in the namespace", len(existing), limits.hubs(namespace.capacity), per_hubs)
    count = DEFAULT_PARTITION_COUNT if spec.partition_count is None else spec.partition_count
    most = limits.partitions_per_hub
    least = limits.least_partitions_per_hub
    check_range("partition count", count, least, most, "partitions_per_hub", "least_partitions_per_hub")
    _check_all_partitions(namespace, sum(hub.partition_count for hub in existing) + count, limits)
    hub = Hub(
        namespace=namespace.name,
        name=name,
        uid=uuid.uuid4().hex,
        topic_id=str(uuid.uuid4()),
        partition_count=count,
        retention=_check_retention(spec, spec.cleanup_policy or CleanupPolicy.DELETE, limits, namespace.tier),
        log_settings=_check_log_settings(spec.log_settings or LogSettings(), limits),
        status=check_status(spec.status),
        timestamp_type=spec.timestamp_type,
        user_metadata=check_metadata(spec.user_metadata),
        capture=_check_capture(spec.capture, spec.cleanup_policy, limits, namespace.tier),
        created_ms=now_ms,
        updated_ms=now_ms,
    )
    return hub, ConsumerGroup(hub_uid=hub.uid, name=DEFAULT_GROUP, created_ms=now_ms, updated_ms=now_ms)


def apply_hub_spec(
    namespace: Namespace, hub: Hub, spec: HubSpec, limits: Limits, *, existing: Collection[Hub], now_ms: int
) -> Hub:
    """A hub with its settings replaced; a partition count or cleanup policy that is not given does not change."""
    if spec.cleanup_policy not in (None, hub.retention.policy):
        raise InvalidArgument("cleanup policy", spec.cleanup_policy, f"it cannot change; it is {hub.retention.policy}")
    count = _check_growth(hub, spec.partition_count, limits)
    others = sum(other.partition_count for other in existing if other.uid != hub.uid)
    if count != hub.partition_count:
        _check_all_partitions(namespace, others + count, limits)
    return replace(
        hub,
        partition_count=count,
        retention=_check_retention(spec, hub.retention.policy, limits, namespace.tier),
        log_settings=_update_log_settings(hub.log_settings, spec.log_settings, limits),
        status=check_status(spec.status),
        timestamp_type=spec.timestamp_type,
        user_metadata=check_metadata(spec.user_metadata),
        capture=_check_capture(spec.capture, hub.retention.policy, limits, namespace.tier),
        updated_ms=now_ms,
    )


def _check_growth(hub: Hub, wanted: int | None, limits: Limits) -> int:
    if wanted is None or wanted == hub.partition_count:
        return hub.partition_count
    if not limits.partitions_may_grow:
        raise PartitionCountFixed(
            "partition count",
            wanted,
            f"it is fixed at {hub.partition_count} in this tier; the setting limits.partitions_may_grow changes it",
        )
    if wanted < hub.partition_count:
        raise PartitionCountFixed("partition count", wanted, f"it can only grow from {hub.partition_count}")
    most = limits.partitions_per_hub
    return check_range("partition count", wanted, hub.partition_count, most, "partitions_per_hub")


def _check_all_partitions(namespace: Namespace, total: int, limits: Limits) -> None:
    limit = limits.partitions(namespace.capacity)
    if limit is not None and total > limit:
        raise LimitReached("partitions in the namespace", limit, "partitions_per_unit")


def _check_retention(spec: HubSpec, policy: CleanupPolicy, limits: Limits, tier: Tier) -> Retention:
    if policy is not CleanupPolicy.DELETE and not limits.has_compaction:
        raise NotInTier("Compaction", tier, "has_compaction")
    defaults = Retention()
    tombstone_hours = defaults.tombstone_hours if spec.tombstone_hours is None else spec.tombstone_hours
    return Retention(
        hours=_check_hours(spec.retention_hours, policy, limits),
        policy=policy,
        tombstone_hours=check_range("tombstone retention in hours", tombstone_hours, 0, None),
        min_compaction_lag_minutes=check_range(
            "minimum compaction lag in minutes", spec.min_compaction_lag_minutes or 0, 0, None
        ),
    )


def _update_log_settings(present: LogSettings, wanted: LogSettings | None, limits: Limits) -> LogSettings:
    """Unchanged settings are not checked again: after limits were lowered, the others can still be changed."""
    return present if wanted in (None, present) else _check_log_settings(wanted, limits)


def _check_log_settings(wanted: LogSettings, limits: Limits) -> LogSettings:
    largest = wanted.max_message_bytes
    if largest is not None:
        check_range("largest message in bytes", largest, 0, limits.publication_bytes, "publication_bytes")
    for name, value, lowest, highest in (
        ("retention in bytes", wanted.retention_bytes, 0, None),
        ("segment size in bytes", wanted.segment_bytes, SEGMENT_BYTES.start, SEGMENT_BYTES[-1]),
        ("segment age in milliseconds", wanted.segment_ms, LEAST_SEGMENT_MS, None),
        ("maximum compaction lag in milliseconds", wanted.max_compaction_lag_ms, LEAST_SEGMENT_MS, None),
    ):
        if value is not None:
            check_range(name, value, lowest, highest)
    return wanted


def _check_hours(hours: int | None, policy: CleanupPolicy, limits: Limits) -> int | None:
    if policy is CleanupPolicy.COMPACT:
        # Compaction without deletion never deletes by age: only -1 or "not given" make sense.
        if hours not in (None, -1):
            raise InvalidArgument("retention in hours", hours, "-1 (for ever) with the cleanup policy Compact")
        return None
    wanted = limits.default_retention_hours if hours is None else hours
    return check_range("retention in hours", wanted, 1, limits.retention_hours, "retention_hours")


def _check_capture(
    capture: CaptureDescription | None, policy: CleanupPolicy | None, limits: Limits, tier: Tier
) -> CaptureDescription | None:
    if capture is None or not (capture.enabled or capture.cold_reads):
        return capture
    if not limits.has_capture:
        raise NotInTier("Capture", tier, "has_capture")
    _check_cold_reads(capture, policy)
    check_range("capture interval in seconds", capture.interval_s, CAPTURE_INTERVAL_S.start, CAPTURE_INTERVAL_S[-1])
    check_range("capture size in bytes", capture.size_limit_bytes, CAPTURE_SIZE_BYTES.start, CAPTURE_SIZE_BYTES[-1])
    destination = capture.destination
    if destination.name not in CAPTURE_DESTINATIONS:
        raise InvalidArgument("capture destination", destination.name, f"one of {', '.join(CAPTURE_DESTINATIONS)}")
    missing = [token for token in CAPTURE_TOKENS if token not in destination.archive_name_format]
    if missing:
        raise InvalidArgument("archive name format", destination.archive_name_format, f"it lacks {', '.join(missing)}")
    if not is_path_inside(destination.archive_name_format):
        raise InvalidArgument("archive name format", destination.archive_name_format, "names below the destination")
    return capture


def _check_cold_reads(capture: CaptureDescription, policy: CleanupPolicy | None) -> None:
    if not capture.cold_reads:
        return
    if policy not in (None, CleanupPolicy.DELETE):
        raise InvalidArgument(
            "setting of cold_reads", "true", f"false with the cleanup policy {policy}: files keep what it has deleted"
        )
    if capture.encoding not in COLD_ENCODINGS:
        raise InvalidArgument(
            "capture encoding",
            capture.encoding,
            "Avro or AvroDeflate with cold_reads: the others keep properties as texts, without their types",
        )


def with_capture_start(hub: Hub, before: Hub | None, ends: Callable[[], Sequence[int]], *, now_ms: int) -> Hub:
    """A changed hub with its capture start: now if capture was just enabled, else unchanged.

    `ends` returns the end of each partition's log; it is called only if needed.
    """
    if not hub.is_captured:
        return replace(hub, capture_start=None)
    if before is not None and before.is_captured:
        return replace(hub, capture_start=before.capture_start)
    since = () if before is None else tuple(ends())
    return replace(hub, capture_start=CaptureStart(id=uuid.uuid4().hex, since=since, started_ms=now_ms))
