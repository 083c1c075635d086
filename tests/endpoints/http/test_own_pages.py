"""Health, readiness, metrics and the description of the surface."""

import errno
import os
import re
from pathlib import Path

import httpx
import pytest

from endpoints.http.harness import NAMESPACE, HttpNode
from hubmere.broker.monitoring.conditions import Condition, ConditionSeverity
from hubmere.endpoints.http.arm.openapi import openapi_path
from hubmere.endpoints.http.server.routes import ALL
from hubmere.store.files import Files


def test_health_has_the_format_of_the_emulator(node: HttpNode) -> None:
    """Compose files for the official emulator check it."""
    with node.client() as client:
        response = client.get("/health")

    assert response.status_code == 200
    assert response.json() == {"status": "healthy", "message": "Service is healthy."}


def test_ready_counts_namespaces_and_hubs(node: HttpNode) -> None:
    """The node has one namespace and one hub."""
    with node.client() as client:
        result = client.get("/ready").json()

    counted = {"namespaces": 1, "eventHubs": 1, "offlinePartitionCount": 0, "offlinePartitions": []}
    sound = {"damagedRangeCount": 0, "damagedRanges": [], "conditions": []}
    sound |= {"recoveringPartitionCount": 0, "recoveringPartitions": []}
    assert result == {"status": "ready", **counted, **sound}


def test_unreadable_events_are_reported_in_health_readiness_and_metrics(node: HttpNode) -> None:
    """Operators must learn about damage while there is still a copy."""
    hub = node.broker._namespace(NAMESPACE).hub("orders")
    hub.log(1)
    for _ in range(2):
        hub.report_unreadable(1, 40, 43, "its records do not decompress")

    with node.client() as client:
        health, ready, samples = client.get("/health"), client.get("/ready").json(), _samples(client)

    assert (health.status_code, health.json()["status"]) == (200, "healthy")
    assert "1 ranges of stored events cannot be read" in health.json()["warnings"][0]
    assert ready["status"] == "degraded"
    assert ready["damagedRanges"] == [
        {
            "partition": f"{NAMESPACE}/orders/1",
            "firstSequenceNumber": 40,
            "lastSequenceNumber": 42,
            "kind": "not decodable",
            "reason": "its records do not decompress",
            "place": "",
        }
    ]
    labels = f'{{namespace="{NAMESPACE}",eventhub="orders"}}'
    assert (samples[f"hubmere_damaged_ranges{labels}"], samples[f"hubmere_damaged_events{labels}"]) == (1, 3)


def test_conditions_of_the_machine_are_reported_in_health_and_readiness(node: HttpNode) -> None:
    """A disk that fills up is reported before it is full."""
    node.broker.conditions.set(
        Condition(name="disk", severity=ConditionSeverity.WARNING, text="The disk is nearly full.", remedy="Add room.")
    )

    with node.client() as client:
        health, ready = client.get("/health").json(), client.get("/ready").json()

    assert health["warnings"] == ["The disk is nearly full."]
    assert ready["status"] == "degraded"
    assert ready["conditions"] == [{"name": "disk", "severity": "warning", "message": "The disk is nearly full."}]


class _FailingDisk(Files):
    """A disk whose flushes fail on request."""

    def __init__(self) -> None:
        self.is_failing = False
        self.fdatasync = self._fdatasync

    def _fdatasync(self, fd: int) -> None:
        if self.is_failing:
            raise OSError(errno.EIO, "the disk is broken")
        os.fdatasync(fd)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> int:
        if self.is_failing:
            raise OSError(errno.EIO, "the disk is broken")
        return super().open(path, create=create, write=write)


def test_ready_names_the_partitions_that_are_offline(tmp_path: Path) -> None:
    """The node still serves the others."""
    disk = _FailingDisk()
    with HttpNode(data=tmp_path, files=disk) as node, node.client(Authorization=node.sas()) as client:
        node.add_hub("orders")
        client.post("/orders/partitions/2/messages", content=b"x").raise_for_status()
        disk.is_failing = True
        refused = client.post("/orders/partitions/2/messages", content=b"x")
        result = client.get("/ready")
        disk.is_failing = False

    assert (refused.status_code, result.status_code) == (503, 200)
    assert result.json()["status"] == "degraded"
    assert result.json()["offlinePartitions"] == [f"{NAMESPACE}/orders/2"]


def test_connections_are_counted_while_they_are_open(node: HttpNode) -> None:
    """A connection counts once, however many requests it has."""
    with node.client() as client:
        client.get("/health")
        client.get("/health")
        during = node.broker.counters.active_connections
        samples = _samples(client)
    node.await_connections(0)

    assert (during, samples["hubmere_active_connections"], samples["hubmere_connections_opened_total"]) == (1, 1, 1)


def test_a_connection_beyond_the_limit_cannot_publish() -> None:
    """It may check health and manage, with one request; other connections stay open."""
    with HttpNode(max_connections=1) as node, node.client() as first:
        first.get("/health")
        with node.client() as second:
            health, publication = second.get("/health"), second.post("/orders/messages", content=b"x")

        assert (health.status_code, publication.status_code) == (200, 503)
        assert health.headers["connection"] == publication.headers["connection"] == "close"
        assert first.get("/health").status_code == 200


def _samples(client: httpx.Client) -> dict[str, float]:
    text = client.get("/metrics").text
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}


def test_metrics_count_what_was_published(node: HttpNode) -> None:
    """Names of the service in snake case, labels namespace and eventhub."""
    with node.client(Authorization=node.sas()) as client:
        client.post("/orders/messages", content=b"12345")
        samples = _samples(client)

    labels = f'{{namespace="{NAMESPACE}",eventhub="orders"}}'
    assert samples[f"hubmere_incoming_messages_total{labels}"] == 1
    assert samples[f"hubmere_incoming_bytes_total{labels}"] == 5
    assert samples[f"hubmere_size_bytes{labels}"] > 0
    assert "hubmere_active_connections" in samples


def test_every_metric_is_described(node: HttpNode) -> None:
    """The exposition format: HELP and TYPE before the samples of a name."""
    with node.client() as client:
        lines = client.get("/metrics").text.splitlines()

    declared = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    histograms = {line.split()[2] for line in lines if line.startswith("# TYPE") and line.endswith(" histogram")}
    series = {f"{name}_{suffix}" for name in histograms for suffix in ("bucket", "sum", "count")}
    sampled = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
    # There are no readers.
    silent = {"hubmere_consumer_lag_events"}
    assert sampled == declared - histograms - silent | series


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        (None, False),
        ("*/*", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.2,text/plain", False),
        ("application/openmetrics-text;q=0, text/plain;q=0.1", False),
    ],
)
def test_metrics_have_the_format_that_the_scraper_prefers(
    node: HttpNode, accept: str | None, is_openmetrics: bool
) -> None:
    """OpenMetrics on request only: older tools read the older format."""
    with node.client(**({} if accept is None else {"Accept": accept})) as client:
        response = client.get("/metrics")

    kind = response.headers["content-type"].partition(";")[0]
    assert kind == ("application/openmetrics-text" if is_openmetrics else "text/plain")
    assert response.text.endswith("\n# EOF\n") is is_openmetrics
    counter = "hubmere_incoming_messages" if is_openmetrics else "hubmere_incoming_messages_total"
    assert f"# TYPE {counter} counter\n" in response.text
    assert "\nhubmere_incoming_messages_total{" in response.text


def test_the_openapi_document_has_every_route(node: HttpNode) -> None:
    """The document is generated from the routes."""
    with node.client() as client:
        document = client.get("/openapi.json").json()

    routed = {(openapi_path(pattern), method.lower()) for pattern, handlers in ALL.items() for method in handlers}
    described = {(path, method) for path, operations in document["paths"].items() for method in operations}
    assert routed <= described
    assert {path for path, _ in described - routed} == {
        "/{hub}/messages",
        "/{hub}/partitions/{partition}/messages",
        "/{hub}/publishers/{publisher}/messages",
    }


def test_operation_ids_are_unique(node: HttpNode) -> None:
    """Client generators name methods by them."""
    with node.client() as client:
        document = client.get("/openapi.json").json()

    ids = [operation["operationId"] for operations in document["paths"].values() for operation in operations.values()]
    assert sorted(set(ids)) == sorted(ids)


def test_a_wrong_method_is_405_and_an_unknown_path_is_not_found(node: HttpNode) -> None:
    """Every request to an unknown route is refused."""
    with node.manager() as client:
        assert client.post("/health").status_code == 405
        assert client.put("/metrics").status_code == 405
        assert client.get("/a/b/c/d").status_code == 404
