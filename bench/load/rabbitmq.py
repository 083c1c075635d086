"""RabbitMQ as a peer: Debian's package, one node of its own on loopback, queues read and written over AMQP 1.0.

A stream is most similar to a partition: an append-only log whose writes are acknowledged from the page cache. The
node has its own folder, ports and port mapper, so that another RabbitMQ on the machine is not affected, and ends with
the `with` block.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.load.library import BenchFailed
from bench.load.raw_amqp import Address

# The two durable kinds of queues; also used as names.
STREAM, QUORUM = "stream", "quorum"
_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_DECLARE = (
    'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"{kind}">>), true, false, '
    '[{{<<"x-queue-type">>, longstr, <<"{kind}">>}}], none, <<"guest">>).'
)


def missing() -> str | None:
    """Why there is no RabbitMQ to compare with; None when there is one."""
    if not (_PROGRAMS / "rabbitmq-server").exists():
        return "rabbitmq-server is not installed"
    return None


class RabbitMq:
    """A node for the length of a `with` block."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-rabbit-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._port, dist_port, mapper_port = _free_ports(3)
        plugins = self._folder / "enabled_plugins"
        plugins.write_text("[rabbitmq_amqp1_0,rabbitmq_stream].\n")
        config = self._folder / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\nstream.listeners.tcp = none\n")
        self._environment = os.environ | {
            "HOME": str(self._folder),
            "RABBITMQ_NODENAME": f"bench-{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(dist_port),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
        }

    def __enter__(self) -> Self:
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [_PROGRAMS / "rabbitmq-server"], env=self._environment, stdout=output, stderr=output
            )
        try:
            self._await_port()
            self._control("await_startup")
            for kind in (STREAM, QUORUM):
                self._control("eval", _DECLARE.format(kind=kind))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the node and its port mapper, and remove their files."""
        if self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> Address:
        """Where clients go."""
        return Address(host="127.0.0.1", port=self._port, user="guest", password="guest")

    @property
    def pid(self) -> int:
        """The process of the broker itself."""
        return int((self._folder / "pid").read_text())

    @property
    def version(self) -> str:
        """As the broker says it."""
        answer = self._control("eval", "rabbit_misc:version().")
        return answer.strip().strip('"')

    def _await_port(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise BenchFailed(f"RabbitMQ did not start: {(self._folder / 'output').read_text()[-500:]}")
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise BenchFailed("RabbitMQ did not open its port in time")

    def _control(self, *arguments: str) -> str:
        command = [str(_PROGRAMS / "rabbitmqctl"), "-q", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise BenchFailed(f"rabbitmqctl {arguments[0]}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout


def address_of(queue: str) -> str:
    """The address of a queue for AMQP 1.0 links."""
    return f"/amq/queue/{queue}"


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
