"""The stream reader, called as Spark does on the driver and on executors, without a Spark session."""

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from client.hubs import PATIENCE_S, Hubs, bodies
from hubmere.client.connection import Connection
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.offsets import CheckpointMismatch, DataLost, HubRecreated
from hubmere.pipeline.options import InvalidOption, read_options
from hubmere.pipeline.source import HubBatchReader, HubStreamReader
from log_records import messages_of
from pipeline.queries import conf, position


class Readers:
    """Creates readers of hubs, and stops them as Spark does when a query ends."""

    def __init__(self, hubs: Hubs) -> None:
        self._hubs = hubs
        self._made: list[HubStreamReader] = []

    def __call__(self, hub: str, **options: str) -> HubStreamReader:
        self._made.append(HubStreamReader(read_options(conf(self._hubs, hub, **options)), SCHEMA))
        return self._made[-1]

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def a_reader(hubs: Hubs) -> Iterator[Readers]:
    readers = Readers(hubs)
    yield readers
    readers.stop()


def read(reader: HubStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The bodies of a micro-batch; each task uses a copy of the reader, as on an executor."""
    found: list[str] = []
    for task in reader.partitions(start, end):
        copy, task = pickle.loads(pickle.dumps((reader, task)))
        for batch in copy.read(task):
            found += [body.decode() for body in batch.column("body").to_pylist()]
    return found


def kafka_client(hubs: Hubs) -> dict[str, Any]:
    """Settings of a Kafka client."""
    return {
        "bootstrap.servers": hubs.node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": hubs.node.connection_string,
    }


def numbers(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset without the id of its hub."""
    return {name: value for name, value in offset.items() if name != "$hubId"}


def texts(*parts: list[bytes]) -> list[str]:
    return [body.decode() for part in parts for body in part]


def test_new_query_starts_at_its_starting_positions(hubs: Hubs, a_reader: Readers) -> None:
    """Without any it starts at the end, like the connector."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(5))

    assert numbers(a_reader(hub).initialOffset()) == {hub: {"0": 0, "1": 0}}
    latest = a_reader(hub, startingPosition=position(offset="@latest"))
    assert numbers(latest.initialOffset()) == {hub: {"0": 5, "1": 0}}


def test_offset_does_not_change_without_new_events(hubs: Hubs, a_reader: Readers) -> None:
    """Spark then runs no micro-batch."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(5))
    reader = a_reader(hub)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    assert numbers(end) == {hub: {"0": 5, "1": 0}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.reportLatestOffset() == end


def test_events_of_a_trigger_are_limited(hubs: Hubs, a_reader: Readers) -> None:
    """The limit of the options is the one that Spark passes."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(90))
    hubs.publish(hub, 1, bodies(10))
    reader = a_reader(hub, maxEventsPerTrigger="50")
    limit = reader.getDefaultReadLimit()

    assert limit == ReadMaxRows(50)
    assert numbers(reader.latestOffset(reader.initialOffset(), limit)) == {hub: {"0": 45, "1": 5}}


def test_bytes_of_a_trigger_are_limited(hubs: Hubs, a_reader: Readers) -> None:
    """The limit is rounded to whole batches of the log."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, *([b"%d " % number + b"x" * 1000] * 10 for number in range(10)))
    reader = a_reader(hub, maxBytesPerTrigger="30000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(30_000)

    offset, taken = reader.initialOffset(), []
    while (reached := reader.latestOffset(offset, limit)) != offset:
        taken.append(reached[hub]["0"] - offset[hub]["0"])
        offset = reached

    assert sum(taken) == 100
    assert len(taken) == 4


def test_bytes_of_a_trigger_are_planned_with_one_request(
    hubs: Hubs, a_reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has the index; searching from the client took several requests for each partition and trigger."""
    hub = hubs.new(partitions=4)
    for partition in range(4):
        hubs.publish(hub, partition, *([b"%d " % number + b"x" * 1000] * 10 for number in range(10)))
    reader = a_reader(hub, maxBytesPerTrigger="120000")
    start = reader.initialOffset()
    asked: list[str] = []
    send = Connection.send

    def record(connection: Connection, body: object) -> None:
        asked.append(type(body).__name__)
        send(connection, body)

    monkeypatch.setattr(Connection, "send", record)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    # The first two are for the bounds of the partitions.
    assert [name for name in asked if name != "MetadataRequest"] == ["ListOffsetsRequest"] * 3
    assert all(20 <= number <= 40 for number in end[hub].values())


def test_few_events_wait_for_more_until_the_delay_has_passed(
    hubs: Hubs, a_reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Spark's Kafka source: the first micro-batch does not wait; after the delay any number is enough."""
    hub = hubs.new(partitions=2)
    now = 1000.0
    monkeypatch.setattr("hubmere.pipeline.source.time", SimpleNamespace(monotonic=lambda: now))
    reader = a_reader(hub, minEventsPerTrigger="10", maxTriggerDelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)

    hubs.publish(hub, 0, bodies(3))
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert numbers(first) == {hub: {"0": 3, "1": 0}}

    hubs.publish(hub, 1, bodies(9))
    now += 59.0
    assert reader.latestOffset(first, limit) == first
    hubs.publish(hub, 0, bodies(1, "tenth"))
    tenth = reader.latestOffset(first, limit)
    assert numbers(tenth) == {hub: {"0": 4, "1": 9}}

    hubs.publish(hub, 0, bodies(1, "late"))
    now += 59.0
    assert reader.latestOffset(tenth, limit) == tenth
    now += 1.0
    assert numbers(reader.latestOffset(tenth, limit)) == {hub: {"0": 5, "1": 9}}


def test_run_with_available_now_does_not_wait_for_the_minimum(hubs: Hubs, a_reader: Readers) -> None:
    """It must end, so the minimum does not apply; the maximum does."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(13))
    reader = a_reader(hub, minEventsPerTrigger="5", maxEventsPerTrigger="5")
    offset, limit, taken = reader.initialOffset(), reader.getDefaultReadLimit(), []

    reader.prepareForTriggerAvailableNow()
    while (reached := reader.latestOffset(offset, limit)) != offset:
        taken.append(reached[hub]["0"] - offset[hub]["0"])
        offset = reached

    assert taken == [5, 5, 3]


def test_stream_ends_at_its_ending_positions(hubs: Hubs, a_reader: Readers) -> None:
    """A run reads a part of the history; a position in the future does not end it."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(5))
    hubs.publish(hub, 1, bodies(9))
    reader = a_reader(hub, endingPositions='{"0": {"seqNo": 7}, "1": {"seqNo": 4}}')
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert numbers(end) == {hub: {"0": 5, "1": 4}}

    hubs.publish(hub, 0, bodies(5, "more"))
    hubs.publish(hub, 1, bodies(5, "more"))
    end = reader.latestOffset(end, ReadAllAvailable())
    assert numbers(end) == {hub: {"0": 7, "1": 4}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_run_with_available_now_ends_at_the_end_of_the_hub_at_its_start(hubs: Hubs, a_reader: Readers) -> None:
    """Later events are read by the next run."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(5))
    reader = a_reader(hub)
    start = reader.initialOffset()

    reader.prepareForTriggerAvailableNow()
    hubs.publish(hub, 0, bodies(5, "late"))
    end = reader.latestOffset(start, ReadAllAvailable())

    assert numbers(end) == {hub: {"0": 5}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_added_partitions_are_read_from_their_beginning(hubs: Hubs, a_reader: Readers) -> None:
    """Partitions may be added while a query runs or is stopped."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3))
    start = {hub: {"0": 1}}

    hubs.grow(hub, 3)
    hubs.publish(hub, 2, bodies(4, "grown"))
    reader = a_reader(hub)
    end = reader.latestOffset(start, ReadAllAvailable())

    assert numbers(end) == {hub: {"0": 3, "2": 4}}
    assert read(reader, start, end) == texts(bodies(3)[1:], bodies(4, "grown"))


def test_events_that_retention_deleted_stop_the_query(hubs: Hubs, a_reader: Readers) -> None:
    """The error names the lost range."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(30))
    hubs.trim(hub, 0, 15)
    reader = a_reader(hub)
    start = {hub: {"0": 10}}

    end = reader.latestOffset(start, ReadAllAvailable())

    with pytest.raises(DataLost, match="partition 0: 10 to 14"):
        reader.partitions(start, end)


def test_events_that_retention_deleted_are_skipped_if_loss_is_accepted(hubs: Hubs, a_reader: Readers) -> None:
    """They may be deleted before or after the planning."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(30))
    hubs.trim(hub, 0, 15)
    reader = a_reader(hub, failOnDataLoss="false")
    tasks = reader.partitions({hub: {"0": 10}}, {hub: {"0": 30}})
    hubs.trim(hub, 0, 20)

    found = [body for task in tasks for batch in reader.read(task) for body in batch.column("body").to_pylist()]

    assert found == bodies(30)[20:]


def test_recreated_hub_is_detected(hubs: Hubs, a_reader: Readers) -> None:
    """Its sequence numbers start again, so the checkpoint is beyond its end."""
    hub = hubs.new(partitions=1)
    hubs.make_again(hub, partitions=1)
    hubs.publish(hub, 0, bodies(3))
    start = {hub: {"0": 100}}

    strict, lenient = a_reader(hub), a_reader(hub, failOnDataLoss="false")
    end = strict.latestOffset(start, ReadAllAvailable())

    with pytest.raises(DataLost, match="it ends at 3, the query is at 100"):
        strict.partitions(start, end)
    assert read(lenient, start, end) == texts(bodies(3))


def test_recreated_hub_is_not_read_from_the_old_offset(hubs: Hubs, a_reader: Readers) -> None:
    """The new hub has as many events as the query had read of the old one; only the id differs."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3, "old"))
    reader = a_reader(hub)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    hubs.make_again(hub, partitions=1)
    hubs.publish(hub, 0, bodies(5, "new"))

    with pytest.raises(HubRecreated, match="deleted and created again"):
        a_reader(hub).latestOffset(start, ReadAllAvailable())

    lenient = a_reader(hub, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert read(lenient, start, end) == texts(bodies(5, "new"))
    assert lenient.latestOffset(end, ReadAllAvailable()) == end


def test_run_with_available_now_reads_a_recreated_hub_to_its_own_end(
    hubs: Hubs, a_reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end that was recorded is that of the old hub, which had more events."""
    monkeypatch.setattr("hubmere.pipeline.source._DISCOVERY_INTERVAL_S", 0.0)
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(100, "old"))
    reader = a_reader(hub, maxEventsPerTrigger="30", endingPosition=position(seqNo=90), failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert numbers(offset) == {hub: {"0": 30}}
    hubs.make_again(hub, partitions=1)
    hubs.publish(hub, 0, bodies(40, "new"))

    found: list[str] = []
    while (reached := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        found += read(reader, offset, reached)
        offset = reached

    assert found == texts(bodies(40, "new"))


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_position_of_an_unknown_partition_is_refused(hubs: Hubs, a_reader: Readers, which: str) -> None:
    """Otherwise a misspelt number would silently start at the default, the end of the hub."""
    hub = hubs.new(partitions=2)
    given = {f"{which}Positions": '{"2": {"seqNo": 1}}'}

    with pytest.raises(InvalidOption, match=rf"{which}Positions.*no partition 2; it has 0 to 1"):
        a_reader(hub, **given).initialOffset()
    with pytest.raises(InvalidOption, match=rf"{which}Positions.*no partition 2; it has 0 to 1"):
        HubBatchReader(read_options(conf(hubs, hub, **given)), SCHEMA).partitions()


def test_micro_batch_of_a_deleted_hub_is_not_read_from_its_successor(hubs: Hubs, a_reader: Readers) -> None:
    """A restarted query repeats the micro-batch that Spark's log has; the hub was created again in between."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3, "old"))
    reader = a_reader(hub)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    hubs.make_again(hub, partitions=1)
    hubs.publish(hub, 0, bodies(5, "new"))

    with pytest.raises(HubRecreated):
        reader.partitions(start, end)
    lenient = a_reader(hub, failOnDataLoss="false")
    assert read(lenient, start, end) == []
    assert read(lenient, end, lenient.latestOffset(end, ReadAllAvailable())) == texts(bodies(5, "new"))


def test_task_fails_when_its_hub_is_recreated_before_it_reads(hubs: Hubs, a_reader: Readers) -> None:
    """A range that was planned for the old hub would return events of the new one."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3, "old"))
    reader = a_reader(hub)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    hubs.make_again(hub, partitions=1)
    hubs.publish(hub, 0, bodies(5, "new"))

    with pytest.raises(HubRecreated):
        list(reader.read(tasks[0]))


def test_checkpoint_without_an_id_is_continued(hubs: Hubs, a_reader: Readers) -> None:
    """It was written by Microsoft's connector, or before checkpoints had ids; the next offset has one."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(5))
    reader = a_reader(hub)
    start = {hub: {"0": 2}}

    end = reader.latestOffset(start, ReadAllAvailable())

    assert read(reader, start, end) == texts(bodies(5)[2:])
    assert end["$hubId"]


def test_checkpoint_of_another_hub_is_refused(hubs: Hubs, a_reader: Readers) -> None:
    """A copied checkpoint must not skip events."""
    with pytest.raises(CheckpointMismatch):
        a_reader(hubs.new()).latestOffset({"another": {"0": 1}}, ReadAllAvailable())


def test_older_spark_calls_without_arguments(hubs: Hubs, a_reader: Readers) -> None:
    """Spark 4.0 and 4.1 have no limits."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(3))

    assert numbers(a_reader(hub).latestOffset()) == {hub: {"0": 3}}


def test_aborted_transactions_are_not_read(hubs: Hubs, a_reader: Readers) -> None:
    """Only committed events are read."""
    hub = hubs.new(partitions=1)
    producer = Producer({**kafka_client(hubs), "transactional.id": hub})
    producer.init_transactions(PATIENCE_S)
    for name, ends in (("kept", True), ("aborted", False), ("kept too", True)):
        producer.begin_transaction()
        for body in bodies(3, name):
            producer.produce(hub, body, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        (producer.commit_transaction if ends else producer.abort_transaction)(PATIENCE_S)
    reader = a_reader(hub)
    start = reader.initialOffset()

    found = read(reader, start, reader.latestOffset(start, ReadAllAvailable()))

    assert found == texts(bodies(3, "kept"), bodies(3, "kept too"))


def committed(hubs: Hubs, hub: str, group: str, partitions: int) -> list[int]:
    """The committed offsets of the group, as a Kafka client fetches them."""
    consumer = Consumer({**kafka_client(hubs), "group.id": group})
    try:
        found = consumer.committed([TopicPartition(hub, index) for index in range(partitions)], timeout=PATIENCE_S)
        return [each.offset for each in found]
    finally:
        consumer.close()


def test_progress_is_committed_under_the_consumer_group(hubs: Hubs, a_reader: Readers) -> None:
    """Any Kafka tool can show the lag; only the checkpoint decides what is read."""
    hub = hubs.node.create_hub(partitions=2, groups=["reports"])
    hubs.publish(hub, 1, bodies(5))
    reader = a_reader(hub, consumerGroup="Reports")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    reader.commit(end)
    a_reader(hub).commit(end)

    assert committed(hubs, hub, "Reports", 2) == [0, 5]


def test_progress_of_the_last_micro_batch_is_committed(hubs: Hubs, a_reader: Readers) -> None:
    """Spark never calls `commit` for it, but asks for a next one; otherwise a finished run would show lag for ever."""
    hub = hubs.node.create_hub(partitions=1, groups=["runs"])
    hubs.publish(hub, 0, bodies(5))
    reader = a_reader(hub, consumerGroup="runs")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert committed(hubs, hub, "runs", 1) == [0]

    assert reader.latestOffset(end, ReadAllAvailable()) == end

    assert committed(hubs, hub, "runs", 1) == [5]


def test_unknown_consumer_group_stops_the_query_at_its_start(hubs: Hubs, a_reader: Readers) -> None:
    """Otherwise a misspelt name would be noticed only by a missing line in a lag report."""
    hub = hubs.node.create_hub(partitions=1, groups=["reports"])

    with pytest.raises(InvalidOption, match=r"no consumer group 'report'; it has '\$Default', 'reports'"):
        a_reader(hub, consumerGroup="report").initialOffset()
    with pytest.raises(InvalidOption, match="no consumer group 'report'"):
        a_reader(hub, consumerGroup="report").latestOffset({hub: {"0": 0}}, ReadAllAvailable())
    with pytest.raises(InvalidOption, match="no consumer group 'report'"):
        HubBatchReader(read_options(conf(hubs, hub, consumerGroup="report")), SCHEMA).partitions()


def test_refused_commit_of_progress_does_not_stop_the_query(
    hubs: Hubs, a_reader: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    """Another application is a member of the group and owns its offsets."""
    hub = hubs.node.create_hub(partitions=1, groups=["taken"])
    consumer = Consumer({**kafka_client(hubs), "group.id": "taken"})
    consumer.subscribe([hub])
    while not consumer.assignment():
        consumer.poll(0.1)
    reader = a_reader(hub, consumerGroup="taken")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    for _ in range(3):
        reader.commit(end)
    consumer.close()

    assert len([text for text in messages_of(caplog, "hubmere.spark") if "progress cannot be reported" in text]) == 1


def test_bytes_of_a_trigger_are_limited_over_many_partitions(hubs: Hubs, a_reader: Readers) -> None:
    """The limit is divided by backlog; the positions of all partitions are searched together."""
    hub = hubs.new(partitions=40)
    for partition in range(40):
        hubs.publish(hub, partition, *([b"%d " % number + b"x" * 100] * 10 for number in range(partition % 4)))
    reader = a_reader(hub, maxBytesPerTrigger="20000")

    offset, taken = reader.initialOffset(), []
    while (reached := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        taken.append(len(read(reader, offset, reached)))
        offset = reached

    assert sum(taken) == sum(10 * (partition % 4) for partition in range(40))
    assert len(taken) > 2


def test_many_small_partitions_are_one_task(hubs: Hubs, a_reader: Readers) -> None:
    """A task costs more than reading a few events; one of the events has the largest possible size."""
    hub = hubs.new(partitions=32)
    for partition in range(32):
        hubs.publish(hub, partition, bodies(2, f"{partition}"))
    hubs.publish(hub, 7, [b"x" * 1_000_000])
    reader = a_reader(hub)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())

    found = read(reader, start, end)

    assert len(reader.partitions(start, end)) == 1
    assert len(found) == 65
    assert max(map(len, found)) == 1_000_000
