"""Each step on fixed rows, without a hub."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from telemetry import steps, tables

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = (
    "body binary, partition string, offset string, sequenceNumber bigint, enqueuedTime timestamp, publisher string, "
    "partitionKey string, properties map<string,string>, systemProperties map<string,string>"
)
READINGS = [
    b'{"device": "a", "time": "2026-01-01T00:00:10Z", "temperature": 20.0}',
    b'{"device": "a", "time": "2026-01-01T00:00:50Z", "temperature": 22.0}',
    b'{"device": "a", "time": "2026-01-01T00:01:00Z", "temperature": 30.0}',
]
BAD = {
    b"no JSON": "the body is not JSON of the schema",
    b'{"device": "a", "time": "yesterday", "temperature": 20.0}': "the body is not JSON of the schema",
    b'{"device": "a", "temperature": 20.0}': "the field 'time' is missing",
}


def events(spark: SparkSession, bodies: list[bytes]) -> DataFrame:
    """Events of one partition, as the source gives them."""
    rows: list[tuple[object, ...]] = [
        (bytearray(body), "0", str(number), number, START, None, None, {"site": "harbour"}, {})
        for number, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_bronze_keeps_every_event_and_every_column(spark: SparkSession) -> None:
    given = events(spark, [*READINGS, *BAD])

    assert steps.bronze(given).collect() == given.collect()


def test_every_event_is_in_silver_or_in_quarantine(spark: SparkSession) -> None:
    parsed = steps.parse(events(spark, [READINGS[0], *BAD, *READINGS[1:]]))

    silver, quarantine = steps.silver(parsed).collect(), steps.quarantine(parsed).collect()

    assert [row.sequenceNumber for row in silver] == [0, 4, 5]
    assert [(row.device, row.temperature) for row in silver] == [("a", 20.0), ("a", 22.0), ("a", 30.0)]
    assert {bytes(row.body): row.problem for row in quarantine} == BAD
    assert quarantine[0].properties == {"site": "harbour"}


def test_gold_has_one_row_for_each_device_and_minute(spark: SparkSession) -> None:
    silver = steps.silver(steps.parse(events(spark, READINGS)))

    rows = steps.gold(silver, "1 minute", "2 minutes").orderBy("minute").collect()

    assert [(row.device, row.readings, row.mean, row.highest) for row in rows] == [
        ("a", 2, 21.0, 22.0),
        ("a", 1, 30.0, 30.0),
    ]
    assert rows[1].minute - rows[0].minute == timedelta(minutes=1)


def test_minutes_are_published_as_json_under_their_device(spark: SparkSession) -> None:
    gold = steps.gold(steps.silver(steps.parse(events(spark, READINGS[2:]))), "1 minute", "2 minutes")

    [row] = steps.minute_events(gold).collect()

    assert row.partitionKey == "a"
    assert row.body == ('{"minute":"2026-01-01T00:01:00.000Z","device":"a","readings":1,"mean":30.0,"highest":30.0}')


def test_repeated_micro_batch_is_in_a_table_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = steps.bronze(events(spark, READINGS))

    for number in (0, 0, 1, 1):
        tables.append_once(tmp_path / "table", rows, "query", number)

    assert tables.read_table(spark, tmp_path / "table").count() == 2 * len(READINGS)
