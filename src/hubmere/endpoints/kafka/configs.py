"""Topic and broker configuration: which entries of Kafka's are settings of a hub, which are shown, which are ignored.

One table of entries: how an entry is read from a hub, and how it changes what is wished of one. Entries of Kafka that
mean nothing here are taken without effect, since tools copy whole configurations; unknown ones are refused. Values are
told in Kafka's terms: milliseconds, lower-case policies (reference: kafka 1.7 and 2.14).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hubmere.model.entity import CleanupPolicy, Hub, TimestampType
from hubmere.model.errors import InvalidArgument
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Limits
from hubmere.wire.kafka.messages.configs import ConfigOperation, ConfigSource, ConfigType

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
# "For ever" where the tier knows no longest retention but deletes all the same: longer than any disk lasts.
_LONGEST_HOURS: Final = 100 * 365 * 24
_FOREVER: Final = -1

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

Read = Callable[[Hub, Limits], str]
Change = Callable[[HubSpec, str, Limits], HubSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One configuration entry: `change` is None where it is shown but cannot be chosen."""

    name: str
    kind: ConfigType
    read: Read
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An entry with its value in force."""

    name: str
    value: str
    kind: ConfigType
    source: ConfigSource
    is_read_only: bool


# --- from Kafka's words to ours --------------------------------------------------------------------------------------


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"value of {name}", text, "a whole number") from None


def _units(name: str, text: str, unit_ms: int) -> int:
    """Milliseconds in whole larger units, rounded up: nothing goes before its time."""
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


def _retention_ms(hub: Hub, _: Limits) -> str:
    hours = hub.retention.hours
    return str(_FOREVER if hours is None or hours >= _LONGEST_HOURS else hours * _HOUR_MS)


def _constant(value: object) -> Read:
    return lambda _hub, _limits: str(value)


# --- the table -------------------------------------------------------------------------------------------------------

_LONG, _INT, _TEXT, _LIST = ConfigType.LONG, ConfigType.INT, ConfigType.STRING, ConfigType.LIST
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
        Entry(name="max.message.bytes", kind=_INT, read=lambda _, limits: str(limits.publication_bytes)),
        Entry(name="message.timestamp.after.max.ms", kind=_LONG, read=_constant(_HOUR_MS)),
        Entry(name="message.timestamp.before.max.ms", kind=_LONG, read=_constant(_MAX_LONG)),
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
        Entry(name="retention.bytes", kind=_LONG, read=_constant(-1)),
        Entry(name="retention.ms", kind=_LONG, read=_retention_ms, change=_change_retention),
        Entry(name="segment.bytes", kind=_INT, read=_constant(1 << 30)),
        Entry(name="segment.ms", kind=_LONG, read=_constant(7 * 24 * _HOUR_MS)),
    )
}

# Entries of Kafka's that are neither shown nor have a meaning here, and are no mistake either.
IGNORED: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "min.cleanable.dirty.ratio",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)


def changed(spec: HubSpec, name: str, value: str | None, limits: Limits) -> HubSpec:
    """A wish with one entry set; null sets it back to its default."""
    entry = TOPIC_ENTRIES.get(name)
    if entry is None and name not in IGNORED:
        raise InvalidArgument("topic configuration entry", name, "one of those that DescribeConfigs shows")
    if entry is None or entry.change is None:
        return spec
    return reset(spec, name) if value is None else entry.change(spec, value, limits)


def reset(spec: HubSpec, name: str) -> HubSpec:
    """A wish with one entry back at its default."""
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


def wish(spec: HubSpec, entries: Iterable[tuple[str, str | None]], limits: Limits) -> HubSpec:
    """A wish with all entries set."""
    for name, value in entries:
        spec = changed(spec, name, value, limits)
    return settled(spec)


def settled(spec: HubSpec) -> HubSpec:
    """Compaction alone never lets go by age, whatever retention.ms says; Kafka ignores it there too."""
    is_kept = spec.cleanup_policy is CleanupPolicy.COMPACT
    return replace(spec, retention_hours=None) if is_kept else spec


def operated(hub: Hub, name: str, operation: int, value: str | None, limits: Limits) -> str | None:
    """The value that an incremental operation leads to; None for the default (KIP-339)."""
    if operation == ConfigOperation.DELETE:
        return None
    if operation == ConfigOperation.SET:
        return value
    entry = TOPIC_ENTRIES.get(name)
    if entry is None or entry.kind is not ConfigType.LIST or operation not in tuple(ConfigOperation):
        raise InvalidArgument("operation on a configuration entry", name, "append and subtract need a list")
    current = entry.read(hub, limits).split(",")
    given = (value or "").split(",")
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*current, *given]))
    return ",".join(part for part in current if part not in given)


# --- what is in force ------------------------------------------------------------------------------------------------


def topic_configs(hub: Hub, limits: Limits, names: Iterable[str] | None) -> list[Shown]:
    """The entries of a hub; no names, or none at all, ask for every one."""
    blank = Hub(namespace=hub.namespace, name=hub.name, uid=hub.uid, topic_id=hub.topic_id)
    wanted = frozenset(names or ())
    shown = []
    for entry in TOPIC_ENTRIES.values():
        if wanted and entry.name not in wanted:
            continue
        value = entry.read(hub, limits)
        is_default = value == entry.read(blank, limits)
        shown.append(
            Shown(
                name=entry.name,
                value=value,
                kind=entry.kind,
                source=ConfigSource.DEFAULT if is_default else ConfigSource.TOPIC,
                is_read_only=entry.change is None,
            )
        )
    return shown


def broker_configs(
    limits: Limits, *, auto_create: bool, partition_count: int, names: Iterable[str] | None
) -> list[Shown]:
    """The entries of the node that tools look for."""
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
        Shown(name=name, value=value, kind=kind, source=ConfigSource.STATIC_BROKER, is_read_only=True)
        for name, value, kind in values
        if not wanted or name in wanted
    ]
