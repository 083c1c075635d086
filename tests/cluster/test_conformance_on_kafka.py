"""The conformance suites of AMQP, HTTPS and Kafka against a gateway in front of three brokers.

The suites run in a process of their own, with the brokers in HUBMERE_CONFORMANCE_KAFKA. Tests that show something of
one node are left out, each with its reason (`conformance/on_cluster.py`).
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.machines import running_machines
from cluster.running import MARKS
from conformance.conformance_node import GATEWAY_VARIABLE
from conformance.on_cluster import DIFFERENCES, OF_ONE_NODE

pytestmark = [*MARKS, pytest.mark.timeout(1800)]
_TESTS = Path(__file__).parents[1]
AMQP_AND_HTTPS = (
    "amqp",
    "http/test_azure_mgmt.py",
    "http/test_http_to_amqp.py",
)
KAFKA = (
    "kafka/test_java.py",
    "kafka/test_confluent.py",
    "kafka/test_aiokafka.py",
    "kafka/test_kafka_python.py",
    "js/test_kafkajs.py",
)


@pytest.mark.parametrize(
    "suites",
    [
        pytest.param(AMQP_AND_HTTPS, id="amqp-and-https"),
        pytest.param(KAFKA, id="kafka", marks=pytest.mark.full),
    ],
)
def test_the_suites_pass_against_a_gateway(suites: Sequence[str], tmp_path: Path) -> None:
    """Clients must not notice that there is a cluster, except where the manual says so."""
    with running_machines(tmp_path, gateways=0) as machines:
        environment = {**os.environ, GATEWAY_VARIABLE: machines.brokers.bootstrap}
        files = [str(_TESTS / "conformance" / suite) for suite in suites]
        # Clients log so much that the failures would be cut off.
        quiet = ("-q", "-p", "no:cacheprovider", "--show-capture=no")
        command = [sys.executable, "-m", "pytest", *quiet, *files]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1500)

    assert ended.returncode == 0, ended.stdout[-20_000:]


def test_tests_that_are_left_out_exist() -> None:
    """A renamed test must not be left out by its old name, nor the new one run by mistake."""
    for name in (*DIFFERENCES, *OF_ONE_NODE):
        file, _, test = name.partition("::")
        text = (_TESTS / "conformance" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text, name
