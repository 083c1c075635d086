"""The suites of clients against a gateway in front of three brokers: AMQP, HTTPS, Kafka, programs of Kafka, and Spark.

The suites run in processes of their own, with the brokers in HUBMERE_CONFORMANCE_KAFKA; each process has its own
gateway. Tests that show something of one node are left out, each with its reason (`conformance/on_cluster.py`).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.machines import Machines, running_machines
from cluster.running import MARKS
from conformance.conformance_node import GATEWAY_VARIABLE
from conformance.on_cluster import DIFFERENCES, OF_ONE_NODE

pytestmark = [*MARKS, pytest.mark.timeout(7_200)]
_TESTS = Path(__file__).parents[1]
_CONFORMANCE = _TESTS / "conformance"
# The brokers of a suite that waits for compaction look for work each second; by default every 15 seconds.
_SETTINGS = {"log.cleaner.backoff.ms": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Files or tests that run in one process; `only` is an expression of pytest's option -k."""

    names: tuple[str, ...]
    folder: Path = _CONFORMANCE
    only: str = ""

    def arguments(self) -> list[str]:
        """For pytest."""
        return [*(str(self.folder / name) for name in self.names), *(("-k", self.only) if self.only else ())]


SUITES = {
    "amqp-and-https": Suite(names=("amqp", "http/test_azure_mgmt.py", "http/test_http_to_amqp.py")),
    "kafka": Suite(
        names=(
            "kafka/test_java.py",
            "kafka/test_confluent.py",
            "kafka/test_aiokafka.py",
            "kafka/test_kafka_python.py",
            "js/test_kafkajs.py",
        )
    ),
    # Exactly once is shown by Streams.
    "connect": Suite(names=("kafka/test_connect.py",), only="not exactly_once"),
    "mirror-maker": Suite(names=("kafka/test_mirror.py",)),
    "streams": Suite(names=("kafka/test_streams.py",), only="test_counts_are_exact_after_kills"),
    "tools": Suite(names=("kafka/test_tools.py",)),
    "spark-kafka": Suite(names=("kafka/test_spark_kafka.py",)),
    "spark-eventhubs": Suite(
        names=("test_source.py", "test_sink.py"),
        folder=_TESTS / "pipeline",
        only="all_protocols or between_its_positions or offset_of_a_row or read_back or no_duplicate",
    ),
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three brokers for all suites."""
    with running_machines(tmp_path_factory.mktemp("suites"), gateways=0, broker_settings=_SETTINGS) as running:
        yield running


@pytest.mark.parametrize("name", SUITES)
def test_the_suites_pass_against_a_gateway(name: str, machines: Machines) -> None:
    """Clients must not notice that there is a cluster, except where the manual says so."""
    environment = {**os.environ, GATEWAY_VARIABLE: machines.brokers.bootstrap}
    # Clients log so much that the failures would be cut off.
    quiet = ("-q", "-p", "no:cacheprovider", "--show-capture=no")
    command = [sys.executable, "-m", "pytest", *quiet, *SUITES[name].arguments()]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=6_000)

    assert ended.returncode == 0, ended.stdout[-20_000:]


def test_tests_that_are_left_out_exist() -> None:
    """A renamed test must not be left out by its old name, nor the new one run by mistake."""
    for name in (*DIFFERENCES, *OF_ONE_NODE):
        file, _, test = name.partition("::")
        text = (_CONFORMANCE / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text, name
