"""The paths of the capture job, and the states that other paths show."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.broker.management.capture import JobState
from hubmere.model.addresses import Addresses
from hubmere.model.entity import CaptureDestination
from log_records import messages_of

GROUP = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub"
HUB = f"{GROUP}/namespaces/{NAMESPACE}/eventhubs/orders"
STATE = f"{HUB}/captureStates/default"
PLAN, PROGRESS = "/$capture/plan", "/$capture/progress"
FILE = {
    "url": "file:///files/orders/0.avro",
    "name": "orders/0.avro",
    "sizeInBytes": 900,
    "eventCount": 3,
    "firstSequenceNumber": 0,
    "lastSequenceNumber": 2,
    "firstEnqueueTime": "2026-11-16T00:00:00Z",
    "lastEnqueueTime": "2026-11-16T00:00:59Z",
}


@pytest.fixture
def node() -> Iterator[HttpNode]:
    """A node that also says where its Kafka ports are, with the hub `orders`."""
    with HttpNode(kafka_ports=(9092, 9093)) as running:
        running.add_hub("orders")
        yield running


@pytest.fixture
def admin(node: HttpNode) -> Iterator[httpx.Client]:
    """The administrator."""
    with node.manager() as client:
        yield client


def _capture(client: httpx.Client, **description: object) -> httpx.Response:
    return client.put(HUB, json={"properties": {"captureDescription": {"enabled": True, **description}}})


def _progress(hub_id: str, *, hub: str = "orders", captured: int = 3, partition: int = 0) -> dict[str, object]:
    part = {
        "partition": partition, "captured": captured, "backlogBytes": 10, "windowStart": "2026-11-16T00:00:00Z",
        "lastFile": FILE, "files": 1, "events": 3, "bytes": 900,
    }  # fmt: skip
    result = {"namespace": NAMESPACE, "hub": hub, "id": hub_id, "error": None, "partitions": [part]}
    return {"job": {"pid": 7, "state": "running", "sparkVersion": "4.3.0", "master": "local[2,4]"}, "hubs": [result]}


def _planned_id(client: httpx.Client) -> str:
    return str(client.get(PLAN).json()["hubs"][0]["id"])


# --- the plan --------------------------------------------------------------------------------------------------------


def test_the_plan_says_what_to_capture_and_how_to_read_it(node: HttpNode, admin: httpx.Client) -> None:
    """The plan is everything that the job knows about the node."""
    admin.post("/orders/partitions/1/messages", content=b"before")
    empty = admin.get(PLAN).json()
    _capture(admin, encoding="Parquet", intervalInSeconds=60, skipEmptyArchives=True)

    plan = admin.get(PLAN).json()
    [hub] = plan["hubs"]

    assert empty["hubs"] == []
    assert plan["revision"] != empty["revision"]
    assert (plan["bootstrap"], plan["security"]) == ("127.0.0.1:9092", "SASL_PLAINTEXT")
    assert (hub["namespace"], hub["hub"], hub["partitionCount"]) == (NAMESPACE, "orders", 4)
    assert hub["since"] == {"0": 0, "1": 1, "2": 0, "3": 0}
    assert (hub["encoding"], hub["intervalSeconds"], hub["skipEmptyArchives"]) == ("Parquet", 60, True)
    assert hub["sizeLimitBytes"] == 314572800
    assert hub["nameFormat"].startswith("{Namespace}/{EventHub}/")
    assert hub["destination"]["url"].startswith("file:///")
    assert "EntityPath=orders" in hub["connectionString"]


def test_the_plan_stays_the_same_while_nothing_changes(admin: httpx.Client) -> None:
    """The job compares revisions; a report is no change."""
    _capture(admin)
    first = admin.get(PLAN).json()
    admin.post(PROGRESS, json=_progress(first["hubs"][0]["id"]))

    assert admin.get(PLAN).json() == first


def test_capture_switched_off_and_on_gets_a_new_id(admin: httpx.Client) -> None:
    """The job must not continue from its old checkpoint."""
    _capture(admin)
    first = _planned_id(admin)
    _capture(admin, enabled=False)
    off = admin.get(PLAN).json()["hubs"]
    _capture(admin)

    assert off == []
    assert _planned_id(admin) != first


@pytest.mark.parametrize(("method", "path"), [("GET", PLAN), ("POST", PROGRESS)])
def test_only_the_administrator_gets_the_plan(node: HttpNode, method: str, path: str) -> None:
    """The plan holds keys; a key of the namespace, even one with Manage, is not enough."""
    with node.client() as client:
        bare = client.request(method, path, json={"job": {}})
        wrong = client.request(method, path, json={"job": {}}, headers={"Authorization": "Bearer wrong"})
        key = client.request(method, path, json={"job": {}}, headers={"Authorization": node.sas()})

    assert [answer.status_code for answer in (bare, wrong, key)] == [401, 401, 401]
    assert all("error" in answer.json() for answer in (bare, wrong, key))


def test_a_node_without_a_kafka_port_says_so() -> None:
    """The job reads over Kafka."""
    with HttpNode() as node, node.manager() as client:
        answer = client.get(PLAN)

    assert answer.status_code == 400
    assert "Kafka port" in answer.json()["error"]["message"]


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_shows_in_the_management_api(admin: httpx.Client) -> None:
    """The state of a hub has lag, last file, the job and each partition."""
    _capture(admin)
    for _ in range(5):
        admin.post("/orders/partitions/0/messages", content=b"x")

    kept = admin.post(PROGRESS, json=_progress(_planned_id(admin)))
    state = admin.get(STATE).json()
    listed = admin.get(f"{GROUP}/namespaces/{NAMESPACE}/captureStates").json()["value"]
    shown = state["properties"]

    assert (kept.status_code, kept.content) == (204, b"")
    assert state["type"] == "Microsoft.EventHub/namespaces/eventhubs/captureStates"
    assert (shown["state"], shown["lagEvents"], shown["files"], shown["bytes"]) == ("Running", 2, 1, 900)
    assert shown["lastFile"]["fileUrl"] == FILE["url"]
    assert shown["job"] | {"reason": ""} == {
        "state": "Running", "reason": "", "pid": 7, "restarts": 0, "alarm": False,
        "sparkVersion": "4.3.0", "master": "local[2,4]",
    }  # fmt: skip
    assert [part["captured"] for part in shown["partitions"]] == [3, 0, 0, 0]
    assert shown["partitions"][0]["windowStart"] == "2026-11-16T00:00:00Z"
    assert [one["properties"]["eventHub"] for one in listed] == ["orders"]


def test_a_hub_whose_query_is_not_up_is_shown_as_starting(admin: httpx.Client) -> None:
    """The job reports from its first second on, and captures nothing before Spark has started its processes."""
    _capture(admin)
    progress: Any = _progress(_planned_id(admin))
    progress["job"]["state"] = progress["hubs"][0]["state"] = "starting"

    admin.post(PROGRESS, json=progress)
    shown = admin.get(STATE).json()["properties"]

    assert (shown["state"], shown["job"]["state"]) == ("Starting", "Starting")


def test_the_state_of_a_hub_without_capture_is_off(admin: httpx.Client) -> None:
    """The request is not an error."""
    shown = admin.get(STATE).json()["properties"]
    listed = admin.get(f"{HUB}/captureStates").json()["value"]

    assert (shown["state"], shown["files"], shown["partitions"]) == ("Off", 0, [])
    assert len(listed) == 1


def test_each_new_file_is_logged_once(admin: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    """The line has the fields that the Azure service sends to Event Grid."""
    _capture(admin)
    report = _progress(_planned_id(admin))
    with caplog.at_level(logging.INFO, "hubmere.capture"):
        admin.post(PROGRESS, json=report)
        admin.post(PROGRESS, json=report)

    [line] = [text for text in messages_of(caplog, "hubmere.capture") if text.startswith("CaptureFileCreated")]
    assert "eventhubs/orders" in line
    for word in ("fileUrl", "partitionId", "sizeInBytes", "eventCount", "firstSequenceNumber", "lastEnqueueTime"):
        assert f'"{word}"' in line


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"job": 1}',
        b'{"job": {}, "hubs": [{"namespace": "n"}]}',
        b'{"job": {}, "hubs": [{"namespace": "n", "hub": "h", "id": "i", "partitions": [{"partition": -1}]}]}',
        b'{"job": {"pid": 0}}',
    ],
)
def test_the_refusal_of_an_invalid_report_names_the_problem(admin: httpx.Client, body: bytes) -> None:
    """It has ARM's error format."""
    answer = admin.post(PROGRESS, content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_report_about_an_unknown_hub_changes_nothing(admin: httpx.Client) -> None:
    """A hub may be deleted while the job reports on it."""
    _capture(admin)

    answers = [
        admin.post(PROGRESS, json=_progress("another-id")),
        admin.post(PROGRESS, json=_progress(_planned_id(admin), hub="nobody")),
    ]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert admin.get(STATE).json()["properties"]["files"] == 0


def test_a_report_about_a_missing_partition_is_refused(admin: httpx.Client) -> None:
    """The job must learn about its mistake."""
    _capture(admin)

    answer = admin.post(PROGRESS, json=_progress(_planned_id(admin), partition=4))

    assert answer.status_code == 400
    assert "partition" in answer.json()["error"]["message"]


def test_metrics_have_what_was_captured_and_what_waits(node: HttpNode, admin: httpx.Client) -> None:
    """Metrics have the service's names, and one of our own for what retention holds back."""
    _capture(admin)
    for _ in range(5):
        admin.post("/orders/partitions/0/messages", content=b"x")
    admin.post(PROGRESS, json=_progress(_planned_id(admin)))

    lines = admin.get("/metrics").text.splitlines()
    labels = f'{{namespace="{NAMESPACE}",eventhub="orders"}}'
    samples = {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines if labels in line)}

    assert samples[f"hubmere_captured_messages_total{labels}"] == 3
    assert samples[f"hubmere_captured_bytes_total{labels}"] == 900
    assert samples[f"hubmere_capture_lag_messages{labels}"] == 2
    assert samples[f"hubmere_capture_backlog_bytes{labels}"] > 0
    assert samples[f"hubmere_capture_held_bytes{labels}"] == 0
    assert samples[f"hubmere_capture_failing{labels}"] == 0
    assert "hubmere_capture_job_restarts_total 0" in lines


def test_every_state_and_metric_is_in_the_manual(admin: httpx.Client) -> None:
    """Operators look up states and metrics in the manual."""
    manual = (Path(__file__).parents[3] / "docs" / "reference" / "capture.md").read_text(encoding="utf-8")
    _capture(admin)
    text = admin.get("/metrics").text
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE hubmere_capture")}

    missing = [word for word in (*(state.value for state in JobState), *sorted(names)) if f"`{word}`" not in manual]

    assert missing == []
    assert len(names) >= 8


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["Avro", "avrodeflate", "Parquet", "DELTA"])
def test_every_encoding_is_accepted_in_any_case(admin: httpx.Client, encoding: str) -> None:
    """The last two do not exist in the Azure service."""
    shown = _capture(admin, encoding=encoding).json()["properties"]["captureDescription"]

    assert shown["encoding"].lower() == encoding.lower()


@pytest.mark.parametrize(
    "destination",
    [
        {"properties": {"storageAccountResourceId": "file:///etc"}},
        {"properties": {"blobContainer": "../up"}},
        {"properties": {"archiveNameFormat": f"../{CaptureDestination().archive_name_format}"}},
    ],
)
def test_a_destination_outside_the_places_for_files_is_refused(
    admin: httpx.Client, destination: dict[str, object]
) -> None:
    """The hub is unchanged."""
    answer = _capture(admin, destination=destination)

    assert answer.status_code == 400
    assert "captureDescription" not in admin.get(HUB).json()["properties"]


def test_the_hubs_connection_string_names_the_hub_whosever_rule_it_is(node: HttpNode) -> None:
    """A rule of the namespace does not name a hub."""
    view = node.broker.entities
    rule = view.rules(view.namespace(NAMESPACE))[0]

    text = Addresses(namespace=NAMESPACE).capture_connection_string(rule, "orders", "proof")

    assert text.endswith("EntityPath=orders;CaptureCredential=proof")
