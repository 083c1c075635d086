"""Single gateways for tests: started on given brokers, and expected to start or to refuse."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

from hubmere.model.security.sas import make_token

START_SECONDS = 600.0
_ARM = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.EventHub"
_PORTS = tuple(f"--{name}-port=0" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https"))


def a_secret(folder: Path, text: str = "a secret of all gateways") -> Path:
    path = folder / "secret"
    path.write_text(text, encoding="utf-8")
    return path


def _command(brokers: str, secret: Path, *more: str) -> list[str]:
    up = (sys.executable, "-m", "hubmere", "up", "--store=cluster")
    return [*up, f"--cluster-kafka={brokers}", f"--cluster-secret-file={secret}", *_PORTS, *more]


def start_refused(brokers: str, secret: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Start a gateway that is expected to end by itself."""
    command = _command(brokers, secret, *more)
    return subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)


def error_lines(ended: "subprocess.CompletedProcess[str]") -> list[str]:
    """The error that the command prints at its end, without the lines of the log."""
    return [line for line in ended.stderr.splitlines() if line.startswith("hubmere:")]


class Gateway:
    """A running gateway."""

    def __init__(self, process: "subprocess.Popen[bytes]", ready: dict[str, Any], log: Path) -> None:
        self.process = process
        self.ready = ready
        self.log = log


@contextmanager
def running_gateway(folder: Path, brokers: str, secret: Path, *more: str) -> Iterator[Gateway]:
    """A gateway for the length of a `with` block."""
    ready_file, log = folder / "gateway-ready.json", folder / "gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(brokers, secret, f"--ready-file={ready_file}", *more),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready_file.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield Gateway(process, json.loads(ready_file.read_text(encoding="utf-8")), log)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        process.wait(300)


def get(gateway: dict[str, Any], path: str) -> tuple[int, dict[str, Any]]:
    """GET request to a gateway; returns the status and the body as JSON."""
    return ask(gateway, "GET", path)[:2]


def ask(
    gateway: dict[str, Any], method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """A request with the administrator's token; returns the status, the body as JSON, and the headers in lower case."""
    headers = {"Authorization": f"Bearer {gateway['admin_token']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{gateway['http']}{path}", method=method, data=data, headers=headers)
    status, text, headers = _send(request)
    return status, json.loads(text or "{}"), headers


def post_event(gateway: dict[str, Any], hub: str, body: str, *, partition: int = 0) -> tuple[int, str, dict[str, str]]:
    """Publish an event over HTTP to a partition; returns the status, the body, and the headers in lower case."""
    parts = dict(part.split("=", 1) for part in str(gateway["connection_string"]).split(";") if part)
    uri = f"{gateway['http']}/{hub}"
    expires_at_s = int(time.time()) + 600
    token = make_token(uri, parts["SharedAccessKeyName"], parts["SharedAccessKey"], expires_at_s=expires_at_s)
    url = f"{uri}/partitions/{partition}/messages?timeout=60"
    return _send(urllib.request.Request(url, method="POST", data=body.encode(), headers={"Authorization": token}))


def _send(request: urllib.request.Request) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(request, timeout=240) as response:
            return response.status, response.read().decode(), _lower(response.headers)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode(), _lower(refused.headers)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def put_hub(gateway: dict[str, Any], name: str, *, partitions: int = 1) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Create a hub through a gateway's resource manager."""
    path = f"{_ARM}/namespaces/hubmere/eventhubs/{name}?api-version=2024-01-01"
    properties = {"partitionCount": partitions, "messageRetentionInDays": 1}
    return ask(gateway, "PUT", path, {"properties": properties})


def delete_hub(gateway: dict[str, Any], name: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Delete a hub through a gateway's resource manager."""
    return ask(gateway, "DELETE", f"{_ARM}/namespaces/hubmere/eventhubs/{name}?api-version=2024-01-01")


def put_group(gateway: dict[str, Any], hub: str, name: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Create a consumer group through a gateway's resource manager."""
    path = f"{_ARM}/namespaces/hubmere/eventhubs/{hub}/consumergroups/{name}?api-version=2024-01-01"
    return ask(gateway, "PUT", path, {"properties": {}})
