"""For tests of your own: a real node on free ports, and a clock that stands still until it is moved.

`Node` starts `python -m hubmere up` as a child process and waits for its ready file, so that what a test talks to is
what runs in production. It leaves nothing behind: the child is stopped and its folder removed on the way out. Needs no
test framework; the pytest fixture is in `hubmere.pytest_plugin`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from hubmere.node.ready import Ready
from hubmere.settings import SETTINGS, HubSetting
from hubmere.settings.hubs import HUB_KEYS
from hubmere.settings.load import CONFIG_VARIABLE, LIMITS_PREFIX

# A cold start with empty caches on a busy machine; a warm one takes well under a second.
START_TIMEOUT_S = 30.0
# Longer than a node takes for a graceful stop by its own rule (`shutdown_timeout_s`).
STOP_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.01
_PORTS = ("amqp", "amqps", "kafka", "kafkas", "http", "https")


class NodeFailed(Exception):
    """The node did not start, or did not stop as it should; carries what it logged."""

    def __init__(self, what: str, logs: str) -> None:
        super().__init__(what, logs)
        self.what = what
        self.logs = logs

    def __str__(self) -> str:
        """The failure and the last of the log."""
        return f"{self.what}\n{self.logs[-4000:]}"


class Node:
    """A node in a child process, for the length of a `with` block.

        with Node(hubs=["orders"]) as node:
            client = EventHubProducerClient.from_connection_string(node.emulator_connection_string, ...)

    `hubs` are names or `HubSetting`s; `settings` are further settings by key, as in a TOML file. The data folder is a
    temporary one unless `data` is given. Not thread-safe.
    """

    def __init__(
        self,
        *,
        hubs: Iterable[str | HubSetting] = (),
        settings: Mapping[str, str | int | float | bool | Path | list[str]] | None = None,
        data: Path | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hubmere-"))
        self._log = self._folder / "node.log"
        self._config = self._folder / "hubmere.toml"
        self._ready_file = self._folder / "ready.json"
        self._ports: dict[str, str] = dict.fromkeys(_PORTS, "0")
        self._settings = dict(settings or {})
        self._data = data or self._folder / "data"
        self._hubs = [hub if isinstance(hub, HubSetting) else HubSetting(name=hub) for hub in hubs]
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Ready | None = None

    def __enter__(self) -> Self:
        """Start the node, unless that was done."""
        if self._process is None:
            try:
                self.start()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the node and remove its folder."""
        self.close()

    # --- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node and wait until every port accepts connections."""
        self._ready_file.unlink(missing_ok=True)
        self._config.write_text(settings_file(self._settings, self._hubs), encoding="utf-8")
        ports = [f"--{name}-port={port}" for name, port in self._ports.items() if f"{name}_port" not in self._settings]
        paths = [f"--config={self._config}", f"--data={self._data}", f"--ready-file={self._ready_file}"]
        environment = {name: value for name, value in os.environ.items() if not _is_setting(name)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                [sys.executable, "-m", "hubmere", "up", *paths, *ports],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        self._await_ready(self._process)

    def stop(self) -> None:
        """Stop the node gracefully; NodeFailed when it does not end, or not with exit code 0."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeFailed(f"the node did not stop within {STOP_TIMEOUT_S:g} s", self.logs()) from None
        if code != 0:
            raise NodeFailed(f"the node ended with exit code {code}", self.logs())

    def kill(self) -> None:
        """End the node at once, as a crash would (SIGKILL)."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Start again on the same data and the same ports, after a graceful stop if the node still runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the node if it runs and remove everything it left, but not a data folder that was given."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def logs(self) -> str:
        """What the node has written so far, over all its starts."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready_file.exists():
            if process.poll() is not None:
                self._process = None
                raise NodeFailed(f"the node ended with exit code {process.returncode} at start", self.logs())
            if time.monotonic() > deadline:
                self.kill()
                raise NodeFailed(f"the node was not ready within {START_TIMEOUT_S:g} s", self.logs())
            time.sleep(_POLL_INTERVAL_S)
        self._ready = Ready(**json.loads(self._ready_file.read_bytes()))
        self._keep_ports(self._ready)

    def _keep_ports(self, ready: Ready) -> None:
        """Clients of a node that is started again look for it where it was."""
        for name in _PORTS:
            place: str | None = getattr(ready, name)
            if place is not None:
                self._ports[name] = place.rstrip("/").rpartition(":")[2]

    # --- where it is ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> Ready:
        """Everything that the ready file holds."""
        if self._ready is None:
            raise NodeFailed("the node was not started", self.logs())
        return self._ready

    @property
    def pid(self) -> int:
        """Process id of the node."""
        return self.ready.pid

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._data

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return self.ready.namespace

    @property
    def connection_string(self) -> str:
        """For clients that use TLS; they must trust `ca_file`."""
        return self.ready.connection_string

    @property
    def emulator_connection_string(self) -> str:
        """For AMQP clients without TLS."""
        return self.ready.emulator_connection_string

    @property
    def admin_token(self) -> str:
        """The administrator's token."""
        return self.ready.admin_token

    @property
    def ca_file(self) -> str:
        """The certificate to trust."""
        return self._served("ca_file")

    @property
    def amqp(self) -> str:
        """`host:port` of AMQP without TLS."""
        return self._served("amqp")

    @property
    def amqps(self) -> str:
        """`host:port` of AMQP over TLS."""
        return self._served("amqps")

    @property
    def kafka(self) -> str:
        """`host:port` of Kafka with SASL_PLAINTEXT."""
        return self._served("kafka")

    @property
    def kafkas(self) -> str:
        """`host:port` of Kafka with SASL_SSL."""
        return self._served("kafkas")

    @property
    def http(self) -> str:
        """URL of HTTP."""
        return self._served("http")

    @property
    def https(self) -> str:
        """URL of HTTPS."""
        return self._served("https")

    @property
    def blob_connection_string(self) -> str:
        """Connection string of the storage account for checkpoints and leases."""
        return self._served("blob_connection_string")

    def _served(self, name: str) -> str:
        place: str | None = getattr(self.ready, name)
        if place is None:
            raise NodeFailed(f"the node does not serve {name}", "")
        return place


class ManualClock:
    """A clock for `model.clock.Clock` that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970 UTC."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        assert seconds >= 0
        self._now_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, backwards too, as operators and time servers do; the other clock is not touched."""
        self._now_ms = now_ms


_VARIABLES = {CONFIG_VARIABLE, *(setting.variable for setting in SETTINGS)}


def _is_setting(variable: str) -> bool:
    """Whether a variable would change the node: a test states its settings itself."""
    return variable in _VARIABLES or variable.startswith(LIMITS_PREFIX)


def settings_file(settings: Mapping[str, object], hubs: Iterable[HubSetting]) -> str:
    """The text of a TOML file with these settings. JSON's texts, numbers, switches and lists are TOML's too."""
    lines = [f"{key} = {_value(value)}" for key, value in settings.items()]
    for hub in hubs:
        lines.append("[[hubs]]")
        given = ((key, getattr(hub, field_name)) for key, (field_name, _) in HUB_KEYS.items())
        lines.extend(f"{key} = {_value(value)}" for key, value in given if value)
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
