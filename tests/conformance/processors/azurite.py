"""Starts Azurite, Microsoft's emulator of Blob storage, in memory and on a free port."""

import re
import subprocess
from pathlib import Path

from conformance.clients import js_clients, node

_MAIN = Path("node_modules") / "azurite" / "dist" / "src" / "blob" / "main.js"
# Azurite's public account, which is the same on every machine.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_LISTENING = re.compile(r"listens on (http://\S+)")


def start_azurite() -> "tuple[subprocess.Popen[str], str]":
    """Start it; returns the process and its connection string, or raises NotInstalled."""
    command = [node(), str(js_clients() / _MAIN)]
    flags = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    endpoint = _endpoint(process)
    return process, (
        f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={endpoint}/{_ACCOUNT};"
    )


def _endpoint(process: "subprocess.Popen[str]") -> str:
    """The address in Azurite's output."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if match := _LISTENING.search(line):
            return match.group(1)
    raise AssertionError("Azurite did not start\n" + "".join(lines))
