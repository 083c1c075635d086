"""`format("eventhubs")` on a real Spark with a real node; `test_versions` has what every Spark 4 supports."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.eventhub import EventData
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from client.hubs import Hubs, bodies
from conformance.amqp.azure_clients import a_consumer, a_producer, receive
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.offsets import Range
from hubmere.pipeline.options import read_options
from hubmere.pipeline.source import COLUMNS, FilteredHubReader, RangesPartition
from pipeline.queries import batch, conf, position, run_stream, texts

SEQUENCE = ("sequenceNumber",)

pytestmark = pytest.mark.slow


def post(hubs: Hubs, hub: str, body: bytes, **headers: str) -> None:
    """Publish over HTTPS."""
    rule = ConnectionString.parse(hubs.node.connection_string)
    token = make_token(
        f"https://{rule.host}/{hub}", str(rule.key_name), str(rule.key), expires_at_s=int(time.time()) + 600
    )
    answer = httpx.post(f"{hubs.node.http}/{hub}/messages", content=body, headers={"authorization": token, **headers})
    assert answer.status_code == 201


# --- batches ---


def test_events_of_all_protocols_are_read_with_all_columns(spark: SparkSession, hubs: Hubs) -> None:
    """Spark finds the source by name, and each row equals what an AMQP receiver gets."""
    hub = hubs.new(partitions=1)
    with a_producer(hubs.node.emulator_connection_string, hub) as producer:
        event = EventData(b"by amqp")
        event.properties = {"color": "red", "count": 5}
        event.message_id = "id-1"
        producer.send_batch([event, EventData(b"by amqp too")], partition_key="device")
    post(hubs, hub, b"by https", color="red")
    hubs.publish(hub, 0, [b"by kafka"])

    rows = batch(spark, conf(hubs, hub)).orderBy("sequenceNumber").collect()
    received = receive(a_consumer(hubs.node.emulator_connection_string, hub), 4).events

    assert [bytes(row.body) for row in rows] == [b"by amqp", b"by amqp too", b"by https", b"by kafka"]
    assert [row.offset for row in rows] == [event.offset for _, event in received]
    assert [row.sequenceNumber for row in rows] == [event.sequence_number for _, event in received]
    assert [row.enqueuedTime for row in rows] == [event.enqueued_time.replace(tzinfo=None) for _, event in received]
    assert [row.partitionKey for row in rows] == ["device", "device", None, None]
    assert rows[0].properties == {"color": "red", "count": "5"}
    assert rows[0].systemProperties == {"x-opt-partition-key": "device", "message-id": "id-1"}
    assert rows[2].properties["color"] == "red"


def test_batch_reads_exactly_between_its_positions(spark: SparkSession, hubs: Hubs) -> None:
    """Positions are sequence numbers, times and partitions; the end of a batch is the end at planning."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(100))
    hubs.publish(hub, 1, bodies(10, "other"))
    time.sleep(0.01)
    between = time.time()
    hubs.publish(hub, 0, bodies(5, "late"))
    only_first = json.dumps({json.dumps({"ehName": hub, "partitionId": 1}): json.loads(position(offset="@latest"))})

    ends = {"endingPosition": position(seqNo=25)}
    numbered = batch(spark, conf(hubs, hub, startingPosition=position(seqNo=20), startingPositions=only_first, **ends))
    instant = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(between)) + f".{int(between * 1000) % 1000:03d}Z"
    timed = batch(spark, conf(hubs, hub, startingPosition=position(enqueuedTime=instant)))

    assert texts(numbered) == [f"event {number}" for number in range(20, 25)]
    assert texts(timed) == [f"late {number}" for number in range(5)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"minEventsPerTrigger": "1000"}, [60]),
        ({"minEventsPerTrigger": "20", "maxEventsPerTrigger": "25"}, [25, 25, 10]),
        ({"maxBytesPerTrigger": "25000"}, [20, 20, 20]),
        ({"endingPosition": '{"seqNo": 15}', "maxEventsPerTrigger": "10"}, [10, 5]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_limits_apply_to_a_run_with_available_now(
    spark: SparkSession, hubs: Hubs, tmp_path: Path, options: dict[str, str], expected: list[int]
) -> None:
    """A run reads all stored events, in micro-batches of the size that the limits allow."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, *([b"%d " % number + b"x" * 1000] * 10 for number in range(6)))

    assert run_stream(spark, conf(hubs, hub, **options), tmp_path / "out", tmp_path / "checkpoint") == expected


def test_offset_of_a_row_is_a_starting_position(spark: SparkSession, hubs: Hubs) -> None:
    """It works in Spark and in AMQP receivers."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(50), bodies(50, "more"))
    row = batch(spark, conf(hubs, hub)).where("sequenceNumber = 73").first()
    assert row is not None

    from_it = batch(spark, conf(hubs, hub, startingPosition=position(offset=row.offset)))
    behind_it = batch(spark, conf(hubs, hub, startingPosition=position(offset=row.offset, isInclusive=False)))

    assert texts(from_it)[0] == "more 23"
    assert texts(behind_it)[0] == "more 24"


def test_unsupported_schema_is_refused(spark: SparkSession, hubs: Hubs) -> None:
    """The message names the column and the supported ones."""
    reader = spark.read.format("eventhubs").options(**conf(hubs, hubs.new())).schema("bodies string")

    with pytest.raises(PySparkException, match="column 'bodies string' is not one of: body binary"):
        reader.load().collect()


def test_filters_are_pushed_down_when_spark_offers_them(spark: SparkSession, hubs: Hubs) -> None:
    """They are off by default in Spark; the same query gives the same rows with them."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(50))
    hubs.publish(hub, 1, bodies(50, "other"))
    query = batch(spark, conf(hubs, hub)).where("partition = '1' and sequenceNumber >= 10 and sequenceNumber < 13")
    without = texts(query)

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = texts(query.where("true"))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert without == pushed == ["other 10", "other 11", "other 12"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [Range(0, 0, 50), Range(1, 0, 50)]),
        ([EqualTo(("partition",), "1")], [Range(1, 0, 50)]),
        ([In(("partition",), ("0", "7"))], [Range(0, 0, 50)]),
        ([GreaterThan(SEQUENCE, 9), LessThanOrEqual(SEQUENCE, 12)], [Range(0, 10, 13), Range(1, 10, 13)]),
        ([EqualTo(("partition",), "0"), EqualTo(SEQUENCE, 5)], [Range(0, 5, 6)]),
        ([In(SEQUENCE, (3, 8)), EqualTo(("partition",), "0")], [Range(0, 3, 9)]),
        ([LessThan(SEQUENCE, 0)], []),
        ([EqualTo(("properties", "a"), "x")], [Range(0, 0, 50), Range(1, 0, 50)]),
    ],
    ids=repr,
)
def test_filters_reduce_the_ranges(hubs: Hubs, filters: list[Any], expected: list[Range]) -> None:
    """Partitions and sequence numbers that cannot match are not fetched; Spark still applies every filter."""
    hub = hubs.new(partitions=2)
    hubs.publish(hub, 0, bodies(50))
    hubs.publish(hub, 1, bodies(50, "other"))
    reader = FilteredHubReader(read_options(conf(hubs, hub)), SCHEMA)

    left = list(reader.pushFilters(filters))
    tasks = reader.partitions()

    assert left == filters
    ranges = [each for task in tasks if isinstance(task, RangesPartition) for each in task.ranges]
    assert ranges == expected


def test_filter_on_time_reduces_the_ranges(hubs: Hubs) -> None:
    """The log's own time index is used."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, bodies(10))
    time.sleep(0.01)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    hubs.publish(hub, 0, bodies(10, "late"))

    instant = datetime.fromtimestamp(between_ms / 1000, UTC)
    ranges = {}
    for name, each in {"late": GreaterThanOrEqual, "early": LessThan}.items():
        reader = FilteredHubReader(read_options(conf(hubs, hub)), SCHEMA)
        reader.pushFilters([each(("enqueuedTime",), instant)])
        (task,) = reader.partitions()
        assert isinstance(task, RangesPartition)
        ranges[name] = task.ranges

    assert ranges == {"late": (Range(0, 10, 20),), "early": (Range(0, 0, 10),)}


def test_columns_are_those_of_the_connector(spark: SparkSession, hubs: Hubs) -> None:
    """Names, order and types are compared (reference: service 10)."""
    columns = batch(spark, conf(hubs, hubs.new())).schema

    assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns.fields) == COLUMNS
