"""Where processors keep their checkpoints: the node itself, or Azurite, Microsoft's emulator of Blob storage."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.arena import Arena
from conformance.clients import NotInstalled, js_clients, node

_MAIN = Path("node_modules") / "azurite" / "dist" / "src" / "blob" / "main.js"
# Azurite's published account: the same on every machine.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LISTENING = re.compile(r"listens on (http://\S+)")
_END_SECONDS = 10.0


@pytest.fixture(params=["node", "azurite"])
def storage(request: pytest.FixtureRequest, arena: Arena) -> str:
    """The connection string of a storage account."""
    if request.param == "node":
        return arena.node.blob_connection_string
    azurite: str = request.getfixturevalue("azurite")
    return azurite


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Azurite's connection string; it runs in memory and on a free port."""
    try:
        command = [node(), str(js_clients() / _MAIN)]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    flags = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        endpoint = _endpoint(process)
        yield (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={endpoint}/{_ACCOUNT};"
        )
    finally:
        process.terminate()
        process.communicate(timeout=_END_SECONDS)


def _endpoint(process: "subprocess.Popen[str]") -> str:
    """What it says that it listens on."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if match := _LISTENING.search(line):
            return match.group(1)
    raise AssertionError("Azurite did not start\n" + "".join(said))
