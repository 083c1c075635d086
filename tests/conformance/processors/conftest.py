"""Azurite, Microsoft's own emulator of Blob storage, where processors keep their checkpoints."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.clients import NotInstalled, js_clients, node

_MAIN = Path("node_modules") / "azurite" / "dist" / "src" / "blob" / "main.js"
# Azurite's published account: the same on every machine.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LISTENING = re.compile(r"listens on (http://\S+)")
_END_SECONDS = 10.0


@pytest.fixture(scope="session")
def storage() -> Iterator[str]:
    """The connection string of a storage account, in memory and on a free port."""
    try:
        command = [node(), str(js_clients() / _MAIN)]
    except NotInstalled as reason:
        pytest.skip(str(reason))
    flags = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    azurite = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        endpoint = _endpoint(azurite)
        yield (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={endpoint}/{_ACCOUNT};"
        )
    finally:
        azurite.terminate()
        azurite.communicate(timeout=_END_SECONDS)


def _endpoint(azurite: "subprocess.Popen[str]") -> str:
    """What it says that it listens on."""
    assert azurite.stdout is not None
    said = []
    for line in azurite.stdout:
        said.append(line)
        if match := _LISTENING.search(line):
            return match.group(1)
    raise AssertionError("Azurite did not start\n" + "".join(said))
