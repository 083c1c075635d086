"""The limits of each tier as a table, and which table a node applies.

Numbers are those of the service's quotas page; None means no limit. Every number can be overridden by its field's name.
Without a setting a node has the profile `open`: the limits that an application's messages must respect in the service
(size of a publication, readers of a partition, the features of the tier), but no quotas on the number of entities, on
retention or on throughput. `developer` has the quotas of the tier as well, and only throttles nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from hubmere.model.errors import InvalidArgument

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

HOURS_PER_DAY = 24


class Tier(StrEnum):
    """The tier of a namespace (ARM: sku)."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"
    DEDICATED = "Dedicated"


class Profile(StrEnum):
    """Which limits a node applies (setting `as`)."""

    OPEN = "open"
    DEVELOPER = "developer"
    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"
    DEDICATED = "dedicated"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one tier. Numbers with `_per_unit` are multiplied by the namespace's capacity."""

    # One publication: an event or a batch, with its properties and framing.
    publication_bytes: int = 1 * MIB
    namespaces: int | None = 1000
    hubs_per_namespace: int | None = 10
    hubs_per_unit: int | None = None
    least_partitions_per_hub: int = 1
    partitions_per_hub: int | None = 32
    partitions_per_unit: int | None = None
    partitions_may_grow: bool = False
    groups_per_hub: int | None = 20
    kafka_groups_per_namespace: int | None = 1000
    connections: int | None = 5000
    connections_per_unit: int | None = None
    rules_per_entity: int | None = 12
    readers_per_partition: int | None = 5
    runtime_information_per_second: int | None = 50
    ip_rules: int | None = 128
    network_rules: int | None = 128
    policies_per_application_group: int | None = 4

    retention_hours: int | None = 7 * HOURS_PER_DAY
    default_retention_hours: int = 7 * HOURS_PER_DAY
    storage_bytes_per_unit: int | None = 84 * GIB
    compacted_bytes_per_partition: int | None = 1 * GIB

    units: int | None = 40
    # The allowed capacities; empty: any number.
    unit_steps: tuple[int, ...] = ()
    ingress_bytes_per_unit: int | None = 1 * MIB
    ingress_events_per_unit: int | None = 1000
    egress_bytes_per_unit: int | None = 2 * MIB
    egress_events_per_unit: int | None = 4096
    offset_commits_per_second: int | None = 4

    has_auto_inflate: bool = False
    has_capture: bool = True
    has_kafka: bool = True
    has_compaction: bool = True
    has_geo_recovery: bool = True
    has_network_rules: bool = True
    has_application_groups: bool = False
    # Whether Kafka clients may delete records before an offset; in the service, only retention deletes events.
    has_record_deletion: bool = False

    def hubs(self, capacity: int) -> int | None:
        """How many hubs a namespace of that capacity may have."""
        return _by_capacity(self.hubs_per_namespace, self.hubs_per_unit, capacity)

    def partitions(self, capacity: int) -> int | None:
        """How many partitions all hubs of a namespace may have together."""
        return _by_capacity(None, self.partitions_per_unit, capacity)

    def all_connections(self, capacity: int) -> int | None:
        """How many connections a namespace of that capacity may hold."""
        return _by_capacity(self.connections, self.connections_per_unit, capacity)


# Numbers of the service's price list that a node shows but does not enforce: the service charges for more storage
# instead of refusing it, and here the disk is the limit.
STATED_ONLY = frozenset({"storage_bytes_per_unit", "compacted_bytes_per_partition", "kafka_groups_per_namespace"})


def _by_capacity(fixed: int | None, per_unit: int | None, capacity: int) -> int | None:
    return fixed if per_unit is None else per_unit * capacity


# The features page: "between 2 and 32".
_STANDARD = Limits(has_auto_inflate=True, least_partitions_per_hub=2)

_UNTHROTTLED: Mapping[str, Any] = dict.fromkeys(
    (
        "runtime_information_per_second",
        "ingress_bytes_per_unit",
        "ingress_events_per_unit",
        "egress_bytes_per_unit",
        "egress_events_per_unit",
        "offset_commits_per_second",
    )
)

# Quotas of the service's price list, which have no use on a self-hosted node.
_UNCOUNTED: Mapping[str, Any] = dict.fromkeys(
    (
        "namespaces",
        "hubs_per_namespace",
        "hubs_per_unit",
        "partitions_per_unit",
        "groups_per_hub",
        "connections",
        "connections_per_unit",
        "rules_per_entity",
        "retention_hours",
    )
)

# Premium's units are a guide (5 to 10 MB/s in, 10 to 20 MB/s out each), not a throttle.
_PREMIUM = replace(
    _STANDARD,
    **_UNTHROTTLED,
    hubs_per_unit=100,
    least_partitions_per_hub=1,
    partitions_per_hub=100,
    partitions_per_unit=200,
    partitions_may_grow=True,
    groups_per_hub=100,
    connections_per_unit=10_000,
    retention_hours=90 * HOURS_PER_DAY,
    storage_bytes_per_unit=1 * TIB,
    compacted_bytes_per_partition=250 * GIB,
    units=16,
    unit_steps=(1, 2, 4, 6, 8, 10, 12, 16),
    has_auto_inflate=False,
    has_application_groups=True,
    has_record_deletion=True,
)

TIERS: Mapping[Tier, Limits] = {
    Tier.BASIC: replace(
        _STANDARD,
        publication_bytes=256 * KIB,
        groups_per_hub=1,
        connections=100,
        retention_hours=1 * HOURS_PER_DAY,
        default_retention_hours=1 * HOURS_PER_DAY,
        has_auto_inflate=False,
        has_capture=False,
        has_kafka=False,
        has_compaction=False,
        has_geo_recovery=False,
        has_network_rules=False,
    ),
    Tier.STANDARD: _STANDARD,
    Tier.PREMIUM: _PREMIUM,
    Tier.DEDICATED: replace(
        _PREMIUM,
        hubs_per_namespace=1000,
        hubs_per_unit=None,
        partitions_per_hub=1024,
        partitions_per_unit=2000,
        groups_per_hub=1000,
        connections_per_unit=100_000,
        storage_bytes_per_unit=10 * TIB,
        units=20,
        unit_steps=(),
    ),
}

# Even without a limit a publication must fit in a record batch (int32 length) and in memory several times over,
_UNLIMITED_PUBLICATION_BYTES = 100 * MIB
# and every partition is a directory, a writer and an entry in each metadata answer.
_UNLIMITED_PARTITIONS = 10_000

_NO_NUMBERS: Mapping[str, Any] = {f.name: None for f in fields(Limits) if f.type == int | None}

UNLIMITED = replace(
    _STANDARD,
    **{**_NO_NUMBERS, "partitions_per_hub": _UNLIMITED_PARTITIONS},
    publication_bytes=_UNLIMITED_PUBLICATION_BYTES,
    least_partitions_per_hub=1,
    partitions_may_grow=True,
    has_application_groups=True,
    has_record_deletion=True,
)

# The tier of a new namespace if none is given; nodes without limits report Standard.
PROFILE_TIERS: Mapping[Profile, Tier] = {
    Profile.OPEN: Tier.STANDARD,
    Profile.DEVELOPER: Tier.STANDARD,
    Profile.BASIC: Tier.BASIC,
    Profile.STANDARD: Tier.STANDARD,
    Profile.PREMIUM: Tier.PREMIUM,
    Profile.DEDICATED: Tier.DEDICATED,
    Profile.UNLIMITED: Tier.STANDARD,
}

UNLIMITED_WORD = "unlimited"

Override = int | bool | str | None


def limits_for(
    profile: Profile = Profile.DEVELOPER, tier: Tier | None = None, overrides: Mapping[str, Override] | None = None
) -> Limits:
    """The limits of a namespace of a tier on a node of a profile, with single numbers replaced by name."""
    base = UNLIMITED if profile is Profile.UNLIMITED else TIERS[tier or PROFILE_TIERS[profile]]
    if profile in (Profile.OPEN, Profile.DEVELOPER):
        base = replace(base, **_UNTHROTTLED, least_partitions_per_hub=1, has_record_deletion=True)
    if profile is Profile.OPEN:
        base = replace(base, **_UNCOUNTED, partitions_per_hub=_UNLIMITED_PARTITIONS, partitions_may_grow=True)
    return _overridden(base, overrides or {})


def _overridden(base: Limits, overrides: Mapping[str, Override]) -> Limits:
    kinds = {f.name: f.type for f in fields(Limits)}
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in kinds or name == "unit_steps":
            known = ", ".join(sorted(kinds.keys() - {"unit_steps"}))
            raise InvalidArgument("limit", name, f"one of {known}")
        changes[name] = _flag(name, value) if kinds[name] is bool else _number(name, value, kinds[name] is int)
    return replace(base, **changes)


def _flag(name: str, value: Override) -> bool:
    flags = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    wanted = flags.get(str(value).lower())
    if wanted is None:
        raise InvalidArgument(f"value of the limit {name}", value, "true or false")
    return wanted


def _number(name: str, value: Override, is_required: bool) -> int | None:
    if not is_required and (value is None or str(value).lower() == UNLIMITED_WORD):
        return None
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        allowed = "a whole number" if is_required else f"a whole number or '{UNLIMITED_WORD}'"
        raise InvalidArgument(f"value of the limit {name}", value, allowed)
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsBook:
    """The limits of a node: one table per tier, computed once."""

    profile: Profile = Profile.DEVELOPER
    overrides: Mapping[str, Override] = field(default_factory=dict)
    _tables: dict[Tier, Limits] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for tier in Tier:
            self._tables[tier] = limits_for(self.profile, tier, self.overrides)

    @property
    def default_tier(self) -> Tier:
        """The tier of a new namespace if none is given."""
        return PROFILE_TIERS[self.profile]

    def of(self, tier: Tier) -> Limits:
        """The limits of a namespace of that tier."""
        return self._tables[tier]
