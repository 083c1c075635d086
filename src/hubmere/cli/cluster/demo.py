"""The demo of a cluster: local Kafka brokers, gateways in front of them, and one address for all of it.

Runs until SIGTERM or Ctrl-C. All files are deleted at the end unless a folder was given for the brokers' data.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hubmere.cli.cluster.balancer import Balancer, Health
from hubmere.cli.cluster.brokers import BrokersFailed, LocalBrokers, WrongSetup, find_programs
from hubmere.cli.cluster.children import end_with_parent
from hubmere.cli.cluster.free_ports import free_ports, is_free
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.store.files import acquire_lock

_SERVICES: Final = ("amqp", "amqps", "kafka", "kafkas", "http", "https")
_START_SECONDS: Final = 600.0
_END_SECONDS: Final = 20.0
_POLL_S: Final = 0.1
_LOG_TAIL: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of the demo; without `data`, a temporary folder is used. `gateway_options` are for each gateway."""

    gateways: int = 3
    brokers: int = 3
    data: Path | None = None
    ready_file: Path | None = None
    gateway_options: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gateway:
    process: "subprocess.Popen[bytes]"
    ready_file: Path
    log: Path


class _Stopped(Exception):
    """The demo was stopped before all of it had started."""


def run(plan: Plan) -> None:
    """Run the demo until it is stopped; raises CommandFailed when something does not start."""
    # Also while brokers start: whatever runs already is ended.
    signal.signal(signal.SIGTERM, _on_term)
    if plan.ready_file is not None:
        # Of an earlier run: nobody must take it for this one.
        plan.ready_file.unlink(missing_ok=True)
    with suppress(KeyboardInterrupt, _Stopped), ExitStack() as stack:
        try:
            find_programs()
            folder = _lock_folder(plan, stack)
            brokers = LocalBrokers(folder / "kafka", plan.brokers, end_with_parent=True)
            stack.callback(brokers.stop)
            _say(f"starting Kafka brokers: {plan.brokers}")
            brokers.start()
        except BrokersFailed as failed:
            code = Exit.USAGE if isinstance(failed, WrongSetup) else Exit.FAILED
            raise CommandFailed(code, str(failed)) from failed
        ports = _shared_ports(folder)
        gateways: list[_Gateway] = []
        stack.callback(_stop_all, gateways)
        gateways.extend(_start_gateway(plan, folder, number, brokers, ports) for number in range(plan.gateways))
        # Everything is ended once, however often somebody asks.
        stack.callback(signal.signal, signal.SIGTERM, signal.SIG_IGN)
        asyncio.run(_serve(plan, folder, brokers, gateways, ports))


def _lock_folder(plan: Plan, stack: ExitStack) -> Path:
    """The folder of all files; raises FolderInUse if another demo uses it."""
    if plan.data is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubmere-cluster-")))
    plan.data.mkdir(parents=True, exist_ok=True)
    stack.callback(acquire_lock(plan.data).release)
    return plan.data


def _on_term(*_: object) -> None:
    # Once: the next one must not interrupt what ends the brokers.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _shared_ports(folder: Path) -> dict[str, int]:
    """The ports of the one address: those of the last run with this data, if they are free."""
    kept = folder / "ports.json"
    if kept.exists():
        known: dict[str, int] = json.loads(kept.read_text(encoding="utf-8"))
        if all(map(is_free, known.values())):
            return known
    ports = dict(zip(_SERVICES, free_ports(len(_SERVICES)), strict=True))
    kept.write_text(json.dumps(ports), encoding="utf-8")
    return ports


def _start_gateway(plan: Plan, folder: Path, number: int, brokers: LocalBrokers, ports: dict[str, int]) -> _Gateway:
    home = folder / f"gateway-{number + 1}"
    home.mkdir(exist_ok=True)
    ready_file, log = home / "ready.json", home / "gateway.log"
    ready_file.unlink(missing_ok=True)
    copies = min(plan.brokers, 3)
    arguments = [
        "--store=cluster",
        f"--cluster-kafka={brokers.bootstrap}",
        f"--cluster-secret-file={_secret_file(folder)}",
        f"--cluster-replication={copies}",
        f"--cluster-min-insync={max(copies - 1, 1)}",
        *(["--cluster-unsafe"] if copies < 3 else []),
        *(f"--advertised-listeners={name}://localhost:{port}" for name, port in ports.items()),
        f"--ready-file={ready_file}",
        *(f"--{name}-port=0" for name in _SERVICES),
        # All gateways of the demo are on this machine: each can take over the capture job.
        f"--capture-folder={folder.absolute() / 'capture' / 'files'}",
        f"--capture-checkpoint-dir={folder.absolute() / 'capture' / 'checkpoints'}",
        *plan.gateway_options,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HUBMERE_")}
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  our own command line
            [sys.executable, "-m", "hubmere", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            # It ends its capture job.
            preexec_fn=end_with_parent(signal.SIGTERM),
        )
    return _Gateway(process, ready_file, log)


def _secret_file(folder: Path) -> Path:
    path = folder / "cluster-secret"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32), encoding="ascii")
    return path


async def _serve(
    plan: Plan, folder: Path, brokers: LocalBrokers, gateways: list[_Gateway], ports: dict[str, int]
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    ready = [await _await_ready(gateway, stopping) for gateway in gateways]
    balancers = []
    health = Health([_target(each["http"]) for each in ready])
    watching = asyncio.create_task(health.watch())
    try:
        for service, port in ports.items():
            targets = [_target(each[service]) for each in ready]
            balancer = Balancer(targets, health)
            balancers.append(balancer)
            await balancer.start(port)
        if not stopping.is_set():
            whole = _merge_ready_files(ready, brokers, ports) | {"ca_file": _keep_ca(folder, ready[0])}
            if plan.ready_file is not None:
                _write(plan.ready_file, whole)
            _print_summary(whole)
            await stopping.wait()
    finally:
        watching.cancel()
        for balancer in balancers:
            await balancer.stop()


def _keep_ca(folder: Path, ready: dict[str, Any]) -> str | None:
    """A copy of the certificate authority that outlives the gateways."""
    if not ready["ca_file"]:
        return None
    kept = folder / "ca.pem"
    kept.write_bytes(Path(ready["ca_file"]).read_bytes())
    return str(kept.resolve())


async def _await_ready(gateway: _Gateway, stopping: asyncio.Event) -> dict[str, Any]:
    """The content of a gateway's ready file, once the gateway has written it; raises _Stopped if nobody waits."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while not gateway.ready_file.exists():
        if stopping.is_set():
            raise _Stopped
        if gateway.process.poll() is not None or loop.time() > deadline:
            tail = gateway.log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
            raise CommandFailed(Exit.FAILED, f"a gateway did not start:\n{tail}")
        await asyncio.sleep(_POLL_S)
    ready: dict[str, Any] = json.loads(gateway.ready_file.read_text(encoding="utf-8"))
    return ready


def _target(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or of a URL."""
    return "127.0.0.1", int(address.rpartition(":")[2])


def _merge_ready_files(ready: list[dict[str, Any]], brokers: LocalBrokers, ports: dict[str, int]) -> dict[str, Any]:
    """The keys of a node's ready file, with the ports of the balancer, and what it consists of."""
    first = ready[0]
    renamed = {f":{_target(first[name])[1]}": f":{ports[name]}" for name in _SERVICES if first[name]}

    def translate(value: object) -> object:
        if isinstance(value, str):
            for own, shared in renamed.items():
                value = value.replace(own, shared)
        return value

    whole = {name: translate(value) for name, value in first.items()}
    whole["pid"] = os.getpid()
    whole["gateways"] = ready
    whole["brokers"] = [{"pid": broker.pid, "address": broker.address} for broker in brokers.brokers]
    return whole


def _write(path: Path, whole: dict[str, Any]) -> None:
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(whole, file, indent=2)
    fresh.replace(path)


def _print_summary(whole: dict[str, Any]) -> None:
    _say("The cluster is ready.")
    for broker in whole["brokers"]:
        _say(f"  broker   {broker['address']}  pid {broker['pid']}")
    for gateway in whole["gateways"]:
        _say(f"  gateway  {gateway['amqps']}  pid {gateway['pid']}")
    _say(f"  portal   {str(whole['portal']).partition('?')[0]}")
    _say(f"  Kafka    {whole['kafka']}")
    if sys.stdout.isatty():
        _say(f"  connect  {whole['emulator_connection_string']}")
    _say("Ctrl-C ends it.")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the output of the command


def _stop_all(gateways: list[_Gateway]) -> None:
    for gateway in gateways:
        gateway.process.terminate()
    for gateway in gateways:
        try:
            gateway.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            gateway.process.kill()
            gateway.process.wait()
