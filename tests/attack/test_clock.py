"""Clock jumps under a running node delete no events and stamp none; time that really passes does."""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from conformance.amqp.azure_clients import a_consumer, receive
from hubmere.model.clock import SystemClock
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.node.node import Node
from hubmere.node.ready import Ready
from hubmere.settings import HubSetting, Settings
from hubmere.store.engine import LogConfig
from store.builders import LOG_0, Owner, a_batch, an_engine, open_log

HOUR_MS = 3_600_000
YEARS_MS = 10 * 365 * 24 * HOUR_MS
MESSAGES = "/orders/consumergroups/$Default/partitions/0/messages"
# Long, for a busy machine; every wait ends as soon as its condition holds.
PATIENCE_S = 240.0


class Machine(SystemClock):
    """The machine's clocks, and by how much a test has moved them."""

    def __init__(self) -> None:
        self.set_by_ms = 0
        self.passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_by_ms + self.passed_ms

    def since_boot(self) -> float:
        return super().since_boot() + self.passed_ms / 1000


class Running:
    """A node in its own thread and loop, with clocks that a test moves."""

    def __init__(self, data: Path, machine: Machine) -> None:
        self._settings = Settings(
            data=data, amqp_port=0, kafka_port=0, http_port=0, amqps_port=None, kafkas_port=None, https_port=None,
            hubs=(HubSetting(name="orders", partition_count=1, retention_hours=1),), retention_check_interval_s=1.0,
            capture_supervise=False,
        )  # fmt: skip
        self._machine = machine
        self._node: Node | None = None
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.ready: Ready | None = None

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        node = self._node = Node(self._settings, self._machine)
        try:
            self.ready = await node.start()
            self._is_up.set()
            await node.run_until(self._stopping)
        finally:
            await node.stop()
            self._is_up.set()

    def start(self) -> "Running":
        self._thread.start()
        assert self._is_up.wait(PATIENCE_S)
        assert self.ready is not None, "the node did not start"
        return self

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)

    def apply_retention(self) -> None:
        """Run the node's retention for the hub's first partition now."""
        node, loop = self._node, self._loop
        assert node is not None
        assert node.broker is not None
        assert node.background is not None
        assert loop is not None
        hub = node.broker._own_namespace.hub("orders")
        asyncio.run_coroutine_threadsafe(node.background.clean_log(hub.view, 0), loop).result(PATIENCE_S)

    @property
    def known(self) -> Ready:
        assert self.ready is not None
        return self.ready

    def _token(self) -> str:
        signer = ConnectionString.parse(self.known.connection_string)
        assert signer.key_name is not None
        assert signer.key is not None
        return make_token(f"sb://{signer.host}/orders", signer.key_name, signer.key, expires_at_s=2**40)

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            url, headers = f"{self.known.http}/orders/messages", {"Authorization": self._token()}
            with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=240):
                pass

    def get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.known.http}{path}", headers={"Authorization": self._token()})
        with urllib.request.urlopen(request, timeout=240) as answer:
            return json.load(answer)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.known.http}{path}", timeout=240) as answer:
            return str(answer.read().decode())

    def events(self) -> list[tuple[str, str]]:
        """Body and enqueued time of each event, read over HTTP."""
        page = self.get(f"{MESSAGES}?from=first&limit=1000")
        return [(event["body"], event["enqueuedTime"]) for event in page["events"]]

    def wait_for(self, path: str, is_there: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(found := self.get(path)):
            assert time.monotonic() < deadline, f"{path} still says {found}"
            time.sleep(0.05)
        return found


@contextmanager
def running(data: Path, machine: Machine) -> Iterator[Running]:
    node = Running(data, machine).start()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def _has_condition(name: str) -> Any:
    return lambda ready: any(condition["name"] == name for condition in ready["conditions"])


@pytest.mark.parametrize("step_ms", [YEARS_MS, -YEARS_MS])
def test_clock_jump_deletes_and_stamps_nothing(tmp_path: Path, machine: Machine, step_ms: int) -> None:
    """A jump of ten years for a few seconds once deleted every event, and one event had the year 2036 for ever."""
    with running(tmp_path, machine) as node:
        node.publish(b"before")
        year = node.events()[0][1][:4]

        machine.set_by_ms = step_ms
        node.publish(b"during")
        result = node.wait_for("/ready", _has_condition("clock"))
        metrics = node.text("/metrics")
        node.apply_retention()
        machine.set_by_ms = 0
        node.wait_for("/ready", lambda ready: not ready["conditions"])
        node.publish(b"after")

        assert [(body, at[:4]) for body, at in node.events()] == [
            ("before", year), ("during", year), ("after", year),
        ]  # fmt: skip
        assert "clock jumped" in result["conditions"][0]["message"]
        assert 'hubmere_node_condition{name="clock",severity="warning"} 1' in metrics


def test_clock_jump_while_the_node_is_down_is_detected(tmp_path: Path, machine: Machine) -> None:
    """The trusted time is stored, so a restart does not change it."""
    with running(tmp_path, machine) as node:
        node.publish(b"before")
        year = node.events()[0][1][:4]
    machine.set_by_ms = YEARS_MS

    with running(tmp_path, machine) as node:
        node.publish(b"during")
        node.wait_for("/ready", _has_condition("clock"))
        node.apply_retention()
        bodies = [(body, at[:4]) for body, at in node.events()]

    assert bodies == [("before", year), ("during", year)]


def test_events_of_a_running_node_expire_by_its_clock_for_every_protocol(tmp_path: Path, machine: Machine) -> None:
    """Two hours pass on a hub with a retention of one hour: over all protocols only the new event is left."""
    machine.passed_ms = -2 * HOUR_MS  # the current time, and the time of the clients' tokens, is two hours later
    with running(tmp_path, machine) as node:
        node.publish(b"old 1", b"old 2", b"old 3")
        machine.passed_ms = 0
        node.publish(b"new")

        page = node.wait_for(f"{MESSAGES}?from=first", lambda page: page["beginSequenceNumber"] == 3)
        over_kafka = _read_over_kafka(node.known)
        with a_consumer(node.known.emulator_connection_string, "orders") as consumer:
            over_amqp = receive(consumer, 1, partition_id="0", starting_position="-1").bodies

    assert [event["body"] for event in page["events"]] == ["new"]
    assert over_kafka == [(3, b"new")]
    assert over_amqp == ["new"]


def test_event_from_the_future_does_not_affect_later_events(tmp_path: Path) -> None:
    """After an event with the year 2036, new events have correct times, and it is deleted with its neighbours."""
    owner, day_ms = Owner(), 24 * HOUR_MS
    engine = an_engine(tmp_path, owner)
    log = open_log(engine, LOG_0, LogConfig(retention_ms=day_ms, segment_ms=day_ms // 10))
    for now_ms in (day_ms, day_ms + YEARS_MS, day_ms + 1_000):
        log.append(a_batch(), now_ms)
        owner.run()
    after = log.append(a_batch(), day_ms + 2_000)
    owner.run()

    log.apply_retention(day_ms + 3_000)
    late = log.append(a_batch(), day_ms + 4_000)
    owner.run()
    log.apply_retention(2 * day_ms + 3_000)
    before_expiry = log.state.log_start
    log.append(a_batch(), 3 * day_ms)
    owner.run()
    log.apply_retention(3 * day_ms)

    assert (after.enqueued_at_ms, late.enqueued_at_ms) == (day_ms + 2_000, day_ms + 4_000)
    assert before_expiry == 1
    assert log.state.log_start == 5


def _read_over_kafka(ready: Ready) -> list[tuple[int | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": ready.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": ready.connection_string,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    found: list[tuple[int | None, bytes | None]] = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append((message.offset(), message.value()))
    consumer.close()
    return found
