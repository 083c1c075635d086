"""Cold reads while the node is killed: readers move from captured files to the log, and get each event once.

An AMQP and a Kafka reader begin in the files. Meanwhile events are published and captured, retention deletes them from
the log, and the node is killed and started again. What they must get is known from the files and the log, which are
read here without the node's own code for cold reads. A few kills here, many with `--torture`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from azure.eventhub import EventData, EventHubConsumerClient, PartitionContext
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from hubmere.client.failures import ClientFailure
from hubmere.pipeline.capture.node_client import NodeUnavailable
from hubmere.translate import events
from pipeline.captured_hubs import CapturedHubs, a_capturing_node, limit_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Waits for what must happen; a busy machine needs some of it.
PATIENCE_S = 900.0
MIB = 1024 * 1024
# A round of events is half of what retention leaves in the log.
PER_ROUND, PER_BATCH, BODY_BYTES = 200, 20, 4000
FIRST_ROUNDS = 6
# Events that a reader may receive before the next kill: it is then about there.
ROOM = 20
Row = tuple[int, bytes]


class Reader:
    """Follows a partition in a thread, never further than it is allowed to."""

    def __init__(self, name: str, follow: "Callable[[Reader], None]") -> None:
        self.name = name
        self.rows: list[Row] = []
        self.wanted = 0
        self._allowed = 0
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(follow,), name=name, daemon=True)

    def start(self, wanted: int) -> None:
        self.wanted = wanted
        self._thread.start()

    def _run(self, follow: "Callable[[Reader], None]") -> None:
        try:
            follow(self)
        except BaseException as failure:
            self._failure = failure
            raise

    @property
    def is_complete(self) -> bool:
        return len(self.rows) >= self.wanted

    def add(self, row: Row) -> None:
        """Called by the thread with each event; waits while it may not go further."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rows) < self._allowed, PATIENCE_S)
            self.rows.append(row)
            self._changed.notify_all()

    def allow(self, count: int) -> None:
        """Let the reader go on until it has so many events."""
        with self._changed:
            self._allowed = max(self._allowed, count)
            self._changed.notify_all()

    def await_rows(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rows) >= count or self._failure is not None, PATIENCE_S), (
                f"the {self.name} reader has {len(self.rows)} events of {count}"
            )
        assert self._failure is None, self._failure

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the {self.name} reader has {len(self.rows)} events"


def follow_kafka(hubs: CapturedHubs, hub: str, reader: Reader) -> None:
    small: dict[str, Any] = {"queued_min_messages": 1, "max_partition_fetch_bytes": 32 * 1024}
    consumer = Consumer(hubs.node.kafka_config("readers", enable_auto_commit=False, auto_offset_reset="error", **small))
    consumer.assign([TopicPartition(hub, 0, OFFSET_BEGINNING)])
    try:
        while not reader.is_complete:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                reader.add((message.offset(), message.value()))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
    finally:
        consumer.close()


def follow_amqp(hubs: CapturedHubs, hub: str, reader: Reader) -> None:
    is_over = threading.Event()

    def on_event(context: PartitionContext, event: EventData | None) -> None:
        if event is not None and not reader.is_complete:
            reader.add((event.sequence_number, b"".join(event.body)))
            # In memory: the SDK continues here if it gives up the link and opens another.
            context.update_checkpoint(event)
        if reader.is_complete:
            is_over.set()

    client = EventHubConsumerClient.from_connection_string(
        hubs.node.emulator_connection_string(hub),
        "$Default",
        retry_total=10,
        retry_backoff_max=1,
        load_balancing_interval=1,
    )
    receiving = threading.Thread(
        target=client.receive,
        args=(on_event,),
        kwargs={"partition_id": "0", "starting_position": "-1", "prefetch": 30, "max_wait_time": 1},
        daemon=True,
    )
    receiving.start()
    is_over.wait(PATIENCE_S * 4)
    client.close()
    receiving.join(PATIENCE_S)


class Feeding:
    """Publishes and captures rounds of events in a thread, one for each kill, whatever happens to the node."""

    def __init__(self, hubs: CapturedHubs, hub: str) -> None:
        self._hubs, self._hub = hubs, hub
        self.bodies: list[bytes] = []

    def feed(self) -> None:
        number = len(self.bodies) // PER_ROUND
        texts = [b"%d %d " % (number, each) + b"x" * BODY_BYTES for each in range(PER_ROUND)]
        self._hubs.publish(self._hub, 0, *(texts[at : at + PER_BATCH] for at in range(0, PER_ROUND, PER_BATCH)))
        self.bodies += texts
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._hubs.capture(self._hub)
                return
            except (NodeUnavailable, ClientFailure):
                # The node was killed; a repeat writes the same files.
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def in_background(self) -> threading.Thread:
        thread = threading.Thread(target=self.feed)
        thread.start()
        return thread


def captured_rows(hubs: CapturedHubs, hub: str) -> list[Row]:
    """The events of the files, read by fastavro."""
    found: list[Row] = []
    for path in hubs.files(hub):
        with path.open("rb") as file:
            rows: Any = fastavro.reader(file)
            found += [(int(row["SequenceNumber"]), row["Body"]) for row in rows]
    return sorted(found)


def log_rows(hubs: CapturedHubs, hub: str) -> list[Row]:
    """The events of the log alone: our own client does not get events of files."""
    reader = hubs.reader(hub)
    first, end = reader.bounds([0])[0]
    return [
        (event.sequence, event.body or b"")
        for fetched in reader.read_range(0, first, end)
        for event in events(fetched.data, 0, first, 1_000_000)
    ]


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[CapturedHubs]:
    """A node on the disk whose retention looks every second."""
    settings = {"memory": False, "data": str(tmp_path / "data"), "retention_check_interval_s": 1}
    with a_capturing_node(tmp_path / "files", capture_hold_retention=False, **settings) as hubs:
        yield hubs


def test_readers_that_move_from_files_to_the_log_lose_no_event_when_the_node_is_killed(
    hubs: CapturedHubs, deaths: Callable[[int, int], int]
) -> None:
    """The node dies while they are in the files, at the transition and in the log, and while a round is captured."""
    wanted, chance = deaths(4, 40), Random(23)
    hub = hubs.new_captured(coldReads=True)
    limit_log(hubs, hub, retention_bytes=2 * MIB, segment_bytes=MIB)
    feeding = Feeding(hubs, hub)
    for _ in range(FIRST_ROUNDS):
        feeding.feed()
    await_retention(hubs, hub)
    total = (FIRST_ROUNDS + wanted) * PER_ROUND
    readers = [
        Reader("Kafka", lambda reader: follow_kafka(hubs, hub, reader)),
        Reader("AMQP", lambda reader: follow_amqp(hubs, hub, reader)),
    ]
    for reader in readers:
        reader.start(total)

    for number in range(wanted):
        # The last kills find the readers at the end of what there is.
        mark = min(total * (number + 1) // (wanted + 1), len(feeding.bodies) - ROOM)
        for reader in readers:
            reader.allow(mark)
            reader.await_rows(mark)
            reader.allow(mark + ROOM)
        round_ = feeding.in_background()
        time.sleep(chance.choice((0.0, 0.05, 0.3)))
        hubs.node.kill()
        hubs.node.start()
        round_.join(PATIENCE_S)
    for reader in readers:
        reader.allow(total)
        reader.join()

    expected = list(enumerate(feeding.bodies))
    assert len(expected) == total
    in_files, in_log = captured_rows(hubs, hub), log_rows(hubs, hub)
    assert in_files == expected
    assert 0 < in_log[0][0] < total
    assert in_log == expected[in_log[0][0] :]
    for reader in readers:
        assert [row[0] for row in reader.rows] == list(range(total)), reader.name
        assert reader.rows == expected, reader.name


def await_retention(hubs: CapturedHubs, hub: str) -> None:
    """Wait until the first events are in files only."""
    deadline = time.monotonic() + PATIENCE_S
    while hubs.reader(hub).bounds([0])[0].first == 0:
        assert time.monotonic() < deadline, "retention has deleted nothing"
        time.sleep(0.2)
