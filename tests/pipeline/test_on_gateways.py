"""Spark on a cluster of gateways: two Workers copy one hub to another while gateways and brokers are killed.

Row F24 of the failure matrix (`tests/cluster/matrix.py`). One gateway is killed here; with `--torture` a broker and
executors as well.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from client.hubs import Hubs
from cluster.running import MARKS, running_cluster
from cluster.running import Cluster as Gateways
from hubmere.testing import Node
from pipeline.cluster import Cluster, a_cluster
from pipeline.queries import START
from pipeline.surviving import EVENTS_PER_TRIGGER, LIFE_SECONDS, Copying
from pipeline.test_cluster import kill_next, submitted

pytestmark = [
    *MARKS,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found by /proc"),
]


@dataclass(frozen=True, slots=True)
class Front:
    """The address in front of all gateways, with the names that a node's addresses have."""

    ready: dict[str, Any]

    @property
    def kafka(self) -> str:
        """The Kafka endpoint without TLS."""
        return str(self.ready["kafka"])

    @property
    def gateways(self) -> str:
        """The Kafka endpoints of all gateways."""
        return ",".join(str(gateway["kafka"]) for gateway in self.ready["gateways"])

    @property
    def connection_string(self) -> str:
        """The connection string for connections without TLS."""
        return str(self.ready["emulator_connection_string"])


class GatewayCopying(Copying):
    """A copy through the gateways themselves: executors go on with another one if theirs is gone."""

    @property
    def options(self) -> tuple[dict[str, str], dict[str, str]]:
        """Of the source and of the target."""
        front = cast("Front", self.hubs.node)
        source, target = (
            {
                "eventhubs.connectionString": f"{front.connection_string};EntityPath={hub}",
                "eventhubs.endpoint": front.gateways,
                "eventhubs.startingPosition": START,
            }
            for hub in (self.source, self.target)
        )
        return {**source, "eventhubs.maxEventsPerTrigger": str(EVENTS_PER_TRIGGER)}, target


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "spark"
    folder.mkdir()
    with a_cluster(folder, workers=2) as running:
        yield running


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Gateways]:
    with running_cluster(tmp_path) as running:
        yield running


def test_copy_is_exact_when_a_gateway_is_killed(
    spark_cluster: Cluster, gateways: Gateways, tmp_path: Path, deaths: Callable[[int, int], int]
) -> None:
    """Executors continue at the other gateway: every event is in the target once, in order."""
    is_long = deaths(1, 2) > 1
    hubs = Hubs(cast("Node", Front(gateways.ready)))
    copying = GatewayCopying(hubs, 6 if is_long else 2, tmp_path)
    chance, killed = Random(24), {"jvm": 0, "python": 0}
    faults: list[Callable[[Callable[[], bool]], None]] = [lambda _: gateways.kill_gateway(0)]
    if is_long:
        faults += [
            lambda _: gateways.kill_broker(0),
            partial(kill_next, spark_cluster, killed, chance),
            partial(kill_next, spark_cluster, killed, chance),
        ]

    code = -1
    while code != 0:
        with submitted(spark_cluster, copying, tmp_path) as process:

            def is_over(process: Any = process) -> bool:
                return process.poll() is not None

            while faults and copying.await_open_batch(is_over) is not None:
                # The fault may hit any part of the micro-batch.
                time.sleep(chance.choice((0.0, 0.05, 0.2)))
                faults.pop(0)(is_over)
            code = process.wait(LIFE_SECONDS)

    assert not faults, (tmp_path / "driver.log").read_text()[-4000:]
    copying.assert_exact()
    hubs.client.close()
