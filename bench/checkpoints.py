"""Checkpoints per second: blob metadata written by many event processors at once, compared with Azurite.

Each connection writes the checkpoints of its own partition one after the other, as a processor does. The requests carry
a signature in their URL, so that the client costs little. The node writes each checkpoint to disk before it answers;
Azurite runs in memory, which makes it faster. Both are measured in turns; compare the ratio.

    python -m bench.checkpoints
"""

import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from azure.storage.blob import (
    AccountSasPermissions,
    ContainerClient,
    ResourceTypes,
    generate_account_sas,
)

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from conformance.clients import NotInstalled
from conformance.processors.azurite import start_azurite
from hubmere.testing import Node

_CONNECTIONS = 32
_ROUND_SECONDS = 3.0
_ROUNDS = 3


async def _write_checkpoints(url: str, deadline: float) -> list[float]:
    """Write one partition's checkpoints until the deadline; returns how long each took."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    latencies: list[float] = []
    number = 0
    while time.perf_counter() < deadline:
        number += 1
        request = (
            f"PUT {parts.path}?comp=metadata&{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"x-ms-version: 2021-08-06\r\nx-ms-meta-sequencenumber: {number}\r\nx-ms-meta-offset: {number}00\r\n"
            "Content-Length: 0\r\n\r\n"
        )
        started = time.perf_counter()
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        latencies.append(time.perf_counter() - started)
        assert head.startswith(b"HTTP/1.1 200"), head
    writer.close()
    return latencies


def _prepare(connection_string: str) -> list[str]:
    """A container with a blob for each connection; the signed URLs of the blobs."""
    with ContainerClient.from_connection_string(connection_string, "checkpoints") as container:
        if not container.exists():
            container.create_container()
        sas = generate_account_sas(
            container.account_name,
            container.credential.account_key,
            ResourceTypes(object=True),
            AccountSasPermissions(read=True, write=True),
            datetime.now(UTC) + timedelta(hours=1),
        )
        urls = []
        for number in range(_CONNECTIONS):
            blob = container.get_blob_client(f"ns/hub/$default/checkpoint/{number}")
            blob.upload_blob(b"", overwrite=True)
            urls.append(f"{blob.url}?{sas}")
        return urls


async def _round(urls: list[str]) -> tuple[float, float]:
    """Checkpoints per second, and the median latency in milliseconds."""
    deadline = time.perf_counter() + _ROUND_SECONDS
    latencies = [
        took for each in await asyncio.gather(*(_write_checkpoints(url, deadline) for url in urls)) for took in each
    ]
    return len(latencies) / _ROUND_SECONDS, statistics.median(latencies) * 1000


def main() -> None:
    """Print the table."""
    try:
        azurite, azurite_string = start_azurite()
    except NotInstalled as reason:
        print(f"Azurite is not available: {reason}")
        return
    with Node() as node, closing(_Process(azurite)):
        sides = {"node (fsync)": _prepare(node.blob_connection_string), "Azurite (memory)": _prepare(azurite_string)}
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(_ROUNDS):
            for name, urls in sides.items():
                rounds[name].append(asyncio.run(_round(urls)))
    print(f"{'server':<18} {'checkpoints/s':>14} {'p50 ms':>8}")
    for name, results in rounds.items():
        rate, latency = (statistics.median(values) for values in zip(*results, strict=True))
        print(f"{name:<18} {rate:>14,.0f} {latency:>8.1f}")
    ours, theirs = (statistics.median(rate for rate, _ in results) for results in rounds.values())
    print(f"node / Azurite: {ours / theirs:.2f}")


class _Process:
    """A child process that `contextlib.closing` can end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate(timeout=10)


if __name__ == "__main__":
    main()
