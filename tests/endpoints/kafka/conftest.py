"""A node with the hub `orders` (two partitions), and a client with all rights on it."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from hubmere.endpoints import certificates
from hubmere.store.secrets import NodeSecrets

# The loop of the standard library, and the one that a node prefers; there is none for Windows.
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
with contextlib.suppress(ImportError):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=LOOPS)
def either_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test on both kinds of event loop: their handles and clocks differ."""
    monkeypatch.setattr(KafkaNode, "loops", (LOOPS[request.param],))


@pytest.fixture(autouse=True)
def _patient_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch that is to be woken waits for minutes, and not for the node's limit of half a minute."""
    monkeypatch.setattr("hubmere.endpoints.kafka.fetch.fetch.MAX_WAIT_MS", 600_000)


@pytest.fixture
def node() -> Iterator[KafkaNode]:
    with KafkaNode() as node:
        yield node


@pytest.fixture
def client(node: KafkaNode) -> Iterator[RawClient]:
    with RawClient(node) as client:
        yield client.sign_in()


@pytest.fixture(scope="session")
def tls_contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server context with a certificate for localhost, and a client context that trusts it."""
    files = NodeSecrets(tmp_path_factory.mktemp("tls")).ensure_tls(("localhost",), datetime.now(UTC), certificates)
    return (
        certificates.server_context(files.certificate, files.key, None),
        ssl.create_default_context(cafile=str(files.ca)),
    )
