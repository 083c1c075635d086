"""RabbitMQ as a peer: one node of Debian's package on loopback, with queues that are used over AMQP 1.0.

The package of this machine, or a newer one in a tree of its own, which needs root (Debian 13 has RabbitMQ 4):

    debootstrap --variant=minbase --include=rabbitmq-server trixie TREE
    HUBMERE_RABBITMQ_ROOT=TREE python -m bench.amqp

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

from hubmere.cli.cluster.free_ports import free_ports

# The two durable queue types; also the names of the queues.
STREAM, QUORUM = "stream", "quorum"
_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
# A variable with the folder of another Debian, in which RabbitMQ is installed.
ROOT_VARIABLE = "HUBMERE_RABBITMQ_ROOT"
# AMQP 1.0 is a plugin before this version, and addresses of queues are different.
_NATIVE_SINCE = 4
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_DECLARE = (
    'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"{kind}">>), true, false, '
    '[{{<<"x-queue-type">>, longstr, <<"{kind}">>}}], none, <<"guest">>).'
)


def missing() -> str | None:
    """The reason why RabbitMQ cannot be measured, or None."""
    root = _root()
    if not (root / _PROGRAMS.relative_to("/") / "rabbitmq-server").exists():
        return f"rabbitmq-server is not installed{'' if root == Path('/') else f' in {root}'}"
    if root != Path("/") and os.geteuid() != 0:
        return f"only root can use the RabbitMQ in {root}"
    return None


def _root() -> Path:
    return Path(os.environ.get(ROOT_VARIABLE, "/"))


def _packaged_version(root: Path) -> int:
    """The major version of the package."""
    (folder,) = (root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return int(folder.name.removeprefix("rabbitmq_server-").split(".")[0])


class RabbitMq:
    """A node for the length of a `with` block."""

    def __init__(self) -> None:
        root = _root()
        self._prefix = [] if root == Path("/") else ["chroot", str(root)]
        self._folder = Path(tempfile.mkdtemp(prefix="bench-rabbit-", dir=root / "tmp" if self._prefix else None))
        self._is_native = _packaged_version(root) >= _NATIVE_SINCE
        self._process: subprocess.Popen[bytes] | None = None
        self._port, dist_port, mapper_port = free_ports(3)
        (self._folder / "enabled_plugins").write_text(
            "[rabbitmq_stream].\n" if self._is_native else "[rabbitmq_amqp1_0,rabbitmq_stream].\n"
        )
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\nstream.listeners.tcp = none\n"
        )
        # As the broker sees its folder.
        inside = Path("/") / self._folder.relative_to(root)
        self._environment = os.environ | {
            "HOME": str(inside),
            "RABBITMQ_NODENAME": f"bench-{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(dist_port),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": str(inside / "none"),
            "RABBITMQ_CONFIG_FILE": str(inside / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(inside / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(inside / "data"),
            "RABBITMQ_LOG_BASE": str(inside / "log"),
            "RABBITMQ_PID_FILE": str(inside / "pid"),
        }

    def __enter__(self) -> Self:
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*self._prefix, str(_PROGRAMS / "rabbitmq-server")], env=self._environment, stdout=output, stderr=output
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
            subprocess.run([*self._prefix, "epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> Address:
        """Address and credential for clients."""
        return Address(host="127.0.0.1", port=self._port, user="guest", password="guest")

    @property
    def pid(self) -> int:
        """The process id of the broker itself."""
        return int((self._folder / "pid").read_text())

    @property
    def version(self) -> str:
        """The version that the broker reports."""
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
        command = [*self._prefix, str(_PROGRAMS / "rabbitmqctl"), "-q", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise BenchFailed(f"rabbitmqctl {arguments[0]}: {(done.stderr or done.stdout)[-500:]}")
        return done.stdout

    def address_of(self, queue: str) -> str:
        """The address of a queue for AMQP 1.0 links."""
        return f"/queues/{queue}" if self._is_native else f"/amq/queue/{queue}"
