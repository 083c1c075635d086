"""For your own tests: a real node on free ports.

`Node` starts `python -m hubmere up` as a child process and waits for its ready file, so that a test uses the same
program as production. At the end, the child process is stopped and its folder is removed; it also stops when the test
run is killed. Needs no test framework; the pytest fixtures are in `hubmere.pytest_plugin`.

A snapshot is a copy of the data folder of a stopped node, so it holds everything: hubs, events, groups, offsets, keys.
`restore` puts the copy in place of the folder and starts the node again. Both take milliseconds: sealed segments, which
never change, are hard links, and the node is forked from a process that has loaded its code
(`node.runtime.fork_server`).
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from hubmere.client.stored_event import StoredEvent as StoredEvent
from hubmere.node.ready import Ready, ReadyIdentity, read_ready
from hubmere.node.runtime.bound_child import BoundChild
from hubmere.node.runtime.fork_server import ForkedProcess, ForkServer
from hubmere.node.runtime.kept_ports import KeptPorts
from hubmere.settings import HubSetting
from hubmere.settings.child import environment_without_settings, settings_file
from hubmere.store.data_copy import copy_data

# A cold start with empty caches on a busy machine; a warm one takes well under a second.
START_TIMEOUT_S = 120.0
# A graceful stop takes a second at most; this only limits a node that hangs, also on a busy machine.
STOP_TIMEOUT_S = 120.0
_POLL_INTERVAL_S = 0.01
_REQUEST_TIMEOUT_S = 60.0
# The largest number of events in one response of the node.
_PAGE_EVENTS = 1000
_ARM = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hubmere/providers/Microsoft.EventHub/namespaces"
)


class NodeFailed(Exception):
    """The node did not start, or did not stop correctly; has the log of the node."""

    def __init__(self, what: str, logs: str) -> None:
        super().__init__(what, logs)
        self.what = what
        self.logs = logs

    def __str__(self) -> str:
        """The failure and the last of the log."""
        return f"{self.what}\n{self.logs[-4000:]}"


class ConnectionStringText(str):
    """A connection string of a namespace; called with the name of a hub, it gives that of the hub."""

    __slots__ = ()

    def __call__(self, hub: str) -> str:
        """The same with `EntityPath`."""
        return f"{self.rstrip(';')};EntityPath={hub}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved state of a node, for `Node.restore`; it is deleted with the node."""

    folder: Path


class _Addresses(ABC):
    """Addresses and credentials of a node, from its ready file."""

    @property
    @abstractmethod
    def ready(self) -> Ready:
        """Everything that the ready file holds."""

    @property
    def pid(self) -> int:
        """Process id of the node."""
        return self.ready.pid

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return self.ready.namespace

    @property
    def connection_string(self) -> ConnectionStringText:
        """For clients that use TLS; they must trust `ca_file`. `connection_string(hub)` names a hub, too."""
        return ConnectionStringText(self.ready.connection_string)

    @property
    def emulator_connection_string(self) -> ConnectionStringText:
        """For AMQP clients without TLS. `emulator_connection_string(hub)` names a hub, too."""
        return ConnectionStringText(self.ready.emulator_connection_string)

    @property
    def admin_token(self) -> str:
        """The administrator's token."""
        return self.ready.admin_token

    @property
    def ca_file(self) -> str:
        """The certificate to trust."""
        return self._address("ca_file")

    @property
    def identity(self) -> ReadyIdentity:
        """The node's own OAuth issuer, with the setting `local_identity`."""
        if self.ready.identity is None:
            raise NodeFailed("the node has no local issuer: set local_identity", "")
        return self.ready.identity

    @property
    def amqp(self) -> str:
        """`host:port` of AMQP without TLS."""
        return self._address("amqp")

    @property
    def amqps(self) -> str:
        """`host:port` of AMQP over TLS."""
        return self._address("amqps")

    @property
    def kafka(self) -> str:
        """`host:port` of Kafka with SASL_PLAINTEXT."""
        return self._address("kafka")

    @property
    def kafkas(self) -> str:
        """`host:port` of Kafka with SASL_SSL."""
        return self._address("kafkas")

    @property
    def http(self) -> str:
        """URL of HTTP."""
        return self._address("http")

    @property
    def https(self) -> str:
        """URL of HTTPS."""
        return self._address("https")

    @property
    def blob_connection_string(self) -> str:
        """Connection string of the storage account for checkpoints and leases."""
        return self._address("blob_connection_string")

    def kafka_config(self, group: str | None = None, *, tls: bool = False, **more: object) -> dict[str, Any]:
        """Settings for Kafka clients by the names of librdkafka; `more` are further ones, `_` for `.`."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.kafkas if tls else self.kafka,
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": str(self.connection_string),
        }
        if tls:
            config["ssl.ca.location"] = self.ca_file
        if group is not None:
            config |= {"group.id": group, "auto.offset.reset": "earliest"}
        return config | {name.replace("_", "."): value for name, value in more.items()}

    def _address(self, name: str) -> str:
        place: str | None = getattr(self.ready, name)
        if place is None:
            raise NodeFailed(f"the node does not serve {name}", "")
        return place


class Node(_Addresses):
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
        self._ports = KeptPorts()
        self._settings = dict(settings or {})
        self._data = data or self._folder / "data"
        self._hubs = [hub if isinstance(hub, HubSetting) else HubSetting(name=hub) for hub in hubs]
        self._process: BoundChild | ForkedProcess | None = None
        self._fork_server: ForkServer | None = None
        self._ready: Ready | None = None
        self._numbers = count()

    def __enter__(self) -> Self:
        """Start the node, unless it has been started."""
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
        ports = [
            f"--{service}-port={port}"
            for service, port in self._ports.by_service.items()
            if f"{service}_port" not in self._settings
        ]
        paths = [f"--config={self._config}", f"--ready-file={self._ready_file}"]
        if self._settings.get("store") != "cluster":  # a gateway has no data folder
            paths.append(f"--data={self._data}")
        arguments = ["up", *paths, *ports]
        if self._fork_server is not None:
            self._process = self._fork_server.start(arguments, self._log)
        else:
            self._process = BoundChild(arguments, self._log, environment_without_settings())
        try:
            self._await_ready(self._process)
        finally:
            self._ports.release()

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
        self._ports.hold()
        if code != 0:
            raise NodeFailed(f"the node ended with exit code {code}", self.logs())

    def kill(self) -> None:
        """End the node at once, as a crash would (SIGKILL)."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            self._ports.hold()

    def restart(self) -> None:
        """Start again on the same data and the same ports, after a graceful stop if the node still runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the node if it runs, and remove its files, except a data folder that was given."""
        try:
            self.stop()
        finally:
            self._ports.release()
            if self._fork_server is not None:
                self._fork_server.close()
                self._fork_server = None
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def ready(self) -> Ready:
        """Everything that the ready file holds."""
        if self._ready is None:
            raise NodeFailed("the node was not started", self.logs())
        return self._ready

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._data

    def logs(self) -> str:
        """What the node has written so far, over all its starts."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    # --- snapshots -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Save the state of the node, with everything that was acknowledged. Clients are disconnected."""
        if self._settings.get("memory"):
            raise NodeFailed("a node in memory has no snapshots; start it without the setting memory", "")
        self.stop()
        taken = Snapshot(self._folder / f"snapshot-{next(self._numbers)}")
        copy_data(self._data, taken.folder)
        if self._fork_server is None and hasattr(os, "fork"):
            self._fork_server = ForkServer(environment_without_settings())
        self.start()
        return taken

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a saved state, on the same ports; later changes are lost. Clients are disconnected."""
        if not snapshot.folder.is_dir():
            raise NodeFailed(f"there is no snapshot at {snapshot.folder}", "")
        self.kill()
        shutil.rmtree(self._data)
        copy_data(snapshot.folder, self._data)
        self.start()

    # --- hubs and events -----------------------------------------------------------------------------------------

    def create_hub(self, name: str | None = None, *, partitions: int = 1, groups: Iterable[str] = ()) -> str:
        """Create a hub, with a unique name unless one is given; returns its name."""
        hub = name or f"hub-{os.getpid()}-{next(self._numbers)}"
        place = f"{_ARM}/{quote(self.namespace)}/eventhubs/{quote(hub)}"
        self._request("PUT", place, {"properties": {"partitionCount": partitions}})
        for group in groups:
            self._request("PUT", f"{place}/consumergroups/{quote(group)}", {})
        return hub

    def delete_hub(self, name: str) -> None:
        """Delete a hub and its events."""
        self._request("DELETE", f"{_ARM}/{quote(self.namespace)}/eventhubs/{quote(name)}")

    def events(self, hub: str) -> list[StoredEvent]:
        """Every event of a hub in the order of time, without becoming a reader."""
        place = f"{_ARM}/{quote(self.namespace)}/eventhubs/{quote(hub)}"
        partitions: Sequence[str] = self._request("GET", place)["properties"]["partitionIds"]
        found = [event for partition in partitions for event in self._partition_events(hub, partition)]
        return sorted(found, key=lambda event: (event.enqueued_time, event.partition, event.sequence_number))

    def wait_for_events(self, hub: str, number: int, timeout_s: float = 60.0) -> list[StoredEvent]:
        """The events of a hub once it has `number` of them; NodeFailed when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.events(hub)) < number:
            if time.monotonic() > deadline:
                raise NodeFailed(f"{hub} has {len(found)} of {number} events after {timeout_s:g} s", self.logs())
            time.sleep(_POLL_INTERVAL_S)
        return found

    def _partition_events(self, hub: str, partition: str) -> list[StoredEvent]:
        path = f"/{quote(hub)}/consumergroups/$Default/partitions/{partition}/messages?limit={_PAGE_EVENTS}"
        found: list[StoredEvent] = []
        following = "first"
        while True:
            page = self._request("GET", f"{path}&from={following}")
            found += (StoredEvent.from_json(int(partition), event) for event in page["events"])
            if page["nextSequenceNumber"] > page["lastSequenceNumber"]:
                return found
            following = f"sequence:{page['nextSequenceNumber']}"

    def _request(self, method: str, path: str, body: object = None) -> Any:
        version = "" if "?" in path else "?api-version=2024-01-01"
        request = urllib.request.Request(  # noqa: S310  the node's own address
            f"{self.http}{path}{version}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = _reason(error.read().decode("utf-8", "replace"))
            raise NodeFailed(f"{method} {path} was refused: {reason}", "") from None
        except OSError as error:
            raise NodeFailed(f"{method} {path}: the node does not answer: {error}", self.logs()) from None
        return json.loads(content) if content else None

    def _await_ready(self, process: BoundChild | ForkedProcess) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready_file.exists():
            if process.poll() is not None:
                self._process = None
                raise NodeFailed(f"the node ended with exit code {process.wait()} at start", self.logs())
            if time.monotonic() > deadline:
                self.kill()
                raise NodeFailed(f"the node was not ready within {START_TIMEOUT_S:g} s", self.logs())
            time.sleep(_POLL_INTERVAL_S)
        self._ready = read_ready(self._ready_file.read_bytes())
        self._ports.remember(self._ready)


def _reason(answer: str) -> str:
    """The text of an error of the node, without the JSON around it."""
    try:
        return str(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer


class AsyncNode(_Addresses):
    """A node for tests that run in an event loop: methods that block in `Node` are coroutines here.

        async with AsyncNode(Node(hubs=["orders"])) as node:
            await publish(node.emulator_connection_string("orders"))
            assert len(await node.events("orders")) == 1

    All other members are those of `Node`: addresses, connection strings, `kafka_config`, `data`, `logs`.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def ready(self) -> Ready:
        """Everything that the ready file holds."""
        return self.node.ready

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.node.data

    def logs(self) -> str:
        """What the node has written so far, over all its starts."""
        return self.node.logs()

    async def __aenter__(self) -> Self:
        """Start the node, unless it has been started."""
        await asyncio.to_thread(self.node.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the node and remove its folder."""
        await self.close()

    async def start(self) -> None:
        """Start the node and wait until every port accepts connections."""
        await asyncio.to_thread(self.node.start)

    async def stop(self) -> None:
        """Stop the node gracefully; NodeFailed when it does not end, or not with exit code 0."""
        await asyncio.to_thread(self.node.stop)

    async def kill(self) -> None:
        """End the node at once, as a crash would (SIGKILL)."""
        await asyncio.to_thread(self.node.kill)

    async def restart(self) -> None:
        """Start again on the same data and the same ports, after a graceful stop if the node still runs."""
        await asyncio.to_thread(self.node.restart)

    async def close(self) -> None:
        """Stop the node if it runs, and remove its files, except a data folder that was given."""
        await asyncio.to_thread(self.node.close)

    async def events(self, hub: str) -> list[StoredEvent]:
        """Every event of a hub in the order of time, without becoming a reader."""
        return await asyncio.to_thread(self.node.events, hub)

    async def wait_for_events(self, hub: str, number: int, timeout_s: float = 60.0) -> list[StoredEvent]:
        """The events of a hub once it has `number` of them; NodeFailed when that takes too long."""
        return await asyncio.to_thread(self.node.wait_for_events, hub, number, timeout_s)

    async def create_hub(self, name: str | None = None, *, partitions: int = 1, groups: Iterable[str] = ()) -> str:
        """Create a hub, with a unique name unless one is given; returns its name."""
        return await asyncio.to_thread(self.node.create_hub, name, partitions=partitions, groups=groups)

    async def delete_hub(self, name: str) -> None:
        """Delete a hub and its events."""
        await asyncio.to_thread(self.node.delete_hub, name)

    async def snapshot(self) -> Snapshot:
        """Save the state of the node."""
        return await asyncio.to_thread(self.node.snapshot)

    async def restore(self, snapshot: Snapshot) -> None:
        """Restore a saved state."""
        await asyncio.to_thread(self.node.restore, snapshot)
