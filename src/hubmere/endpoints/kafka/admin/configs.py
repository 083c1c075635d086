"""Topic and broker configuration: which of Kafka's entries are settings of a hub, and which have a fixed value.

One table of entries says how an entry is read from a hub, and how it changes the spec of one. An accepted entry is in
effect and is described. An entry that cannot be chosen here (a codec, tiered storage) is accepted only with the value
that it has anyway. A few entries concern things that no client can notice here (files, replicas, old formats); tools
copy whole configurations, so these are accepted without effect. Unknown entries are refused. Values are in Kafka's
units and spelling (reference: kafka 1.7 and 2.14).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hubmere.broker import segment_lifetime_ms
from hubmere.model.entity import CleanupPolicy, Hub, LogSettings, TimestampType
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import HubName, NamespaceName
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Limits
from hubmere.wire.kafka.messages.configs import ConfigOperation, ConfigSource, ConfigType

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
# "For ever" for a tier without a maximum of retention: longer than any disk lasts.
_LONGEST_HOURS: Final = 100 * 365 * 24
_FOREVER: Final = -1
# MirrorMaker creates topics with every default of its source: a value that is Kafka's default means the default here.
_KAFKA_MAX_MESSAGE_BYTES: Final = 1_048_588
_OLD_DEFAULTS: Final[Mapping[str, str]] = {"message.timestamp.after.max.ms": str(2**63 - 1)}

_POLICIES: Final[Mapping[frozenset[str], CleanupPolicy]] = {
    frozenset({"delete"}): CleanupPolicy.DELETE,
    frozenset({"compact"}): CleanupPolicy.COMPACT,
    frozenset({"compact", "delete"}): CleanupPolicy.DELETE_OR_COMPACT,
}
_POLICY_TEXTS: Final[Mapping[CleanupPolicy, str]] = {
    CleanupPolicy.DELETE: "delete",
    CleanupPolicy.COMPACT: "compact",
    CleanupPolicy.DELETE_OR_COMPACT: "compact,delete",
}
_TIMESTAMP_TYPES: Final[Mapping[str, TimestampType]] = {
    "CreateTime": TimestampType.CREATE,
    "LogAppendTime": TimestampType.LOG_APPEND,
}
_TIMESTAMP_TEXTS: Final = {kind: text for text, kind in _TIMESTAMP_TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of a hub: the limits of the tier, and the segment size of the node."""

    limits: Limits
    segment_bytes: int


Read = Callable[[Hub, Defaults], str]
Change = Callable[[HubSpec, str, Limits], HubSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration entry: `change` is None where the value is fixed, and any other is refused."""

    name: str
    kind: ConfigType
    read: Read
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """An entry with its current value."""

    name: str
    value: str
    kind: ConfigType
    source: ConfigSource
    is_read_only: bool


# --- from Kafka's entries to specs -----------------------------------------------------------------------------------


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"value of {name}", text, "a whole number") from None


def _units(name: str, text: str, unit_ms: int) -> int:
    """Milliseconds in whole larger units, rounded up, so that nothing is deleted too early."""
    value_ms = _number(name, text)
    if value_ms < 0:
        raise InvalidArgument(f"value of {name}", text, "0 or more")
    return -(-value_ms // unit_ms)


def _change_policy(spec: HubSpec, text: str, _: Limits) -> HubSpec:
    policy = _POLICIES.get(frozenset(part.strip() for part in text.split(",") if part.strip()))
    if policy is None:
        raise InvalidArgument("value of cleanup.policy", text, "delete, compact, or both")
    return replace(spec, cleanup_policy=policy)


def _change_retention(spec: HubSpec, text: str, limits: Limits) -> HubSpec:
    if _number("retention.ms", text) == _FOREVER:
        return replace(spec, retention_hours=limits.retention_hours or _LONGEST_HOURS)
    return replace(spec, retention_hours=max(_units("retention.ms", text, _HOUR_MS), 1))


def _change_tombstones(spec: HubSpec, text: str, _: Limits) -> HubSpec:
    return replace(spec, tombstone_hours=_units("delete.retention.ms", text, _HOUR_MS))


def _change_lag(spec: HubSpec, text: str, _: Limits) -> HubSpec:
    return replace(spec, min_compaction_lag_minutes=_units("min.compaction.lag.ms", text, _MINUTE_MS))


def _change_timestamps(spec: HubSpec, text: str, _: Limits) -> HubSpec:
    if text not in _TIMESTAMP_TYPES:
        raise InvalidArgument("value of message.timestamp.type", text, " or ".join(_TIMESTAMP_TYPES))
    return replace(spec, timestamp_type=_TIMESTAMP_TYPES[text])


def _setting(name: str, field: str, *, unset: int | None = None) -> Change:
    """A change of a setting that only Kafka has; the value `unset` removes it."""

    def change(spec: HubSpec, text: str, _: Limits) -> HubSpec:
        number = _number(name, text)
        return _with_setting(spec, field, None if number == unset else number)

    return change


def _change_max_message(spec: HubSpec, text: str, limits: Limits) -> HubSpec:
    """Kafka's own default is 12 bytes above 1 MiB; in a tier with a lower limit it means the tier's limit."""
    number = _number("max.message.bytes", text)
    is_default = number == _KAFKA_MAX_MESSAGE_BYTES > limits.publication_bytes
    return _with_setting(spec, "max_message_bytes", None if is_default else number)


def _with_setting(spec: HubSpec, field: str, value: int | None) -> HubSpec:
    return replace(spec, log_settings=replace(spec.log_settings or LogSettings(), **{field: value}))


def _or(value: int | None, otherwise: int) -> str:
    return str(otherwise if value is None else value)


def _max_message_bytes(hub: Hub, defaults: Defaults) -> str:
    limit, own = defaults.limits.publication_bytes, hub.log_settings.max_message_bytes
    return str(limit if own is None else min(own, limit))


def _segment_ms(hub: Hub, _: Defaults) -> str:
    """The segment lifetime without the compaction lag, which limits it but is an entry of its own."""
    settings = replace(hub.log_settings, max_compaction_lag_ms=None)
    return str(segment_lifetime_ms(hub.retention, settings))


def _retention_ms(hub: Hub, _: Defaults) -> str:
    hours = hub.retention.hours
    return str(_FOREVER if hours is None or hours >= _LONGEST_HOURS else hours * _HOUR_MS)


def _constant(value: object) -> Read:
    return lambda _hub, _defaults: str(value)


# --- the table -------------------------------------------------------------------------------------------------------

_LONG, _INT, _TEXT, _LIST = ConfigType.LONG, ConfigType.INT, ConfigType.STRING, ConfigType.LIST
_FLAG = ConfigType.BOOLEAN
_MAX_LONG: Final = 2**63 - 1

TOPIC_ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry
    for entry in (
        Entry(
            name="cleanup.policy",
            kind=_LIST,
            read=lambda hub, _: _POLICY_TEXTS[hub.retention.policy],
            change=_change_policy,
        ),
        Entry(name="compression.type", kind=_TEXT, read=_constant("producer")),
        Entry(
            name="delete.retention.ms",
            kind=_LONG,
            read=lambda hub, _: str(hub.retention.tombstone_hours * _HOUR_MS),
            change=_change_tombstones,
        ),
        # -2: as the whole retention, since there is no remote storage.
        Entry(name="local.retention.bytes", kind=_LONG, read=_constant(-2)),
        Entry(name="local.retention.ms", kind=_LONG, read=_constant(-2)),
        Entry(
            name="max.compaction.lag.ms",
            kind=_LONG,
            read=lambda hub, _: _or(hub.log_settings.max_compaction_lag_ms, _MAX_LONG),
            change=_setting("max.compaction.lag.ms", "max_compaction_lag_ms", unset=_MAX_LONG),
        ),
        Entry(
            name="max.message.bytes",
            kind=_INT,
            read=_max_message_bytes,
            change=_change_max_message,
        ),
        Entry(name="message.timestamp.after.max.ms", kind=_LONG, read=_constant(_HOUR_MS)),
        Entry(name="message.timestamp.before.max.ms", kind=_LONG, read=_constant(_MAX_LONG)),
        Entry(name="message.timestamp.difference.max.ms", kind=_LONG, read=_constant(_MAX_LONG)),
        Entry(
            name="message.timestamp.type",
            kind=_TEXT,
            read=lambda hub, _: _TIMESTAMP_TEXTS[hub.timestamp_type],
            change=_change_timestamps,
        ),
        Entry(
            name="min.compaction.lag.ms",
            kind=_LONG,
            read=lambda hub, _: str(hub.retention.min_compaction_lag_minutes * _MINUTE_MS),
            change=_change_lag,
        ),
        Entry(name="min.insync.replicas", kind=_INT, read=_constant(1)),
        Entry(name="remote.log.copy.disable", kind=_FLAG, read=_constant("false")),
        Entry(name="remote.log.delete.on.disable", kind=_FLAG, read=_constant("false")),
        Entry(name="remote.storage.enable", kind=_FLAG, read=_constant("false")),
        Entry(
            name="retention.bytes",
            kind=_LONG,
            read=lambda hub, _: _or(hub.log_settings.retention_bytes, _FOREVER),
            change=_setting("retention.bytes", "retention_bytes", unset=_FOREVER),
        ),
        Entry(name="retention.ms", kind=_LONG, read=_retention_ms, change=_change_retention),
        Entry(
            name="segment.bytes",
            kind=_INT,
            read=lambda hub, defaults: _or(hub.log_settings.segment_bytes, defaults.segment_bytes),
            change=_setting("segment.bytes", "segment_bytes"),
        ),
        Entry(name="segment.ms", kind=_LONG, read=_segment_ms, change=_setting("segment.ms", "segment_ms")),
    )
}

# Kafka's entries without effect here, whatever their value, with the reason.
INERT: Final[Mapping[str, str]] = {
    "compression.gzip.level": "batches keep the codec of their producer",
    "compression.lz4.level": "batches keep the codec of their producer",
    "compression.zstd.level": "batches keep the codec of their producer",
    "file.delete.delay.ms": "files are deleted once nobody reads them",
    "flush.messages": "everything is flushed before it is acknowledged",
    "flush.ms": "everything is flushed before it is acknowledged",
    "follower.replication.throttled.replicas": "there are no followers",
    "index.interval.bytes": "the layout of an index is the node's own",
    "leader.replication.throttled.replicas": "there are no followers",
    "message.downconversion.enable": "formats before version 2 are not served",
    "message.format.version": "every batch has format version 2",
    "min.cleanable.dirty.ratio": "a sealed segment is compacted at once, which is within any ratio",
    "preallocate": "the layout of a file is the node's own",
    "segment.index.bytes": "the layout of an index is the node's own",
    "segment.jitter.ms": "segments of one hub are not rolled together",
    "unclean.leader.election.enable": "there is one replica",
}


def apply_entry(spec: HubSpec, name: str, value: str | None, limits: Limits) -> HubSpec:
    """The spec with one entry set; null sets the default."""
    entry = TOPIC_ENTRIES.get(name)
    if entry is None:
        if name not in INERT:
            raise InvalidArgument("topic configuration entry", name, "one of those that DescribeConfigs shows")
        return spec
    if value is None:
        return reset_entry(spec, name)
    if entry.change is None:
        _require_fixed(entry, value, limits)
        return spec
    return entry.change(spec, value, limits)


def _require_fixed(entry: Entry, value: str, limits: Limits) -> None:
    """Refuse any value of a fixed entry but its own."""
    fixed = entry.read(_BLANK, Defaults(limits=limits, segment_bytes=0))
    is_number = entry.kind in (_INT, _LONG)
    is_same = str(_number(entry.name, value)) == fixed if is_number else value.strip().lower() == fixed
    if not is_same and value != _OLD_DEFAULTS.get(entry.name):
        raise InvalidArgument(f"value of {entry.name}", value, f"{fixed}, which is fixed here")


_BLANK: Final = Hub(namespace=NamespaceName(""), name=HubName(""), uid="", topic_id="")


def reset_entry(spec: HubSpec, name: str) -> HubSpec:
    """The spec with one entry set to its default."""
    if name in _SETTINGS:
        return _with_setting(spec, _SETTINGS[name], None)
    blank = HubSpec()
    fields = _FIELDS.get(name, ())
    return replace(spec, **{field: getattr(blank, field) for field in fields})


_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("cleanup_policy",),
    "delete.retention.ms": ("tombstone_hours",),
    "message.timestamp.type": ("timestamp_type",),
    "min.compaction.lag.ms": ("min_compaction_lag_minutes",),
    "retention.ms": ("retention_hours",),
}
_SETTINGS: Final[Mapping[str, str]] = {
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "max.message.bytes": "max_message_bytes",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
}


def apply_entries(spec: HubSpec, entries: Iterable[tuple[str, str | None]], limits: Limits) -> HubSpec:
    """The spec with all entries set."""
    for name, value in entries:
        spec = apply_entry(spec, name, value, limits)
    return normalize_spec(spec)


def normalize_spec(spec: HubSpec) -> HubSpec:
    """Drop the retention time if the policy is compaction only: Kafka ignores retention.ms there too."""
    is_kept = spec.cleanup_policy is CleanupPolicy.COMPACT
    return replace(spec, retention_hours=None) if is_kept else spec


def apply_operation(hub: Hub, name: str, operation: int, value: str | None, defaults: Defaults) -> str | None:
    """The value after an incremental operation; None for the default (KIP-339)."""
    if operation == ConfigOperation.DELETE:
        return None
    if operation == ConfigOperation.SET:
        return value
    entry = TOPIC_ENTRIES.get(name)
    if entry is None or entry.kind is not ConfigType.LIST or operation not in tuple(ConfigOperation):
        raise InvalidArgument("operation on a configuration entry", name, "append and subtract need a list")
    current = entry.read(hub, defaults).split(",")
    given = (value or "").split(",")
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*current, *given]))
    return ",".join(part for part in current if part not in given)


# --- current values --------------------------------------------------------------------------------------------------


def topic_configs(hub: Hub, defaults: Defaults, names: Iterable[str] | None) -> list[ConfigValue]:
    """The entries of a hub with these names; all of them if there are no names."""
    wanted = frozenset(names or ())
    values = []
    for entry in TOPIC_ENTRIES.values():
        if wanted and entry.name not in wanted:
            continue
        value = entry.read(hub, defaults)
        is_default = value == entry.read(_BLANK, defaults) if entry.name not in _SETTINGS else not _is_set(hub, entry)
        values.append(
            ConfigValue(
                name=entry.name,
                value=value,
                kind=entry.kind,
                source=ConfigSource.DEFAULT if is_default else ConfigSource.TOPIC,
                is_read_only=entry.change is None,
            )
        )
    return values


def _is_set(hub: Hub, entry: Entry) -> bool:
    return getattr(hub.log_settings, _SETTINGS[entry.name]) is not None


def broker_configs(
    limits: Limits, *, auto_create: bool, partition_count: int, names: Iterable[str] | None
) -> list[ConfigValue]:
    """The entries of the node that tools ask for."""
    values = (
        ("auto.create.topics.enable", str(auto_create).lower(), ConfigType.BOOLEAN),
        ("default.replication.factor", "1", _INT),
        ("inter.broker.protocol.version", "3.9", _TEXT),
        ("log.retention.ms", str(limits.default_retention_hours * _HOUR_MS), _LONG),
        ("message.max.bytes", str(limits.publication_bytes), _INT),
        ("num.partitions", str(partition_count), _INT),
    )
    wanted = frozenset(names or ())
    return [
        ConfigValue(name=name, value=value, kind=kind, source=ConfigSource.STATIC_BROKER, is_read_only=True)
        for name, value, kind in values
        if not wanted or name in wanted
    ]
