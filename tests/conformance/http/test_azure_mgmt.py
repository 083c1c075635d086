"""The unmodified Azure management SDK for Python with the ARM API (check 38 of service 11)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.eventhub import EventData, EventHubProducerClient
from azure.mgmt.eventhub import EventHubManagementClient
from azure.mgmt.eventhub.models import (
    ArmDisasterRecovery,
    AuthorizationRule,
    CheckNameAvailabilityParameter,
    ConsumerGroup,
    EHNamespace,
    Eventhub,
    NetworkRuleSet,
    NWRuleSetIpRules,
    RegenerateAccessKeyParameters,
    RetentionDescription,
    Sku,
)

from hubmere.testing import Node

pytestmark = pytest.mark.foreign

GROUP = "any-group"


class AdminCredential:
    """The administrator's token as a credential of the SDK."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 3600)

    def get_token_info(self, *scopes: str, options: Any = None) -> AccessTokenInfo:
        return AccessTokenInfo(self._token, int(time.time()) + 3600)


@pytest.fixture
def arm(node: Node) -> Iterator[EventHubManagementClient]:
    """The SDK's client on our HTTPS port."""
    client = EventHubManagementClient(
        AdminCredential(node.admin_token),
        "00000000-0000-0000-0000-000000000001",
        base_url=node.https,
        connection_verify=node.ca_file,
    )
    with client:
        yield client


def test_namespaces_are_created_changed_listed_and_deleted(arm: EventHubManagementClient) -> None:
    """The SDK treats these operations as long-running; the node completes them at once."""
    wish = EHNamespace(location="here", tags={"a": "b"}, sku=Sku(name="Standard", tier="Standard", capacity=2))

    made = arm.namespaces.begin_create_or_update(GROUP, "judge-ns", wish).result()
    changed = arm.namespaces.update(GROUP, "judge-ns", EHNamespace(sku=Sku(name="Standard", capacity=4)))
    read = arm.namespaces.get(GROUP, "judge-ns")
    by_group = [namespace.name for namespace in arm.namespaces.list_by_resource_group(GROUP)]
    everywhere = [namespace.name for namespace in arm.namespaces.list()]
    taken = arm.namespaces.check_name_availability(CheckNameAvailabilityParameter(name="judge-ns"))
    arm.namespaces.begin_delete(GROUP, "judge-ns").result()

    assert (made.provisioning_state, made.sku.capacity, made.tags) == ("Succeeded", 2, {"a": "b"})
    assert (changed.sku.capacity, read.sku.capacity, read.status) == (4, 4, "Active")
    assert "judge-ns" in by_group
    assert "judge-ns" in everywhere
    assert (taken.name_available, taken.reason) == (False, "NameInUse")
    with pytest.raises(ResourceNotFoundError):
        arm.namespaces.get(GROUP, "judge-ns")


def test_hubs_are_created_changed_listed_and_deleted(node: Node, arm: EventHubManagementClient) -> None:
    """Retention, status and times are decoded by the SDK."""
    place = (GROUP, node.namespace)
    retention = RetentionDescription(cleanup_policy="Delete", retention_time_in_hours=30)

    made = arm.event_hubs.create_or_update(
        *place, "judged", Eventhub(partition_count=3, retention_description=retention)
    )
    made.status = "SendDisabled"
    changed = arm.event_hubs.create_or_update(*place, "judged", made)
    listed = [hub.name for hub in arm.event_hubs.list_by_namespace(*place)]
    page = [hub.name for hub in arm.event_hubs.list_by_namespace(*place, skip=1, top=1)]
    arm.event_hubs.delete(*place, "judged")
    arm.event_hubs.delete(*place, "judged")

    assert (made.partition_ids, made.retention_description.retention_time_in_hours) == (["0", "1", "2"], 30)
    assert (changed.status, changed.created_at.tzinfo is not None) == ("SendDisabled", True)
    assert sorted(listed) == ["judged", "orders"]
    assert page == ["orders"]
    with pytest.raises(ResourceNotFoundError):
        arm.event_hubs.get(*place, "judged")


def test_groups_are_created_changed_listed_and_deleted(node: Node, arm: EventHubManagementClient) -> None:
    """They have metadata; $Default always exists."""
    place = (GROUP, node.namespace, "orders")

    made = arm.consumer_groups.create_or_update(*place, "mine", ConsumerGroup(user_metadata="one"))
    changed = arm.consumer_groups.create_or_update(*place, "mine", ConsumerGroup(user_metadata="two"))
    listed = [group.name for group in arm.consumer_groups.list_by_event_hub(*place)]
    arm.consumer_groups.delete(*place, "mine")

    assert (made.user_metadata, changed.user_metadata) == ("one", "two")
    assert listed == ["$Default", "mine"]
    with pytest.raises(HttpResponseError) as refusal:
        arm.consumer_groups.delete(*place, "$Default")
    assert refusal.value.error is not None
    assert refusal.value.error.code == "Conflict"


def test_rules_of_namespaces_and_hubs_and_their_keys(node: Node, arm: EventHubManagementClient) -> None:
    """Rules are created, read, listed and deleted, and keys are listed and regenerated, on both levels."""
    namespace, hub = (GROUP, node.namespace), (GROUP, node.namespace, "orders")
    rule = AuthorizationRule(rights=["Send", "Listen"])

    on_namespace = arm.namespaces.create_or_update_authorization_rule(*namespace, "both", rule)
    on_hub = arm.event_hubs.create_or_update_authorization_rule(*hub, "both", rule)
    keys = arm.namespaces.list_keys(*namespace, "both")
    fresh = arm.event_hubs.regenerate_keys(*hub, "both", RegenerateAccessKeyParameters(key_type="PrimaryKey"))
    names = {rule.name for rule in arm.namespaces.list_authorization_rules(*namespace)}
    hub_names = [rule.name for rule in arm.event_hubs.list_authorization_rules(*hub)]
    arm.namespaces.delete_authorization_rule(*namespace, "both")
    arm.event_hubs.delete_authorization_rule(*hub, "both")

    assert sorted(on_namespace.rights) == sorted(on_hub.rights) == ["Listen", "Send"]
    assert keys.primary_connection_string.startswith("Endpoint=sb://")
    assert fresh.primary_connection_string.endswith(";EntityPath=orders")
    assert names == {"both", "RootManageSharedAccessKey"}
    assert "both" in hub_names


def test_the_keys_of_a_hub_work_unchanged_in_the_data_sdk(node: Node, arm: EventHubManagementClient) -> None:
    """39: a client with this connection string can send, and only to that hub."""
    hub = (GROUP, node.namespace, "orders")
    arm.event_hubs.create_or_update_authorization_rule(*hub, "device", AuthorizationRule(rights=["Send"]))

    text = arm.event_hubs.list_keys(*hub, "device").primary_connection_string
    # The SDK accepts the port of a TLS endpoint only here.
    options = {"custom_endpoint_address": f"https://{node.amqps}", "connection_verify": node.ca_file}
    with EventHubProducerClient.from_connection_string(text, **options) as producer:
        producer.send_batch([EventData(b"from the SDK")])
        info = producer.get_eventhub_properties()

    assert info["eventhub_name"] == "orders"


def test_network_rules_are_read_replaced_and_listed(node: Node, arm: EventHubManagementClient) -> None:
    """The SDK's models are used."""
    place = (GROUP, node.namespace)
    wish = NetworkRuleSet(default_action="Allow", ip_rules=[NWRuleSetIpRules(ip_mask="10.1.0.0/16", action="Allow")])

    made = arm.namespaces.create_or_update_network_rule_set(*place, wish)
    read = arm.namespaces.get_network_rule_set(*place)

    assert [rule.ip_mask for rule in made.ip_rules] == ["10.1.0.0/16"]
    assert (read.default_action, read.name) == ("Allow", "default")


def test_pairing_and_failover_move_the_alias(arm: EventHubManagementClient) -> None:
    """Both namespaces are on this node."""
    for name in ("first-ns", "other-ns"):
        arm.namespaces.begin_create_or_update(GROUP, name, EHNamespace(location="here")).result()
    arm.event_hubs.create_or_update(GROUP, "first-ns", "shared", Eventhub(partition_count=1))
    partner = arm.namespaces.get(GROUP, "other-ns").id

    made = arm.disaster_recovery_configs.create_or_update(
        GROUP, "first-ns", "my-alias", ArmDisasterRecovery(partner_namespace=partner)
    )
    copied = [hub.name for hub in arm.event_hubs.list_by_namespace(GROUP, "other-ns")]
    arm.disaster_recovery_configs.fail_over(GROUP, "other-ns", "my-alias")
    after = arm.disaster_recovery_configs.get(GROUP, "other-ns", "my-alias")

    assert (made.role, copied, after.role) == ("Primary", ["shared"], "PrimaryNotReplicating")


def test_refusal_is_an_exception_of_the_sdk(node: Node, arm: EventHubManagementClient) -> None:
    """Code and message are parsed from ARM's envelope."""
    with pytest.raises(HttpResponseError) as refusal:
        arm.event_hubs.create_or_update(GROUP, node.namespace, "orders", Eventhub(partition_count=1))

    assert refusal.value.status_code == 400
    assert refusal.value.error is not None
    assert refusal.value.error.code == "BadRequest"
    assert "SubCode=40000" in refusal.value.error.message


def test_other_lists_are_answered(node: Node, arm: EventHubManagementClient) -> None:
    """These are operations, and resources that a node never has."""
    place = (GROUP, node.namespace)

    assert any(operation.name for operation in arm.operations.list())
    assert list(arm.schema_registry.list_by_namespace(*place)) == []
    assert list(arm.clusters.list_by_resource_group(GROUP)) == []
    assert list(arm.private_endpoint_connections.list(*place)) == []
