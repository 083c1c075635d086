"""Cold reads: AMQP, Kafka and HTTP readers get the events that only captured files still hold, exactly as they were."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from client.hubs import bodies
from pipeline.captured_hubs import ARM, CapturedHubs, a_capturing_node, limit_log

# Waits for what must happen; a busy machine needs some of it.
PATIENCE_S = 900.0
MIB = 1024 * 1024
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedHubs]:
    """The hubs of a node that captures into a folder, and whose retention does not wait for the capture job."""
    folder = tmp_path_factory.mktemp("captured")
    with a_capturing_node(folder, capture_hold_retention=False, retention_check_interval_s=1) as hubs:
        yield hubs


def resource(hubs: CapturedHubs, hub: str) -> str:
    return f"{hubs.node.http}{ARM}/{hubs.node.namespace}/eventhubs/{hub}?api-version=2024-01-01"


def switch(hubs: CapturedHubs, hub: str, partitions: int = 1, *, on: bool = True, **description: object) -> None:
    """Switch cold reads of a hub."""
    hubs.enable(hub, partitions, coldReads=on, **description)


def an_old_hub(hubs: CapturedHubs, runs: int = 3) -> tuple[str, int]:
    """A hub with events of three protocols, in a file for each run; and its number of events."""
    hub = hubs.new_captured()
    for run in range(runs):
        publish_all(hubs, hub, run)
        hubs.capture(hub)
    return hub, len(read_http(hubs, hub))


def publish_all(hubs: CapturedHubs, hub: str, run: int) -> None:
    """Events with keys, headers, properties of several types, and none of these; by Kafka, AMQP and HTTP."""
    hubs.publish(hub, 0, bodies(30, f"plain {run}"), bodies(20, f"again {run}"))
    producer = Producer(hubs.node.kafka_config(compression_type="gzip"))
    for number in range(10):
        headers = [("trace", b"\x00\xff"), ("again", b"1"), ("again", None)]
        producer.produce(hub, f"kafka {run} {number}".encode(), f"key {number}".encode(), partition=0, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    with EventHubProducerClient.from_connection_string(hubs.node.emulator_connection_string(hub)) as sender:
        for keyed in ({"partition_key": "a key"}, {"partition_id": "0"}):
            batch = sender.create_batch(**keyed)
            for number in range(10):
                event = EventData(f"amqp {run} {number}")
                event.properties = {"text": "t", "number": number, "yes": True, "raw": b"\x01", "real": 1.5}
                event.message_id = f"id-{number}"
                batch.add(event)
            sender.send_batch(batch)


def read_amqp(hubs: CapturedHubs, hub: str, count: int, **position: Any) -> list[Row]:
    """Events as the Azure SDK gives them."""
    found: list[Row] = []
    done = threading.Event()

    def on_event(_: object, event: EventData | None) -> None:
        if event is not None and len(found) < count:
            properties = tuple(sorted((str(name), str(value)) for name, value in (event.properties or {}).items()))
            found.append(
                (
                    event.sequence_number,
                    event.offset,
                    event.enqueued_time,
                    event.partition_key,
                    properties,
                    event.message_id,
                    event.body_as_str(),
                )
            )
        if len(found) >= count:
            done.set()

    client = EventHubConsumerClient.from_connection_string(hubs.node.emulator_connection_string(hub), "$Default")
    where = {"starting_position": "-1", "partition_id": "0", **position}
    reading = threading.Thread(target=client.receive, args=(on_event,), kwargs=where)
    reading.start()
    try:
        assert done.wait(PATIENCE_S), f"{len(found)} of {count}"
    finally:
        client.close()
        reading.join(PATIENCE_S)
    return found


def a_consumer(hubs: CapturedHubs) -> Consumer:
    return Consumer(hubs.node.kafka_config("readers", enable_auto_commit=False, auto_offset_reset="error"))


def read_kafka(hubs: CapturedHubs, hub: str, count: int, start: int = OFFSET_BEGINNING) -> list[Row]:
    """Events as librdkafka gives them."""
    consumer = a_consumer(hubs)
    consumer.assign([TopicPartition(hub, 0, start)])
    found: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(
                (message.offset(), message.timestamp(), message.key(), message.value(), str(message.headers()))
            )
    finally:
        consumer.close()
    return found


def read_http(hubs: CapturedHubs, hub: str, start: str = "first") -> list[dict[str, Any]]:
    """All events as the HTTP endpoint gives them."""
    found: list[dict[str, Any]] = []
    headers = {"Authorization": f"Bearer {hubs.node.admin_token}"}
    place = f"{hubs.node.http}/{hub}/consumergroups/$Default/partitions/0/messages"
    while True:
        answer = httpx.get(place, params={"from": start, "limit": "100"}, headers=headers, timeout=PATIENCE_S)
        assert answer.is_success, answer.text
        page = answer.json()
        found += page["events"]
        start = f"sequence:{page['nextSequenceNumber']}"
        if page["nextSequenceNumber"] > page["lastSequenceNumber"]:
            return found


def test_every_protocol_gives_the_events_that_the_log_gave(hubs: CapturedHubs) -> None:
    """Sequence numbers, offsets, times, keys, properties, headers and bodies; wherever the log begins."""
    hub, count = an_old_hub(hubs)
    publish_all(hubs, hub, 99)
    everything = read_http(hubs, hub)
    total = len(everything)
    before = (everything, read_amqp(hubs, hub, total), read_kafka(hubs, hub, total))
    assert count < total
    assert len(before[2]) == total

    for first in (35, count // 2, count):
        switch(hubs, hub, on=False)
        hubs.trim(hub, 0, first)
        switch(hubs, hub)
        after = (read_http(hubs, hub), read_amqp(hubs, hub, total), read_kafka(hubs, hub, total))
        for one, other in zip(before, after, strict=True):
            assert other == one


def test_positions_lie_in_files(hubs: CapturedHubs) -> None:
    """By sequence number, by offset and by time: `beginning` and times of Kafka, and the filters of AMQP."""
    hub, count = an_old_hub(hubs)
    rows = read_amqp(hubs, hub, count)
    hubs.trim(hub, 0, count)
    switch(hubs, hub)
    consumer = a_consumer(hubs)
    try:
        assert consumer.get_watermark_offsets(TopicPartition(hub, 0), PATIENCE_S) == (0, count)
        for number in (0, 40, count // 2, count - 1):
            time_ms = round(rows[number][2].timestamp() * 1000)
            [found] = consumer.offsets_for_times([TopicPartition(hub, 0, time_ms)], PATIENCE_S)
            assert found.offset == next(row[0] for row in rows if row[2] >= rows[number][2])
    finally:
        consumer.close()
    for number in (0, 50, count - 2):
        sequence, offset, time = rows[number][:3]
        assert read_amqp(hubs, hub, 1, starting_position=sequence) == [rows[number + 1]]
        assert read_amqp(hubs, hub, 1, starting_position=offset, starting_position_inclusive=True) == [rows[number]]
        [found_row] = read_amqp(hubs, hub, 1, starting_position=time, starting_position_inclusive=True)
        assert found_row == next(row for row in rows if row[2] >= time)
    with EventHubConsumerClient.from_connection_string(hubs.node.emulator_connection_string(hub), "$Default") as client:
        properties = client.get_partition_properties("0")
    assert (properties["beginning_sequence_number"], properties["last_enqueued_sequence_number"]) == (0, count - 1)


def test_without_the_setting_the_log_alone_is_read(hubs: CapturedHubs) -> None:
    """It is off by default; switching it off again ends it for clients that read."""
    hub, count = an_old_hub(hubs, runs=1)
    hubs.trim(hub, 0, 40)
    assert len(read_http(hubs, hub)) == count - 40
    switch(hubs, hub)
    assert len(read_http(hubs, hub)) == count
    switch(hubs, hub, on=False)

    assert len(read_http(hubs, hub)) == count - 40
    assert read_kafka(hubs, hub, 1)[0][0] == 40
    with pytest.raises(KafkaException, match=r"OFFSET_OUT_OF_RANGE|out of range"):
        read_kafka(hubs, hub, 1, start=5)


def test_gap_ends_the_readable_range(hubs: CapturedHubs) -> None:
    """A file that is missing in the middle: what is before it does not exist for readers, until it is back."""
    hub, count = an_old_hub(hubs)
    hubs.trim(hub, 0, count)
    files = sorted(hubs.files(hub))
    missing = files[1].rename(files[1].with_suffix(".away"))
    switch(hubs, hub)

    found = read_http(hubs, hub)
    first = found[0]["sequenceNumber"]
    assert [each["sequenceNumber"] for each in found] == list(range(first, count))
    assert 0 < first < count
    assert read_kafka(hubs, hub, 1)[0][0] == first
    assert read_amqp(hubs, hub, 1)[0][0] == first
    with pytest.raises(KafkaException):
        read_kafka(hubs, hub, 1, start=0)

    missing.rename(files[1])
    switch(hubs, hub, on=False)
    switch(hubs, hub)
    assert read_kafka(hubs, hub, 1)[0][0] == 0


def test_damaged_file_ends_the_readable_range_and_is_reported(hubs: CapturedHubs) -> None:
    """Nobody gets events of it, and the node's damage list names it."""
    hub, count = an_old_hub(hubs)
    hubs.trim(hub, 0, count)
    middle = sorted(hubs.files(hub))[1]
    content = bytearray(middle.read_bytes())
    content[-1] ^= 0xFF
    middle.write_bytes(content)
    switch(hubs, hub)

    with pytest.raises(KafkaException):
        read_kafka(hubs, hub, count, start=0)
    found = read_http(hubs, hub)

    first = found[0]["sequenceNumber"]
    assert [each["sequenceNumber"] for each in found] == list(range(first, count))
    assert 0 < first < count
    assert middle.name in hubs.node.logs()


def test_hub_that_was_created_again_does_not_show_old_files(hubs: CapturedHubs) -> None:
    """Files of the same name in the same folder belong to the hub that was deleted."""
    hub, _ = an_old_hub(hubs, runs=1)
    hubs.make_again(hub, 1)
    switch(hubs, hub)
    hubs.publish(hub, 0, bodies(5, "new"))
    switch(hubs, hub, on=False)
    hubs.trim(hub, 0, 3)
    switch(hubs, hub)

    assert [each["sequenceNumber"] for each in read_http(hubs, hub)] == [3, 4]


def test_reader_moves_from_files_to_the_log_while_retention_runs(hubs: CapturedHubs) -> None:
    """Retention takes segments from under readers of all protocols, and each gets every event once and in order."""
    hub = hubs.new_captured()
    limit_log(hubs, hub, retention_bytes=2 * MIB, segment_bytes=MIB)
    switch(hubs, hub)
    rounds, per_round = 12, 200
    total = rounds * per_round
    results: dict[str, list[int]] = {}

    def follow_kafka() -> None:
        results["kafka"] = [row[0] for row in read_kafka(hubs, hub, total)]

    def follow_amqp() -> None:
        results["amqp"] = [row[0] for row in read_amqp(hubs, hub, total)]

    readers = [threading.Thread(target=each) for each in (follow_kafka, follow_amqp)]
    for number in range(rounds):
        hubs.publish(hub, 0, *([b"%d %d " % (number, each) + b"x" * 4000] for each in range(per_round)))
        hubs.capture(hub)
        if number == 3:
            for reader in readers:
                reader.start()
    for reader in readers:
        reader.join(PATIENCE_S)

    assert results["kafka"] == list(range(total))
    assert results["amqp"] == list(range(total))
    deadline = time.monotonic() + PATIENCE_S
    while hubs.reader(hub).bounds([0])[0].first == 0:
        assert time.monotonic() < deadline, "retention has deleted nothing"
        time.sleep(0.2)
    assert [each["sequenceNumber"] for each in read_http(hubs, hub)] == list(range(total))


def test_clients_of_the_node_read_the_log_alone(hubs: CapturedHubs) -> None:
    """The Spark source and the capture job read the files themselves, or must not read them at all."""
    hub, count = an_old_hub(hubs, runs=1)
    hubs.trim(hub, 0, 40)
    switch(hubs, hub)

    assert hubs.reader(hub).bounds([0])[0] == (40, count)


def test_what_cold_reads_cannot_serve_is_refused(hubs: CapturedHubs) -> None:
    """With the reason, and nothing changes."""
    headers = {"Authorization": f"Bearer {hubs.node.admin_token}"}
    hub = hubs.new_captured()
    for properties, reason in (
        ({"captureDescription": {"enabled": True, "encoding": "Parquet", "coldReads": True}}, "Avro or AvroDeflate"),
        (
            {
                "retentionDescription": {"cleanupPolicy": "Compact"},
                "captureDescription": {"enabled": True, "coldReads": True},
            },
            "cleanup policy",
        ),
    ):
        place = resource(hubs, hub if "retentionDescription" not in properties else f"{hub}-compact")
        answer = httpx.put(place, json={"properties": properties}, headers=headers)
        assert answer.status_code == 400
        assert reason in answer.text
    switch(hubs, hub)
    hubs.publish(hub, 0, bodies(5))
    with pytest.raises(AssertionError):
        hubs.trim(hub, 0, 3)
    assert httpx.get(resource(hubs, hub), headers=headers).json()["properties"]["captureDescription"]["coldReads"]


def test_files_are_read_after_a_restart_and_reads_are_charged(tmp_path: Path) -> None:
    """The index is made again from the folder; bytes from files count as outgoing bytes like any others."""
    with a_capturing_node(tmp_path / "files", memory=False, data=str(tmp_path / "data")) as hubs:
        hub, count = an_old_hub(hubs)
        before = read_http(hubs, hub)
        hubs.trim(hub, 0, count)
        switch(hubs, hub)
        hubs.node.restart()

        assert read_http(hubs, hub) == before
        assert len(read_kafka(hubs, hub, count)) == count
        metrics = httpx.get(f"{hubs.node.http}/metrics").text
        outgoing = [line for line in metrics.splitlines() if hub in line and "outgoing_messages" in line]
        assert sum(float(line.rsplit(" ", 1)[1]) for line in outgoing) >= count
