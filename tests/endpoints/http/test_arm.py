"""The ARM plane: resources in JSON (service 4.2). The unmodified Azure SDK judges it in tests/conformance/http."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.model.tier import Profile

BASE = "/subscriptions/sub-1/resourceGroups/group-1/providers/Microsoft.EventHub"
HERE = f"{BASE}/namespaces/{NAMESPACE}"
HUB = f"{HERE}/eventhubs/orders"
ARCHIVE_NAMES = "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"


@pytest.fixture
def arm(node: HttpNode) -> Iterator[httpx.Client]:
    """A client with the administrator's token."""
    with node.manager() as client:
        yield client


def _put(client: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    return client.put(f"{path}?api-version=2024-01-01", json=body)


def test_a_new_namespace_has_its_root_rule(arm: httpx.Client) -> None:
    """1: three rights and two different keys of 44 characters."""
    created = _put(arm, f"{BASE}/namespaces/fresh-ns", {"location": "here", "sku": {"name": "Standard"}})
    rules = arm.get(f"{BASE}/namespaces/fresh-ns/authorizationRules").json()["value"]
    keys = arm.post(f"{BASE}/namespaces/fresh-ns/authorizationRules/RootManageSharedAccessKey/listKeys").json()

    assert created.status_code == 201
    assert created.json()["properties"]["provisioningState"] == "Succeeded"
    assert [(rule["name"], sorted(rule["properties"]["rights"])) for rule in rules] == [
        ("RootManageSharedAccessKey", ["Listen", "Manage", "Send"])
    ]
    assert len(keys["primaryKey"]) == len(keys["secondaryKey"]) == 44
    assert keys["primaryKey"] != keys["secondaryKey"]


def test_the_thirteenth_rule_is_refused(arm: httpx.Client) -> None:
    """2: Conflict with sub-code 40300, and the twelve are unchanged."""
    statuses = [
        _put(arm, f"{HUB}/authorizationRules/rule{index}", {"properties": {"rights": ["Send"]}}).status_code
        for index in range(13)
    ]

    assert statuses == [200] * 12 + [409]
    assert len(arm.get(f"{HUB}/authorizationRules").json()["value"]) == 12


def test_manage_alone_is_refused(arm: httpx.Client) -> None:
    """3: Manage needs the other two."""
    response = _put(arm, f"{HUB}/authorizationRules/bad", {"properties": {"rights": ["Manage"]}})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "BadRequest"


def test_a_hub_without_settings_has_the_defaults(arm: httpx.Client) -> None:
    """4: four partitions, 168 hours, Active, $Default."""
    hub = _put(arm, f"{HERE}/eventhubs/fresh", {}).json()["properties"]
    groups = arm.get(f"{HERE}/eventhubs/fresh/consumergroups").json()["value"]

    assert (hub["partitionCount"], hub["partitionIds"]) == (4, ["0", "1", "2", "3"])
    assert hub["retentionDescription"]["retentionTimeInHours"] == 168
    assert (hub["messageRetentionInDays"], hub["status"]) == (7, "Active")
    assert [group["name"] for group in groups] == ["$Default"]


def test_partitions_grow_if_the_tier_allows_it(arm: httpx.Client) -> None:
    """6: BadRequest 40000 on Standard."""
    refused = _put(arm, HUB, {"properties": {"partitionCount": 8}})

    assert refused.status_code == 400
    assert "SubCode=40000" in refused.json()["error"]["message"]


def test_partitions_grow_on_premium() -> None:
    """6: the hub grows on Premium, and stored events stay in their partitions."""
    with HttpNode(profile=Profile.PREMIUM) as node, node.manager() as arm:
        node.add_hub("orders")
        arm.post("/orders/partitions/3/messages", content=b"old")
        grown = _put(arm, HUB, {"properties": {"partitionCount": 8}})
        arm.post("/orders/partitions/7/messages", content=b"new")

        assert grown.json()["properties"]["partitionCount"] == 8
        assert [event.body for event in node.stored("orders", 3)] == [b"old"]
        assert [event.body for event in node.stored("orders", 7)] == [b"new"]


def test_settings_of_a_hub_are_returned_as_given(arm: httpx.Client) -> None:
    """Every field of capture, retention, timestamps and metadata is stored."""
    given = {
        "partitionCount": 2,
        "status": "Active",
        "userMetadata": "mine",
        "retentionDescription": {"cleanupPolicy": "Delete", "retentionTimeInHours": 5},
        "messageTimestampDescription": {"timestampType": "Create"},
        "captureDescription": {
            "enabled": True,
            "encoding": "AvroDeflate",
            "intervalInSeconds": 120,
            "sizeLimitInBytes": 10485763,
            "skipEmptyArchives": True,
            "destination": {
                "name": "EventHubArchive.AzureBlockBlob",
                "identity": {"type": "SystemAssigned"},
                "properties": {
                    "storageAccountResourceId": "/x/y",
                    "blobContainer": "c",
                    "archiveNameFormat": ARCHIVE_NAMES,
                },
            },
        },
    }

    _put(arm, f"{HERE}/eventhubs/full", {"properties": given})
    shown = arm.get(f"{HERE}/eventhubs/full").json()["properties"]

    assert {name: shown[name] for name in given if name != "retentionDescription"} == {
        name: value for name, value in given.items() if name != "retentionDescription"
    }
    assert shown["retentionDescription"]["retentionTimeInHours"] == 5
    assert shown["messageRetentionInDays"] == 1


def test_what_was_read_can_be_sent_back(arm: httpx.Client) -> None:
    """Terraform reads a resource, changes one property and puts it back."""
    _put(arm, f"{HERE}/eventhubs/full", {"properties": {"messageRetentionInDays": 3, "partitionCount": 2}})
    hub = arm.get(f"{HERE}/eventhubs/full").json()
    hub["properties"]["status"] = "SendDisabled"

    answered = _put(arm, f"{HERE}/eventhubs/full", hub)
    namespace = _put(arm, HERE, arm.get(HERE).json())

    assert answered.json()["properties"]["status"] == "SendDisabled"
    assert answered.json()["properties"]["messageRetentionInDays"] == 3
    assert namespace.status_code == 200


def test_a_compacted_hub_has_unlimited_retention(arm: httpx.Client) -> None:
    """Service 8: -1, or the largest 64-bit number, and the policy stays."""
    retention = {"cleanupPolicy": "Compact", "retentionTimeInHours": 9223372036854775807, "minCompactionLagInMins": 5}

    created = _put(arm, f"{HERE}/eventhubs/table", {"properties": {"retentionDescription": retention}})
    changed = _put(
        arm, f"{HERE}/eventhubs/table", {"properties": {"retentionDescription": {"cleanupPolicy": "Delete"}}}
    )

    shown = created.json()["properties"]["retentionDescription"]
    assert (shown["cleanupPolicy"], shown["retentionTimeInHours"]) == ("Compact", -1)
    assert shown["minCompactionLagTimeInMinutes"] == 5
    assert changed.status_code == 400


def test_a_patch_changes_what_it_names(node: HttpNode, arm: httpx.Client) -> None:
    """Other properties keep their values; switching auto-inflate off resets its maximum."""
    _put(
        arm,
        HERE,
        {
            "location": "here",
            "tags": {"a": "b"},
            "sku": {"name": "Standard", "capacity": 2},
            "properties": {"isAutoInflateEnabled": True, "maximumThroughputUnits": 10},
        },
    )

    patched = arm.patch(HERE, json={"sku": {"name": "Standard", "capacity": 4}}).json()
    off = arm.patch(HERE, json={"properties": {"isAutoInflateEnabled": False}}).json()

    assert (patched["sku"]["capacity"], patched["tags"]) == (4, {"a": "b"})
    assert patched["properties"]["maximumThroughputUnits"] == 10
    assert (off["properties"]["isAutoInflateEnabled"], off["properties"]["maximumThroughputUnits"]) == (False, 0)
    assert node.broker._namespace(NAMESPACE).entity.capacity == 4


def test_keys_of_a_hub_end_with_its_name(arm: httpx.Client) -> None:
    """39: the strings work unchanged in SDKs, because they name the hub."""
    _put(arm, f"{HUB}/authorizationRules/send", {"properties": {"rights": ["send"]}})

    keys = arm.post(f"{HUB}/authorizationRules/send/listKeys").json()

    assert keys["primaryConnectionString"].endswith(f"SharedAccessKey={keys['primaryKey']};EntityPath=orders")
    assert keys["keyName"] == "send"


def test_a_key_is_regenerated_or_set(node: HttpNode, arm: httpx.Client) -> None:
    """The other key stays the same; a client may choose the new value."""
    _put(arm, f"{HUB}/authorizationRules/send", {"properties": {"rights": ["Send"]}})
    rule = f"{HUB}/authorizationRules/send"
    before = arm.post(f"{rule}/listKeys").json()

    fresh = arm.post(f"{rule}/regenerateKeys", json={"keyType": "SecondaryKey"}).json()
    mine = arm.post(f"{rule}/regenerateKeys", json={"keyType": "PrimaryKey", "key": "my own key"}).json()
    bad = arm.post(f"{rule}/regenerateKeys", json={"keyType": "ThirdKey"})

    assert fresh["primaryKey"] == before["primaryKey"]
    assert fresh["secondaryKey"] != before["secondaryKey"]
    assert (mine["primaryKey"], bad.status_code) == ("my own key", 400)


def test_lists_have_pages(arm: httpx.Client) -> None:
    """Clients page with `$skip` and `$top`; a truncated list has a next link."""
    for name in ("b", "c", "d"):
        _put(arm, f"{HERE}/eventhubs/{name}", {"properties": {"partitionCount": 1}})

    page = arm.get(f"{HERE}/eventhubs", params={"$skip": 1, "$top": 2}).json()
    bad = arm.get(f"{HERE}/eventhubs", params={"$skip": "x"})

    assert [hub["name"] for hub in page["value"]] == ["c", "d"]
    assert "nextLink" not in page
    assert bad.status_code == 400


def test_a_long_list_is_truncated_and_continued() -> None:
    """Clients follow `nextLink` until there is none."""
    overrides: dict[str, int | bool | str | None] = {"groups_per_hub": 300}
    with HttpNode(overrides=overrides) as node, node.manager() as arm:
        node.add_hub("orders")
        for index in range(120):
            _put(arm, f"{HUB}/consumergroups/group{index:03}", {}).raise_for_status()
        url: str | None = f"{HUB}/consumergroups?api-version=2024-01-01"
        names: list[str] = []
        while url is not None:
            page = arm.get(url).json()
            names += [group["name"] for group in page["value"]]
            url = page.get("nextLink")

    assert names == ["$Default", *(f"group{index:03}" for index in range(120))]


def test_network_rules_do_not_apply_to_management(node: HttpNode, arm: httpx.Client) -> None:
    """A rule that locks out every client can still be repaired."""
    rules = {"properties": {"defaultAction": "Deny", "ipRules": [{"ipMask": "10.0.0.0/8", "action": "Allow"}]}}

    shown = _put(arm, f"{HERE}/networkRuleSets/default", rules).json()
    shut_out = arm.post("/orders/messages", content=b"x")
    _put(arm, f"{HERE}/networkRuleSets/default", {"properties": {"defaultAction": "Allow"}})
    let_in = arm.post("/orders/messages", content=b"x")
    listed = arm.get(f"{HERE}/networkRuleSets").json()["value"]
    bad = _put(arm, f"{HERE}/networkRuleSets/default", {"properties": {"ipRules": [{"ipMask": "10.0.0.0/99"}]}})

    assert shown["properties"]["ipRules"] == [{"ipMask": "10.0.0.0/8", "action": "Allow"}]
    assert (shut_out.status_code, let_in.status_code, bad.status_code) == (401, 201, 400)
    assert [one["name"] for one in listed] == ["default"]


def test_a_namespace_without_public_access_is_changed_here_too(node: HttpNode, arm: httpx.Client) -> None:
    """The property is part of the namespace and of its rule set."""
    body = {"properties": {"defaultAction": "Allow", "publicNetworkAccess": "Disabled"}}

    shown = _put(arm, f"{HERE}/networkRuleSets/default", body).json()

    assert shown["properties"]["publicNetworkAccess"] == "Disabled"
    assert arm.get(HERE).json()["properties"]["publicNetworkAccess"] == "Disabled"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("brand-new", "None"), (NAMESPACE.upper(), "NameInUse"), ("x", "InvalidName"), ("a_b_c_d", "InvalidName")],
)
def test_a_name_is_free_or_not(arm: httpx.Client, name: str, reason: str) -> None:
    """checkNameAvailability, with its reason."""
    answer = arm.post("/subscriptions/s/providers/Microsoft.EventHub/checkNameAvailability", json={"name": name}).json()

    assert (answer["nameAvailable"], answer["reason"]) == (reason == "None", reason)


def test_a_second_delete_answers_204(arm: httpx.Client) -> None:
    """A namespace is deleted with its content; the node's own cannot be deleted."""
    _put(arm, f"{BASE}/namespaces/fresh-ns", {})
    _put(arm, f"{BASE}/namespaces/fresh-ns/eventhubs/h", {})
    _put(arm, f"{HUB}/consumergroups/mine", {})

    paths = (f"{HUB}/consumergroups/mine", HUB, f"{BASE}/namespaces/fresh-ns")
    statuses = [(arm.delete(path).status_code, arm.delete(path).status_code) for path in paths if path != HUB]
    hub = (arm.delete(HUB).status_code, arm.delete(HUB).status_code)

    assert [*statuses, hub] == [(200, 204), (200, 204), (200, 204)]
    assert arm.delete(HERE).status_code == 409
    assert arm.delete(f"{HERE}/eventhubs/x/consumergroups/$Default").status_code == 404


def test_a_key_with_manage_manages_its_own_namespace_only(node: HttpNode) -> None:
    """Only the administrator creates namespaces."""
    node.add_namespace("second-ns")
    node.add_rule("send", "Send")

    with node.client(Authorization=node.sas()) as client:
        own = client.get(HERE)
        other = client.get(f"{BASE}/namespaces/second-ns")
        made = client.put(f"{BASE}/namespaces/third-ns", json={})
        listed = client.get(f"{BASE}/namespaces").json()["value"]
        checked = client.post("/subscriptions/s/providers/Microsoft.EventHub/checkNameAvailability", json={"name": "a"})
    with node.client(Authorization=node.sas(rule="send")) as client:
        without_right = client.post(f"{HERE}/authorizationRules/RootManageSharedAccessKey/listKeys")

    assert [r.status_code for r in (own, other, made, checked, without_right)] == [200, 401, 401, 401, 401]
    assert [namespace["name"] for namespace in listed] == [NAMESPACE]


@pytest.mark.parametrize("credential", [None, "Bearer wrong", "Bearer", "SharedAccessSignature x", "Basic a"])
def test_other_credentials_are_refused(node: HttpNode, credential: str | None) -> None:
    """401 with ARM's envelope and a tracking id."""
    headers = {} if credential is None else {"Authorization": credential}

    with node.client(**headers) as client:
        response = client.get(HERE)

    assert response.status_code == 401
    assert "TrackingId:" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("token", "message"),
    [("wrong", "InvalidToken: The bearer token is not the administrator's token"), ("a.b.c", "UnsupportedToken")],
)
def test_admin_token_is_distinguished_from_tokens_of_an_issuer(node: HttpNode, token: str, message: str) -> None:
    """A user who mistyped the administrator's token must not get the advice to configure an issuer."""
    with node.client(Authorization=f"Bearer {token}") as client:
        response = client.get(HERE)

    assert response.status_code == 401
    assert response.json()["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    "body",
    ["{", "[]", '{"properties":5}', '{"properties":{"partitionCount":"many"}}', '{"properties":{"partitionCount":0}}',
     '{"properties":{"status":"Sleeping"}}', '{"properties":{"messageRetentionInDays":9999}}',
     '{"properties":{"captureDescription":{"enabled":true,"intervalInSeconds":1}}}',
     '{"properties":{"userMetadata":"\\ud800"}}'],
)  # fmt: skip
def test_an_invalid_body_is_refused(arm: httpx.Client, body: str) -> None:
    """The 400 names the property, and no hub is created."""
    response = arm.put(f"{HERE}/eventhubs/fresh", content=body)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "BadRequest"
    assert arm.get(f"{HERE}/eventhubs/fresh").status_code == 404


def test_lists_of_what_a_node_never_has_are_empty(arm: httpx.Client) -> None:
    """Clients list these resources before they use others."""
    kinds = (
        "schemagroups",
        "privateEndpointConnections",
        "privateLinkResources",
        "networkSecurityPerimeterConfigurations",
    )
    inside = [arm.get(f"{HERE}/{kind}").json() for kind in kinds]
    clusters = arm.get("/subscriptions/s/providers/Microsoft.EventHub/clusters").json()
    operations = arm.get("/providers/Microsoft.EventHub/operations").json()["value"]

    assert [*inside, clusters] == [{"value": []}] * 5
    assert {"Microsoft.EventHub/namespaces/read"} <= {operation["name"] for operation in operations}


def test_application_groups_need_a_tier_that_has_them(arm: httpx.Client) -> None:
    """Premium has them, Standard does not; a disabled group refuses its clients."""
    body = {"properties": {"clientAppGroupIdentifier": "SASKeyName=RootManageSharedAccessKey", "isEnabled": False}}
    refused = _put(arm, f"{HERE}/applicationGroups/g", body)

    with HttpNode(profile=Profile.PREMIUM) as node, node.manager() as premium:
        node.add_hub("orders")
        with node.client(Authorization=node.sas()) as client:
            before = client.post("/orders/messages", content=b"x").status_code
            made = _put(premium, f"{HERE}/applicationGroups/g", body)
            during = client.post("/orders/messages", content=b"x").status_code
            listed = premium.get(f"{HERE}/applicationGroups").json()["value"]
            gone = [premium.delete(f"{HERE}/applicationGroups/g").status_code for _ in range(2)]
            after = client.post("/orders/messages", content=b"x").status_code

    assert refused.status_code == 400
    assert (made.status_code, len(listed), gone) == (200, 1, [200, 204])
    assert (before, during, after) == (201, 401, 201)


def test_a_rule_is_written_in_any_case(arm: httpx.Client) -> None:
    """ARM's paths and values are case-insensitive."""
    upper = HUB.replace("resourceGroups", "RESOURCEGROUPS").replace("namespaces", "NameSpaces")

    made = _put(arm, f"{upper}/AuthorizationRules/Mine", {"properties": {"rights": ["LISTEN"]}})

    assert made.json()["properties"]["rights"] == ["Listen"]
    assert arm.get(f"{HUB}/authorizationrules/MINE").json()["name"] == "Mine"
