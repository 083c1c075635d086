"""Three gateways and three brokers: throughput units of a namespace as a whole, and gateways that know each other."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cluster.gateways import ask, get, put_hub
from cluster.running import MARKS, Cluster, eventually, running_cluster
from hubmere.model.security.sas import make_token

pytestmark = MARKS
MB = 1024 * 1024
EVENT_BYTES = 32 * 1024
_ARM = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.EventHub"
_NAMESPACE = f"{_ARM}/namespaces/hubmere?api-version=2024-01-01"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("units"), "--as=standard", gateways=3) as running:
        assert eventually(lambda: put_hub(running.gateway(0), "orders", partitions=2)[0] == 200)
        yield running


class Load:
    """A client of one gateway that publishes as fast as it may, over HTTP; `sent` are times of accepted events.

    With several connections its rate does not depend on how long a busy machine takes for one answer.
    """

    def __init__(self, gateway: dict[str, Any], *, connections: int = 1) -> None:
        self.sent: list[float] = []
        self._gateway = gateway
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(connections)]

    def _run(self) -> None:
        parts = dict(part.split("=", 1) for part in str(self._gateway["connection_string"]).split(";") if part)
        url = urlsplit(f"{self._gateway['http']}/orders")
        expires_at_s = int(time.time()) + 600
        token = make_token(
            url.geturl(), parts["SharedAccessKeyName"], parts["SharedAccessKey"], expires_at_s=expires_at_s
        )
        connection = http.client.HTTPConnection(str(url.hostname), url.port or 80, timeout=240)
        body = b"x" * EVENT_BYTES
        try:
            while not self._stopping.is_set():
                connection.request("POST", "/orders/messages", body, {"Authorization": token})
                response = connection.getresponse()
                response.read()
                if response.status == 201:
                    self.sent.append(time.monotonic())
                else:
                    assert response.status in (429, 503), response.status
                    self._stopping.wait(0.05)
        finally:
            connection.close()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def best_rate(sent: list[float], seconds: float) -> float:
    """The most bytes per second in any time of this length."""
    times, first, best = sorted(sent), 0, 0
    for last, at in enumerate(times):
        while at - times[first] > seconds:
            first += 1
        best = max(best, last - first + 1)
    return best * EVENT_BYTES / seconds


def change(cluster: Cluster, **properties: object) -> None:
    wish = {"properties": properties}
    # A busy cluster may ask for another attempt.
    assert eventually(lambda: ask(cluster.gateway(0), "PATCH", _NAMESPACE, wish)[0] in (200, 201, 202))


def units(cluster: Cluster, gateway: int) -> int:
    return int(get(cluster.gateway(gateway), _NAMESPACE)[1]["sku"]["capacity"])


def test_lone_client_has_most_of_the_units_on_any_gateway(cluster: Cluster) -> None:
    """A third of one unit would be 0.33 MB/s; the other gateways leave it what they do not use."""
    for number in range(3):
        with Load(cluster.gateway(number), connections=8) as load:
            assert eventually(lambda load=load: best_rate(load.sent[10:], 4.0) >= 0.9 * MB)  # type: ignore[misc]


def test_clients_of_all_gateways_share_the_units(cluster: Cluster) -> None:
    """Each gateway alone would allow one unit."""
    with Load(cluster.gateway(0)) as one, Load(cluster.gateway(1)) as two, Load(cluster.gateway(2)) as three:
        loads, began = (one, two, three), time.monotonic()
        assert eventually(
            lambda: time.monotonic() > began + 25 and all(best_rate(load.sent, 10.0) > 0.1 * MB for load in loads)
        )
    sent = one.sent + two.sent + three.sent

    assert best_rate(sent, 10.0) <= 1.15 * MB


def test_every_gateway_knows_all_gateways(cluster: Cluster) -> None:
    """An operator who reaches any gateway sees the whole cluster: health, metrics, doctor and status."""
    addresses = {str(gateway["amqps"]).rpartition(":")[2] for gateway in cluster.ready["gateways"]}
    for number in range(3):
        gateway = cluster.gateway(number)

        def shown(gateway: dict[str, Any] = gateway) -> list[dict[str, Any]]:
            return list(get(gateway, "/ready")[1]["gateways"])

        assert eventually(lambda: all(each["controlLogLag"] is not None for each in shown()))
        found = shown()
        assert {each["address"].rpartition(":")[2] for each in found} == addresses
        assert [each["isThis"] for each in found].count(True) == 1
        assert sum("auto-inflate" in each["roles"] for each in found) == 1
        metrics = urllib.request.urlopen(f"{gateway['http']}/metrics", timeout=240)
        with metrics:
            text = metrics.read().decode()
        assert text.count("hubmere_gateway_control_log_lag{") == 3


def test_commands_show_all_gateways(cluster: Cluster, tmp_path: Path) -> None:
    """`cluster status` asks the brokers, and `doctor` a gateway."""
    assert eventually(lambda: all(each["lag"] is not None for each in read_status(cluster)["gateways"]))
    status = read_status(cluster)
    ready_file = tmp_path / "ready.json"
    ready_file.write_text(json.dumps(cluster.gateway(1)), encoding="utf-8")

    doctor = run("doctor", "--gateways", f"--ready-file={ready_file}")

    assert len(status["gateways"]) == 3
    assert {"snapshots", "auto-inflate"} <= set(status["roles"])
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert doctor.stdout.count("checked  ") == 3


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hubmere", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def read_status(cluster: Cluster) -> dict[str, Any]:
    ready_file = Path(str(cluster.ready["ca_file"]))
    brokers = ",".join(broker["address"] for broker in cluster.ready["brokers"])
    ended = run(
        "cluster",
        "status",
        f"--cluster-kafka={brokers}",
        f"--cluster-secret-file={ready_file.with_name('cluster-secret')}",
    )
    assert ended.returncode == 0, ended.stderr
    status: dict[str, Any] = json.loads(ended.stdout)
    return status


@pytest.mark.harmful
def test_units_grow_once_for_all_gateways(cluster: Cluster) -> None:
    """Three gateways see the same load; they must not add three units for it."""
    change(cluster, isAutoInflateEnabled=True, maximumThroughputUnits=2)

    with Load(cluster.gateway(1), connections=8), Load(cluster.gateway(2), connections=8):
        assert eventually(lambda: units(cluster, 0) == 2)

    assert eventually(lambda: [units(cluster, number) for number in range(3)] == [2, 2, 2])


@pytest.mark.harmful
def test_gateway_that_is_killed_is_shown_as_gone(cluster: Cluster, tmp_path: Path) -> None:
    """Its portal is gone with it: the others say so, for some minutes, and since when."""
    address = str(cluster.gateway(2)["amqps"]).rpartition(":")[2]
    ready_file = tmp_path / "ready.json"
    ready_file.write_text(json.dumps(cluster.gateway(0)), encoding="utf-8")

    cluster.kill_gateway(2)

    def gone() -> list[dict[str, Any]]:
        return [each for each in read_status(cluster)["gateways"] if each["state"] == "gone"]

    assert eventually(lambda: len(gone()) == 1)
    (found,) = gone()
    assert found["lastSeen"].endswith("Z")
    assert found["machine"] == socket.gethostname()
    assert found["address"].rpartition(":")[2] == address
    shown = [each for each in get(cluster.gateway(1), "/ready")[1]["gateways"] if each["isGone"]]
    assert [each["lastSeen"] is not None for each in shown] == [True]
    doctor = run("doctor", "--gateways", f"--ready-file={ready_file}")
    assert doctor.returncode == 1, doctor.stdout + doctor.stderr
    assert "it has not reported since" in doctor.stdout
    with urllib.request.urlopen(f"{cluster.gateway(0)['http']}/metrics", timeout=240) as metrics:
        text = metrics.read().decode()
    assert [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("hubmere_gateway_up{")].count(
        "0"
    ) == 1
