"""Request bodies of ARM management, validated before use (reference: service 4.2).

Names are ARM's, in camel case. Unknown properties, and read-only ones that clients send back, are ignored; null means
"not given". Each body converts itself to a spec of the `model` package, which has the rules about values.
"""

from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from hubmere.broker import blob_storage
from hubmere.endpoints.http.errors import MalformedRequest
from hubmere.model.entity import (
    CaptureDescription,
    CaptureDestination,
    CaptureEncoding,
    CleanupPolicy,
    DefaultAction,
    KeyKind,
    Namespace,
    NetworkRuleSet,
    PublicNetworkAccess,
    Status,
    ThrottlingMetric,
    ThrottlingPolicy,
    TimestampType,
    VirtualNetworkRule,
)
from hubmere.model.errors import InvalidArgument
from hubmere.model.security.roles import PrincipalType
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import HOURS_PER_DAY, Tier

# Unlimited retention in different versions of the API: -1, or the largest 64-bit number.
_UNLIMITED = (-1, 2**63 - 1)

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", bound=Enum)


def _strip(value: object) -> object:
    """Strip a text; any other value is left for the model to refuse."""
    return value.strip() if isinstance(value, str) else value


ShortText = Annotated[str, BeforeValidator(_strip), Field(max_length=256)]
Count = Annotated[int, Field(ge=-1, le=2**31 - 1)]


class ArmModel(BaseModel):
    """A request body, or a part of one."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Sku(ArmModel):
    """Tier and capacity of a namespace."""

    name: ShortText | None = None
    tier: ShortText | None = None
    capacity: Count | None = None


class NamespaceProperties(ArmModel):
    """Settings of a namespace."""

    is_auto_inflate_enabled: bool | None = None
    maximum_throughput_units: Count | None = None
    minimum_throughput_units: Count | None = None
    kafka_enabled: bool | None = None
    zone_redundant: bool | None = None
    disable_local_auth: bool | None = None
    minimum_tls_version: ShortText | None = None
    public_network_access: ShortText | None = None
    status: ShortText | None = None


class NamespaceBody(ArmModel):
    """PUT and PATCH of a namespace."""

    location: ShortText | None = None
    tags: dict[str, str] | None = None
    sku: Sku | None = None
    properties: NamespaceProperties | None = None

    def spec(self, base: NamespaceSpec) -> NamespaceSpec:
        """The given values over a base, which is the defaults for PUT and the current values for PATCH."""
        sku, properties = self.sku or Sku(), self.properties or NamespaceProperties()
        tier = sku.name or sku.tier
        access, status = properties.public_network_access, properties.status
        return replace(
            base,
            **_without_none(
                tier=None if tier is None else _parse_enum(Tier, tier, "sku"),
                capacity=sku.capacity,
                auto_inflate=properties.is_auto_inflate_enabled,
                maximum_throughput_units=_auto_inflate_bound(properties, properties.maximum_throughput_units),
                minimum_throughput_units=_auto_inflate_bound(properties, properties.minimum_throughput_units),
                status=None if status is None else _parse_enum(Status, status, "status"),
                tags=self.tags,
                location=self.location,
                disable_local_auth=properties.disable_local_auth,
                minimum_tls_version=properties.minimum_tls_version,
                public_network_access=None if access is None else _parse_enum(PublicNetworkAccess, access, "access"),
                kafka_enabled=properties.kafka_enabled,
                zone_redundant=properties.zone_redundant,
            ),
        )


def _auto_inflate_bound(properties: NamespaceProperties, units: int | None) -> int | None:
    """A bound of auto-inflate; switching auto-inflate off resets its bounds, which clients send back unchanged."""
    return 0 if properties.is_auto_inflate_enabled is False else units


class RetentionDescription(ArmModel):
    """Retention, in the newer form."""

    cleanup_policy: ShortText | None = None
    retention_time_in_hours: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    tombstone_retention_time_in_hours: Count | None = None
    min_compaction_lag_time_in_minutes: Count | None = None
    min_compaction_lag_in_mins: Count | None = None


class CaptureIdentity(ArmModel):
    """The identity that writes captured files."""

    type: ShortText | None = None
    user_assigned_identity: str | None = None


class DestinationProperties(ArmModel):
    """The destination of captured files."""

    storage_account_resource_id: str | None = None
    blob_container: str | None = None
    archive_name_format: str | None = None
    data_lake_subscription_id: str | None = None
    data_lake_account_name: str | None = None
    data_lake_folder_path: str | None = None


class Destination(ArmModel):
    """The destination of captured files, with its kind and identity."""

    name: ShortText | None = None
    identity: CaptureIdentity | None = None
    properties: DestinationProperties | None = None

    def value(self) -> CaptureDestination:
        """The destination as a model entity."""
        places = self.properties or DestinationProperties()
        identity = self.identity or CaptureIdentity()
        return replace(
            CaptureDestination(),
            **_without_none(
                name=self.name,
                storage_account=places.storage_account_resource_id,
                container=places.blob_container,
                archive_name_format=places.archive_name_format,
                data_lake_subscription=places.data_lake_subscription_id,
                data_lake_account=places.data_lake_account_name,
                data_lake_folder=places.data_lake_folder_path,
                identity_type=identity.type,
                user_assigned_identity=identity.user_assigned_identity,
            ),
        )


class Capture(ArmModel):
    """Window, size limit and format of captured files."""

    enabled: bool | None = None
    encoding: ShortText | None = None
    interval_in_seconds: Count | None = None
    size_limit_in_bytes: Count | None = None
    skip_empty_archives: bool | None = None
    cold_reads: bool | None = None
    destination: Destination | None = None

    def value(self) -> CaptureDescription:
        """The description as a model entity."""
        return replace(
            CaptureDescription(),
            **_without_none(
                enabled=self.enabled,
                encoding=None
                if self.encoding is None
                else _parse_enum(CaptureEncoding, self.encoding, "capture encoding"),
                interval_s=self.interval_in_seconds,
                size_limit_bytes=self.size_limit_in_bytes,
                skip_empty=self.skip_empty_archives,
                cold_reads=self.cold_reads,
                destination=None if self.destination is None else self.destination.value(),
            ),
        )


class MessageTimestamp(ArmModel):
    """Which time an event gets."""

    timestamp_type: ShortText | None = None


class HubProperties(ArmModel):
    """Settings of an event hub."""

    partition_count: Count | None = None
    message_retention_in_days: Count | None = None
    retention_description: RetentionDescription | None = None
    status: ShortText | None = None
    user_metadata: str | None = None
    capture_description: Capture | None = None
    message_timestamp_description: MessageTimestamp | None = None


class HubBody(ArmModel):
    """PUT of an event hub."""

    properties: HubProperties | None = None

    def spec(self) -> HubSpec:
        """The spec of the hub."""
        properties = self.properties or HubProperties()
        retention = properties.retention_description or RetentionDescription()
        timestamp = (properties.message_timestamp_description or MessageTimestamp()).timestamp_type
        policy = retention.cleanup_policy
        lag = retention.min_compaction_lag_time_in_minutes
        return replace(
            HubSpec(),
            **_without_none(
                partition_count=properties.partition_count,
                retention_hours=_hours(properties, retention),
                cleanup_policy=None if policy is None else _parse_enum(CleanupPolicy, policy, "cleanup policy"),
                tombstone_hours=retention.tombstone_retention_time_in_hours,
                min_compaction_lag_minutes=retention.min_compaction_lag_in_mins if lag is None else lag,
                status=None if properties.status is None else _parse_enum(Status, properties.status, "status"),
                timestamp_type=None if timestamp is None else _parse_enum(TimestampType, timestamp, "timestamp type"),
                user_metadata=properties.user_metadata,
                capture=None if properties.capture_description is None else properties.capture_description.value(),
            ),
        )


def _hours(properties: HubProperties, retention: RetentionDescription) -> int | None:
    """Hours take precedence over days if both are given (reference: service 8)."""
    hours = retention.retention_time_in_hours
    if hours is not None:
        return -1 if hours in _UNLIMITED else hours
    if (retention.cleanup_policy or "").lower() == CleanupPolicy.COMPACT.value.lower():
        return None
    days = properties.message_retention_in_days
    return None if days is None else days * HOURS_PER_DAY


class GroupProperties(ArmModel):
    """Settings of a consumer group."""

    user_metadata: str | None = None


class GroupBody(ArmModel):
    """PUT of a consumer group."""

    properties: GroupProperties | None = None

    @property
    def metadata(self) -> str:
        """The user metadata."""
        return (self.properties.user_metadata if self.properties else None) or ""


class RuleProperties(ArmModel):
    """Rights of a rule."""

    rights: list[ShortText] = Field(default_factory=list, max_length=16)


class RuleBody(ArmModel):
    """PUT of an authorization rule."""

    properties: RuleProperties | None = None

    @property
    def rights(self) -> list[str]:
        """The names of the rights."""
        return self.properties.rights if self.properties else []


class RoleAssignmentProperties(ArmModel):
    """Who gets which role."""

    role_definition_id: Annotated[str, Field(max_length=1024)]
    principal_id: ShortText
    principal_type: ShortText | None = None
    description: Annotated[str, Field(max_length=1024)] | None = None
    condition: Annotated[str, Field(max_length=8192)] | None = None

    @property
    def kind(self) -> PrincipalType:
        """The type of the principal."""
        text = self.principal_type or PrincipalType.SERVICE_PRINCIPAL.value
        return _parse_enum(PrincipalType, text, "principalType")


class RoleAssignmentBody(ArmModel):
    """PUT of a role assignment."""

    properties: RoleAssignmentProperties


class RegenerateBody(ArmModel):
    """POST of regenerateKeys."""

    key_type: ShortText
    key: str | None = None
    # Not in ARM: closes links that were opened with the old key.
    revoke_open_links: bool = False

    @property
    def kind(self) -> KeyKind:
        """The key to regenerate."""
        return _parse_enum(KeyKind, self.key_type, "keyType")


class RegenerateStorageKeyBody(ArmModel):
    """POST of regenerateKey of a storage account."""

    key_name: ShortText

    @property
    def kind(self) -> blob_storage.StorageKeyName:
        """The key to renew."""
        return _parse_enum(blob_storage.StorageKeyName, self.key_name, "keyName")


class IpRule(ArmModel):
    """An address block that may connect."""

    ip_mask: ShortText
    action: ShortText | None = None


class Subnet(ArmModel):
    """A subnet by its resource id."""

    id: str = ""


class SubnetRule(ArmModel):
    """A subnet that may connect."""

    subnet: Subnet | None = None
    ignore_missing_vnet_service_endpoint: bool | None = None


class NetworkProperties(ArmModel):
    """Network rules of a namespace."""

    default_action: ShortText | None = None
    public_network_access: ShortText | None = None
    trusted_service_access_enabled: bool | None = None
    ip_rules: list[IpRule] | None = Field(default=None, max_length=1024)
    virtual_network_rules: list[SubnetRule] | None = Field(default=None, max_length=1024)


class NetworkBody(ArmModel):
    """PUT of a network rule set."""

    properties: NetworkProperties | None = None

    def rules(self) -> NetworkRuleSet:
        """The rule set as a model entity."""
        properties = self.properties or NetworkProperties()
        action = properties.default_action
        return NetworkRuleSet(
            default_action=DefaultAction.ALLOW
            if action is None
            else _parse_enum(DefaultAction, action, "defaultAction"),
            trusted_service_access=bool(properties.trusted_service_access_enabled),
            ip_masks=tuple(rule.ip_mask for rule in properties.ip_rules or ()),
            virtual_networks=tuple(
                VirtualNetworkRule(
                    subnet_id="" if rule.subnet is None else rule.subnet.id,
                    ignore_missing_endpoint=bool(rule.ignore_missing_vnet_service_endpoint),
                )
                for rule in properties.virtual_network_rules or ()
            ),
        )

    def access(self, namespace: Namespace) -> PublicNetworkAccess:
        """Public network access: the given value, else the current one."""
        word = self.properties.public_network_access if self.properties else None
        return namespace.public_network_access if word is None else _parse_enum(PublicNetworkAccess, word, "access")


class AliasProperties(ArmModel):
    """A pairing."""

    partner_namespace: str | None = None
    alternate_name: str | None = None


class AliasBody(ArmModel):
    """PUT of a disaster recovery configuration."""

    properties: AliasProperties | None = None

    @property
    def partner(self) -> str:
        """The name of the partner; clients give its resource id or its name."""
        reference = (self.properties.partner_namespace if self.properties else None) or ""
        return reference.rstrip("/").rpartition("/")[2]

    @property
    def alternate_name(self) -> str:
        """The new name of the primary if the alias takes its name."""
        return (self.properties.alternate_name if self.properties else None) or ""


class CheckNameBody(ArmModel):
    """POST of checkNameAvailability."""

    name: str


class PolicyModel(ArmModel):
    """One limit of an application group."""

    name: ShortText
    type: ShortText | None = None
    metric_id: ShortText
    rate_limit_threshold: Count


class ApplicationGroupProperties(ArmModel):
    """Settings of an application group."""

    client_app_group_identifier: ShortText
    is_enabled: bool | None = None
    policies: list[PolicyModel] | None = Field(default=None, max_length=64)


class ApplicationGroupBody(ArmModel):
    """PUT of an application group."""

    properties: ApplicationGroupProperties

    def policies(self) -> tuple[ThrottlingPolicy, ...]:
        """The limits as model entities."""
        return tuple(
            ThrottlingPolicy(
                name=policy.name,
                metric=_parse_enum(ThrottlingMetric, policy.metric_id, "metricId"),
                rate_per_s=policy.rate_limit_threshold,
            )
            for policy in self.properties.policies or ()
        )


def parse_body(model: type[M], body: bytes) -> M:
    """Parse a body; the refusal names the first property that is invalid."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"])) or "the body"
        raise MalformedRequest(f"{location}: {first['msg']}") from None


def _without_none(**values: Any) -> dict[str, Any]:
    """The values that are given; None means "not given" everywhere in this API."""
    return {name: value for name, value in values.items() if value is not None}


def _parse_enum(kind: type[E], text: str, what: str) -> E:
    """A member of an enum by its value in any case."""
    for member in kind:
        if member.value.lower() == text.lower():
            return member
    raise InvalidArgument(what, text, ", ".join(member.value for member in kind))
