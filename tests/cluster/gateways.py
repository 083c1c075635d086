"""Single gateways for tests: started on given brokers, expected to refuse or to serve."""

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

from hubmere.model.sas import make_token

START_SECONDS = 120.0
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


def last_words(ended: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the command itself says about its end, without the lines of the log."""
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
        process.wait(60)


def get(place: dict[str, Any], path: str) -> tuple[int, dict[str, Any]]:
    """GET of a gateway: the status, and the body as JSON."""
    return ask(place, "GET", path)[:2]


def ask(
    place: dict[str, Any], method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """A request with the admin token: the status, the body as JSON, and the headers in lower case."""
    headers = {"Authorization": f"Bearer {place['admin_token']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{place['http']}{path}", method=method, data=data, headers=headers)
    status, text, headers = _send(request)
    return status, json.loads(text or "{}"), headers


def post_event(place: dict[str, Any], hub: str, body: str) -> tuple[int, str, dict[str, str]]:
    """Publish an event over HTTP to partition 0: the status, the body, and the headers in lower case."""
    parts = dict(part.split("=", 1) for part in str(place["connection_string"]).split(";") if part)
    uri = f"{place['http']}/{hub}"
    expires_at_s = int(time.time()) + 600
    token = make_token(uri, parts["SharedAccessKeyName"], parts["SharedAccessKey"], expires_at_s=expires_at_s)
    url = f"{uri}/partitions/0/messages?timeout=60"
    return _send(urllib.request.Request(url, method="POST", data=body.encode(), headers={"Authorization": token}))


def _send(request: urllib.request.Request) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode(), _lower(response.headers)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode(), _lower(refused.headers)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def put_hub(place: dict[str, Any], name: str, *, partitions: int = 1) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Create a hub through a gateway's resource manager."""
    path = f"{_ARM}/namespaces/hubmere/eventhubs/{name}?api-version=2024-01-01"
    properties = {"partitionCount": partitions, "messageRetentionInDays": 1}
    return ask(place, "PUT", path, {"properties": properties})
