"""The entities of the service as plain values: namespaces, hubs, consumer groups, access rules and their parts.

Values only: `spec` checks requested values, `store.catalog` stores entities. Each entity has a
`key`, unique among its kind in any case of its name, and a `parent` under which it is listed. Secrets never show in a
`repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from hubmere.model.names import (
    AliasName,
    ApplicationGroupName,
    GroupName,
    HubName,
    NamespaceName,
    PublisherName,
    RuleName,
    fold,
)
from hubmere.model.security.rights import Rights as Rights
from hubmere.model.security.roles import RoleAssignment as RoleAssignment
from hubmere.model.tier import HOURS_PER_DAY, Tier

Key = tuple[str, ...]

DEFAULT_PARTITION_COUNT = 4


class Status(StrEnum):
    """Which operations a hub or namespace allows (ARM: EntityStatus); only the first four can be set."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DISABLED = "Disabled"
    CREATING = "Creating"
    DELETING = "Deleting"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"

    @property
    def may_send(self) -> bool:
        """Whether events can be published."""
        return self in _SENDING

    @property
    def may_receive(self) -> bool:
        """Whether events can be read."""
        return self in _RECEIVING

    @property
    def is_settable(self) -> bool:
        """Whether the status can be set by management; the others are only reported."""
        return self in _SETTABLE


_SENDING = frozenset({Status.ACTIVE, Status.RECEIVE_DISABLED})
_RECEIVING = frozenset({Status.ACTIVE, Status.SEND_DISABLED})
_SETTABLE = frozenset({Status.ACTIVE, Status.SEND_DISABLED, Status.RECEIVE_DISABLED, Status.DISABLED})


class CleanupPolicy(StrEnum):
    """How a hub deletes events; fixed at creation."""

    DELETE = "Delete"
    COMPACT = "Compact"
    DELETE_OR_COMPACT = "DeleteOrCompact"


class TimestampType(StrEnum):
    """Which timestamp the events of a Kafka producer get."""

    LOG_APPEND = "LogAppend"
    CREATE = "Create"


class PublicNetworkAccess(StrEnum):
    """Whether a namespace accepts connections from public networks."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"
    SECURED_BY_PERIMETER = "SecuredByPerimeter"


class DefaultAction(StrEnum):
    """What happens to an address that matches no rule."""

    ALLOW = "Allow"
    DENY = "Deny"


class CaptureEncoding(StrEnum):
    """The format of captured files; the last two extend the service."""

    AVRO = "Avro"
    AVRO_DEFLATE = "AvroDeflate"
    PARQUET = "Parquet"
    DELTA = "Delta"


class GeoRole(StrEnum):
    """The role of a namespace in a pairing."""

    PRIMARY = "Primary"
    PRIMARY_NOT_REPLICATING = "PrimaryNotReplicating"
    SECONDARY = "Secondary"


class ThrottlingMetric(StrEnum):
    """What an application group's policy counts, per second and over the whole namespace."""

    INCOMING_BYTES = "IncomingBytes"
    INCOMING_MESSAGES = "IncomingMessages"
    OUTGOING_BYTES = "OutgoingBytes"
    OUTGOING_MESSAGES = "OutgoingMessages"


class KeyKind(StrEnum):
    """Which of a rule's two keys."""

    PRIMARY = "PrimaryKey"
    SECONDARY = "SecondaryKey"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNetworkRule:
    """An allowed subnet: stored and returned by the management plane, without effect here."""

    subnet_id: str
    ignore_missing_endpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRuleSet:
    """Which addresses may connect to a namespace; `ip_masks` are allowed addresses or CIDR blocks."""

    default_action: DefaultAction = DefaultAction.ALLOW
    trusted_service_access: bool = False
    ip_masks: tuple[str, ...] = ()
    virtual_networks: tuple[VirtualNetworkRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A set of hubs under one name, with its own rules, tier and throughput."""

    name: NamespaceName
    tier: Tier = Tier.STANDARD
    capacity: int = 1
    auto_inflate: bool = False
    maximum_throughput_units: int = 0
    # How far an idle namespace deflates again; 0: it never deflates, as in the service.
    minimum_throughput_units: int = 0
    status: Status = Status.ACTIVE
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    location: str = "local"
    subscription: str = ""
    resource_group: str = ""
    disable_local_auth: bool = False
    minimum_tls_version: str = "1.2"
    public_network_access: PublicNetworkAccess = PublicNetworkAccess.ENABLED
    kafka_enabled: bool = True
    zone_redundant: bool = False
    network: NetworkRuleSet = NetworkRuleSet()
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def key(self) -> Key:
        """Primary key."""
        return (fold(self.name),)

    @property
    def parent(self) -> Key:
        """Parent key: all namespaces have the same."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long events are kept: `hours` is None if they are kept for ever (compaction without deletion)."""

    hours: int | None = 7 * HOURS_PER_DAY
    policy: CleanupPolicy = CleanupPolicy.DELETE
    tombstone_hours: int = HOURS_PER_DAY
    min_compaction_lag_minutes: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether only the last event of each key is kept."""
        return self.policy is not CleanupPolicy.DELETE

    @property
    def days(self) -> int:
        """The older form of the setting: whole days, rounded up, -1 for ever."""
        return -1 if self.hours is None else -(-self.hours // HOURS_PER_DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Settings of a hub's logs that only Kafka clients can set; the service has no equivalent.

    None follows the node's settings and the tier's limits.
    """

    max_message_bytes: int | None = None
    retention_bytes: int | None = None
    segment_bytes: int | None = None
    segment_ms: int | None = None
    max_compaction_lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureDestination:
    """Where captured files go; names and fields are those of the management API."""

    name: str = "EventHubArchive.AzureBlockBlob"
    storage_account: str = ""
    container: str = ""
    archive_name_format: str = "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"
    data_lake_subscription: str = ""
    data_lake_account: str = ""
    data_lake_folder: str = ""
    identity_type: str = ""
    user_assigned_identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureDescription:
    """When a captured file is closed and what it looks like."""

    enabled: bool = False
    encoding: CaptureEncoding = CaptureEncoding.AVRO
    interval_s: int = 300
    size_limit_bytes: int = 314_572_800
    skip_empty: bool = False
    # Whether readers get events that only captured files still hold.
    cold_reads: bool = False
    destination: CaptureDestination = CaptureDestination()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStart:
    """Where capture of a hub starts: `since` has the first sequence number of each partition that existed then.

    `id` changes each time Capture is enabled. Partitions that were added later begin at 0.
    """

    id: str
    since: tuple[int, ...] = ()
    started_ms: int = 0

    def first_sequence(self, partition: int) -> int:
        """The first event of a partition that is captured."""
        return self.since[partition] if partition < len(self.since) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A named set of partitions. `uid` never changes and names its logs; a hub created later under the same name has
    another."""

    namespace: NamespaceName
    name: HubName
    uid: str
    topic_id: str
    partition_count: int = DEFAULT_PARTITION_COUNT
    retention: Retention = Retention()
    log_settings: LogSettings = LogSettings()
    status: Status = Status.ACTIVE
    timestamp_type: TimestampType = TimestampType.LOG_APPEND
    user_metadata: str = ""
    capture: CaptureDescription | None = None
    capture_start: CaptureStart | None = None
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def key(self) -> Key:
        """Primary key."""
        return (fold(self.namespace), fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the namespace."""
        return (fold(self.namespace),)

    @property
    def is_captured(self) -> bool:
        """Whether its events are captured as files."""
        return self.capture is not None and self.capture.enabled

    @property
    def has_cold_reads(self) -> bool:
        """Whether readers get events that only captured files still hold; capture itself may be off by now."""
        return self.capture is not None and self.capture.cold_reads

    @property
    def captured_since(self) -> CaptureStart:
        """Where capture starts; a hub without a start of its own (the copy in a pairing) is captured from its
        beginning."""
        return self.capture_start or CaptureStart(id=self.uid)

    @property
    def partition_ids(self) -> tuple[str, ...]:
        """Contiguous decimal texts from `0`."""
        return tuple(map(str, range(self.partition_count)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A consumer group of a hub."""

    hub_uid: str
    name: GroupName
    user_metadata: str = ""
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def key(self) -> Key:
        """Primary key."""
        return (self.hub_uid, fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the hub."""
        return (self.hub_uid,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """An authorization rule: rights for clients with one of its two keys; `hub` is None for a rule of the namespace."""

    namespace: NamespaceName
    hub: HubName | None = None
    hub_uid: str | None = None
    name: RuleName
    rights: Rights
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def key(self) -> Key:
        """Primary key."""
        return (*self.parent, fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the namespace, or the hub if the rule belongs to one."""
        return (fold(self.namespace), self.hub_uid or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedPublisher:
    """A publisher that may no longer publish to a hub."""

    hub_uid: str
    name: PublisherName
    revoked_ms: int = 0

    @property
    def key(self) -> Key:
        """Primary key."""
        return (self.hub_uid, fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the hub."""
        return (self.hub_uid,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeoAlias:
    """A name that follows the primary of two paired namespaces (ARM: disasterRecoveryConfig)."""

    namespace: NamespaceName
    name: AliasName
    partner_namespace: str = ""
    alternate_name: str = ""
    role: GeoRole = GeoRole.PRIMARY
    provisioning_state: str = "Succeeded"
    # The id of a pairing between two nodes, the same on both; empty if both namespaces are on this node.
    pairing: str = ""

    @property
    def is_replicating_away(self) -> bool:
        """Whether this is the primary of a namespace on another node."""
        return bool(self.pairing and self.partner_namespace) and self.role is GeoRole.PRIMARY

    @property
    def key(self) -> Key:
        """Primary key: an alias exists once under each of its two namespaces."""
        return (fold(self.namespace), fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the namespace."""
        return (fold(self.namespace),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingPolicy:
    """One limit of an application group."""

    name: str
    metric: ThrottlingMetric
    rate_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationGroup:
    """Clients with one credential that are throttled or disabled together."""

    namespace: NamespaceName
    name: ApplicationGroupName
    client_id: str
    is_enabled: bool = True
    policies: tuple[ThrottlingPolicy, ...] = ()

    @property
    def key(self) -> Key:
        """Primary key."""
        return (fold(self.namespace), fold(self.name))

    @property
    def parent(self) -> Key:
        """Parent key: the namespace."""
        return (fold(self.namespace),)


Entity = Namespace | Hub | ConsumerGroup | AccessRule | RevokedPublisher | GeoAlias | ApplicationGroup | RoleAssignment
