"""Object stores on this machine: Azurite, a node, and an S3 server."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from client.hubs import Hubs
from conformance.clients import NotInstalled, js_clients, node
from hubmere.testing import Node
from pipeline.capture.plans import PlanServer, a_plan_server
from pipeline.capture.stores import ACCOUNT, KEY, Store, s3_client

_MAIN = Path("node_modules") / "azurite" / "dist" / "src" / "blob" / "main.js"
_LISTENING = re.compile(r"listens on (http://\S+)")
_END_SECONDS = 300.0
_S3_KEY = "an-id"
_S3_SECRET = "a-secret-that-nobody-shows"


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Microsoft's own emulator of Blob storage; yields its endpoint with the account."""
    try:
        command = [node(), str(js_clients() / _MAIN)]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    flags = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        found = next((match for line in process.stdout if (match := _LISTENING.search(line))), None)
        assert found is not None, "Azurite did not start"
        yield f"{found[1]}/{ACCOUNT}"
    finally:
        process.terminate()
        process.communicate(timeout=_END_SECONDS)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A separate S3 server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def azure_store(azurite: str) -> Store:
    """An empty container of Azurite."""
    return _azure_store(azurite)


def _azure_store(endpoint: str) -> Store:
    from azure.storage.blob import ContainerClient

    name = f"captured-{uuid4().hex[:8]}"
    with ContainerClient(endpoint, name, credential={"account_name": ACCOUNT, "account_key": KEY}) as client:
        client.create_container()
    return Store(url=f"az://{ACCOUNT}/{name}/below", options={"endpoint": endpoint, "account_key": KEY})


@pytest.fixture(scope="session")
def own_storage() -> Iterator[str]:
    """The Blob endpoint of a node, with the same account as Azurite; yields its endpoint with the account."""
    with Node(settings={"memory": True, "blob_development_account": True}) as running:
        yield f"{running.http}/{ACCOUNT}"


@pytest.fixture
def own_store(own_storage: str) -> Store:
    """An empty container of a node."""
    return _azure_store(own_storage)


@pytest.fixture
def s3_store(s3_endpoint: str) -> Store:
    """An empty bucket."""
    name = f"captured-{uuid4().hex[:8]}"
    options = {
        "endpoint": s3_endpoint, "region": "eu-west-1", "access_key_id": _S3_KEY, "secret_access_key": _S3_SECRET,
    }  # fmt: skip
    s3_client(options).create_bucket(Bucket=name)
    return Store(url=f"s3://{name}/below", options=options)


_FIXTURES = {"az": "azure_store", "node": "own_store", "s3": "s3_store"}


@pytest.fixture(params=["file", pytest.param("az", marks=pytest.mark.full), "node", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind of destination, empty."""
    if request.param == "file":
        return Store(url=(tmp_path / "captured").as_uri(), options={})
    found: Store = request.getfixturevalue(_FIXTURES[request.param])
    return found


@pytest.fixture
def plans(hubs: Hubs) -> Iterator[PlanServer]:
    """A plan server that replaces a node; the test writes its plan."""
    with a_plan_server(hubs) as server:
        yield server
