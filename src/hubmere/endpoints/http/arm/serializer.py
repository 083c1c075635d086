"""Serializes entities as ARM resources with id, name, type and properties (reference: service 4.2).

The result is the newest superset of all api-versions, as plain JSON values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from hubmere.model.addresses import Addresses
from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    CaptureDescription,
    ConsumerGroup,
    GeoAlias,
    GeoRole,
    Hub,
    Namespace,
    Retention,
)
from hubmere.model.tier import Tier

Json = dict[str, object]

PROVIDER = "Microsoft.EventHub"
# Used where neither the client nor the namespace has a subscription and a resource group.
DEFAULT_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
DEFAULT_RESOURCE_GROUP = "hubmere"
_DEFAULT_HTTPS_PORT = 443


def iso_time(at_ms: int) -> str:
    """A time in the format of ARM."""
    return datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSerializer:
    """Serializes resources below one subscription and resource group."""

    addresses: Addresses
    subscription: str | None = None
    resource_group: str | None = None

    def namespace_id(self, namespace: Namespace) -> str:
        """The resource id of a namespace, below the client's resource group, else below the one of its creation."""
        subscription = self.subscription or namespace.subscription or DEFAULT_SUBSCRIPTION
        group = self.resource_group or namespace.resource_group or DEFAULT_RESOURCE_GROUP
        base = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{PROVIDER}"
        return f"{base}/namespaces/{namespace.name}"

    def _resource(self, namespace: Namespace, kind: str, properties: Json, *path: str) -> Json:
        """A resource below the namespace; `path` alternates type and name."""
        return {
            "id": "/".join((self.namespace_id(namespace), *path)),
            "name": path[-1],
            "type": f"{PROVIDER}/{kind}",
            "location": namespace.location,
            "properties": properties,
        }

    def namespace(self, namespace: Namespace) -> Json:
        """A namespace."""
        return {
            "id": self.namespace_id(namespace),
            "name": namespace.name,
            "type": f"{PROVIDER}/Namespaces",
            "location": namespace.location,
            "tags": dict(namespace.tags),
            "sku": _sku(namespace),
            "properties": {
                "provisioningState": "Succeeded",
                "status": namespace.status.value,
                "createdAt": iso_time(namespace.created_ms),
                "updatedAt": iso_time(namespace.updated_ms),
                "serviceBusEndpoint": f"https://{self._endpoint(namespace)}/",
                "metricId": f"{namespace.subscription or DEFAULT_SUBSCRIPTION}:{namespace.name.lower()}",
                "isAutoInflateEnabled": namespace.auto_inflate,
                "maximumThroughputUnits": namespace.maximum_throughput_units,
                # Not in ARM: the lower bound of auto-inflate.
                "minimumThroughputUnits": namespace.minimum_throughput_units,
                "kafkaEnabled": namespace.kafka_enabled,
                "zoneRedundant": namespace.zone_redundant,
                "disableLocalAuth": namespace.disable_local_auth,
                "minimumTlsVersion": namespace.minimum_tls_version,
                "publicNetworkAccess": namespace.public_network_access.value,
                "privateEndpointConnections": [],
            },
            "systemData": {
                "createdAt": iso_time(namespace.created_ms),
                "lastModifiedAt": iso_time(namespace.updated_ms),
            },
        }

    def _endpoint(self, namespace: Namespace) -> str:
        host, port = self.addresses.host_of(namespace.name, "https"), self.addresses.port_of("https")
        return f"{host}:{port or _DEFAULT_HTTPS_PORT}"

    def hub(self, namespace: Namespace, hub: Hub) -> Json:
        """An event hub."""
        properties: Json = {
            **hub_settings(hub),
            "partitionIds": list(hub.partition_ids),
            "messageRetentionInDays": hub.retention.days,
            "identifier": hub.topic_id,
            "createdAt": iso_time(hub.created_ms),
            "updatedAt": iso_time(hub.updated_ms),
        }
        return self._resource(namespace, "namespaces/eventhubs", properties, "eventhubs", hub.name)

    def capture_state(self, namespace: Namespace, hub: Hub, properties: Json) -> Json:
        """The capture state of a hub; the Azure service has it as metrics only."""
        kind = "namespaces/eventhubs/captureStates"
        return self._resource(namespace, kind, properties, "eventhubs", hub.name, "captureStates", "default")

    def group(self, namespace: Namespace, hub: Hub, group: ConsumerGroup) -> Json:
        """A consumer group."""
        properties: Json = {
            "userMetadata": group.user_metadata,
            "createdAt": iso_time(group.created_ms),
            "updatedAt": iso_time(group.updated_ms),
        }
        kind = "namespaces/eventhubs/consumergroups"
        return self._resource(namespace, kind, properties, "eventhubs", hub.name, "consumergroups", group.name)

    def rule(self, namespace: Namespace, rule: AccessRule, alias: str | None = None) -> Json:
        """An authorization rule, without its keys."""
        properties: Json = {"rights": list(rule.rights.names)}
        path: tuple[str, ...]
        if alias is not None:
            kind = "namespaces/disasterRecoveryConfigs/authorizationRules"
            path = ("disasterRecoveryConfigs", alias, "authorizationRules", rule.name)
        elif rule.hub is None:
            kind, path = "Namespaces/AuthorizationRules", ("authorizationRules", rule.name)
        else:
            kind = "namespaces/eventhubs/authorizationrules"
            path = ("eventhubs", rule.hub, "authorizationRules", rule.name)
        return self._resource(namespace, kind, properties, *path)

    def keys(self, rule: AccessRule, alias: str | None) -> Json:
        """The two keys of a rule and their connection strings, for managers only."""
        keys: Json = {
            "keyName": rule.name,
            "primaryKey": rule.primary_key,
            "secondaryKey": rule.secondary_key,
            "primaryConnectionString": self.addresses.connection_string(rule, rule.primary_key),
            "secondaryConnectionString": self.addresses.connection_string(rule, rule.secondary_key),
        }
        if alias is not None:
            for name, key in (("aliasPrimary", rule.primary_key), ("aliasSecondary", rule.secondary_key)):
                keys[f"{name}ConnectionString"] = self.addresses.connection_string(rule, key, namespace=alias)
        return keys

    def network(self, namespace: Namespace) -> Json:
        """The network rules of a namespace."""
        rules = namespace.network
        properties: Json = {
            "defaultAction": rules.default_action.value,
            "publicNetworkAccess": namespace.public_network_access.value,
            "trustedServiceAccessEnabled": rules.trusted_service_access,
            "ipRules": [{"ipMask": mask, "action": "Allow"} for mask in rules.ip_masks],
            "virtualNetworkRules": [
                {"subnet": {"id": rule.subnet_id}, "ignoreMissingVnetServiceEndpoint": rule.ignore_missing_endpoint}
                for rule in rules.virtual_networks
            ],
        }
        return self._resource(namespace, "namespaces/networkRuleSets", properties, "networkRuleSets", "default")

    def alias(
        self,
        namespace: Namespace,
        alias: GeoAlias,
        *,
        partner: Namespace | None,
        state: str,
        pending: int,
        problem: str,
    ) -> Json:
        """A pairing; `partner` is None if it is on another node or does not exist."""
        parent, _, _ = self.namespace_id(namespace).rpartition("/")
        properties: Json = {
            "provisioningState": state,
            "partnerNamespace": f"{parent}/{alias.partner_namespace}" if alias.partner_namespace else "",
            "alternateName": alias.alternate_name,
            "role": alias.role.value,
            "pendingReplicationOperationsCount": pending,
        }
        if partner is not None:
            properties["partnerNamespace"] = self.namespace_id(partner)
        if alias.role is GeoRole.PRIMARY_NOT_REPLICATING:
            properties.pop("pendingReplicationOperationsCount")
        if problem:
            # Not in ARM: why replication to another node fails.
            properties["replicationProblem"] = problem
        kind = "Namespaces/DisasterRecoveryConfigs"
        return self._resource(namespace, kind, properties, "disasterRecoveryConfigs", alias.name)

    def application_group(self, namespace: Namespace, group: ApplicationGroup) -> Json:
        """An application group."""
        properties: Json = {
            "clientAppGroupIdentifier": group.client_id,
            "isEnabled": group.is_enabled,
            "policies": [
                {
                    "name": policy.name,
                    "type": "ThrottlingPolicy",
                    "metricId": policy.metric.value,
                    "rateLimitThreshold": policy.rate_per_s,
                }
                for policy in group.policies
            ],
        }
        return self._resource(namespace, "namespaces/applicationGroups", properties, "applicationGroups", group.name)


def hub_settings(hub: Hub) -> Json:
    """The settings of a hub: enough to create another hub like it."""
    settings: Json = {
        "partitionCount": hub.partition_count,
        "retentionDescription": _retention(hub.retention),
        "status": hub.status.value,
        "messageTimestampDescription": {"timestampType": hub.timestamp_type.value},
        "userMetadata": hub.user_metadata,
    }
    if hub.capture is not None:
        settings["captureDescription"] = _capture(hub.capture)
    return settings


def _sku(namespace: Namespace) -> Json:
    # ARM has three tiers; a namespace of a dedicated cluster is Standard there.
    name = Tier.STANDARD if namespace.tier is Tier.DEDICATED else namespace.tier
    return {"name": name.value, "tier": name.value, "capacity": namespace.capacity}


def _retention(retention: Retention) -> Json:
    return {
        "cleanupPolicy": retention.policy.value,
        "retentionTimeInHours": -1 if retention.hours is None else retention.hours,
        "tombstoneRetentionTimeInHours": retention.tombstone_hours,
        "minCompactionLagTimeInMinutes": retention.min_compaction_lag_minutes,
    }


def _capture(capture: CaptureDescription) -> Json:
    to = capture.destination
    destination: Json = {
        "name": to.name,
        "properties": _present(
            (
                ("storageAccountResourceId", to.storage_account),
                ("blobContainer", to.container),
                ("archiveNameFormat", to.archive_name_format),
                ("dataLakeSubscriptionId", to.data_lake_subscription),
                ("dataLakeAccountName", to.data_lake_account),
                ("dataLakeFolderPath", to.data_lake_folder),
            )
        ),
    }
    if to.identity_type:
        destination["identity"] = _present(
            (("type", to.identity_type), ("userAssignedIdentity", to.user_assigned_identity))
        )
    return {
        "enabled": capture.enabled,
        "encoding": capture.encoding.value,
        "intervalInSeconds": capture.interval_s,
        "sizeLimitInBytes": capture.size_limit_bytes,
        "skipEmptyArchives": capture.skip_empty,
        "destination": destination,
        # An extension of the service: shown only where it is used.
        **({"coldReads": True} if capture.cold_reads else {}),
    }


def _present(pairs: Iterable[tuple[str, str]]) -> Json:
    return {name: value for name, value in pairs if value}
