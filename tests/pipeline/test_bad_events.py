"""Events that cannot be parsed: marked with their problem, stored once, counted."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from client.hubs import Hubs
from pipeline.queries import STREAM_TIMEOUT_S, batch, conf, forget_last_commit
from pyspark_eventhubs import DeadLetters, parse_json

pytestmark = pytest.mark.slow

SCHEMA = "device string, temperature double"
GOOD = [b'{"device": "a", "temperature": 1.5}', b'{"device": "b"}']
NOT_OF_SCHEMA = "the body is not JSON of the schema"
# Invalid bodies, and the problem of each.
PROBLEMS = {
    b"no json": NOT_OF_SCHEMA,
    b'{"device": "c", "temperature": "warm"}': NOT_OF_SCHEMA,
    b'{"temperature": 2}': "the field 'device' is missing",
    b'{"device": "\xff"}': "the body is not UTF-8",
    b'[{"device": "d"}, {"device": "e"}]': NOT_OF_SCHEMA,
    b"": "the body is empty",
}
BAD = list(PROBLEMS)


def a_hub(hubs: Hubs) -> str:
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, [GOOD[0], BAD[0], BAD[1]], [GOOD[1], *BAD[2:]])
    return hub


def problems(rows: DataFrame) -> list[tuple[bytes, str | None]]:
    return [(bytes(row.body), row.problem) for row in rows.orderBy("sequenceNumber").collect()]


def test_each_event_is_checked_and_keeps_its_columns(spark: SparkSession, hubs: Hubs) -> None:
    """The row of an invalid event names its problem."""
    parsed = parse_json(batch(spark, conf(hubs, a_hub(hubs))), SCHEMA, required=["device"])

    assert parsed.columns[:9] == batch(spark, conf(hubs, hubs.new())).columns
    assert problems(parsed) == [
        (GOOD[0], None),
        *((body, PROBLEMS[body]) for body in BAD[:2]),
        (GOOD[1], None),
        *((body, PROBLEMS[body]) for body in BAD[2:]),
    ]
    good = parsed.where("problem is null").orderBy("sequenceNumber").select("value.*").collect()
    assert [tuple(row) for row in good] == [("a", 1.5), ("b", None)]
    assert parsed.where("problem is not null and value is not null").count() == 0


def test_fail_fast_names_the_event(spark: SparkSession, hubs: Hubs) -> None:
    """The first bad event fails the query."""
    parsed = parse_json(batch(spark, conf(hubs, a_hub(hubs))), SCHEMA, mode="failfast")

    with pytest.raises(PySparkException, match="partition 0, event 1: the body is not JSON of the schema"):
        parsed.collect()


def test_unknown_mode_is_refused(spark: SparkSession, hubs: Hubs) -> None:
    """DROPMALFORMED would lose events unnoticed."""
    with pytest.raises(ValueError, match="expected PERMISSIVE or FAILFAST"):
        parse_json(batch(spark, conf(hubs, hubs.new())), SCHEMA, mode="DROPMALFORMED")


def test_required_field_must_be_in_the_schema(spark: SparkSession, hubs: Hubs) -> None:
    """A misspelt name would make every event bad."""
    with pytest.raises(ValueError, match=r"required fields \['devise'\] are not in the schema"):
        parse_json(batch(spark, conf(hubs, hubs.new())), SCHEMA, required=["devise"])


def run(spark: SparkSession, hubs: Hubs, hub: str, letters: DeadLetters, checkpoint: Path) -> None:
    stream = spark.readStream.format("eventhubs").options(**conf(hubs, hub)).load()
    parsed = parse_json(stream, SCHEMA, required=["device"])
    writer = parsed.writeStream.foreachBatch(letters).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(STREAM_TIMEOUT_S)
    finally:
        query.stop()


def test_invalid_events_are_written_to_the_dead_letter_hub_once(
    spark: SparkSession, hubs: Hubs, tmp_path: Path
) -> None:
    """This holds even if Spark repeats the micro-batch because its last commit was lost."""
    hub, dead = a_hub(hubs), hubs.new(partitions=1)
    good: list[Sequence[object]] = []

    def keep(rows: DataFrame, _: int) -> None:
        good.extend(tuple(row) for row in rows.orderBy("sequenceNumber").select("value.*").collect())

    letters = DeadLetters(conf(hubs, dead), "readings", keep)
    run(spark, hubs, hub, letters, tmp_path / "checkpoint")
    assert (letters.counts.good, letters.counts.bad) == (2, len(BAD))
    forget_last_commit(tmp_path / "checkpoint")
    run(spark, hubs, hub, letters, tmp_path / "checkpoint")

    assert (letters.counts.good, letters.counts.bad) == (2, len(BAD))
    assert good == [("a", 1.5), ("b", None)] * 2
    found = batch(spark, conf(hubs, dead)).orderBy("sequenceNumber").collect()
    assert [bytes(row.body) for row in found] == BAD
    assert [row.properties["deadletter-sequence-number"] for row in found] == ["1", "2", "4", "5", "6", "7"]
    assert [row.properties["deadletter-problem"] for row in found] == list(PROBLEMS.values())


def test_invalid_events_are_written_to_files_once(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """There is a folder for each micro-batch, which a repeat replaces."""
    hub = a_hub(hubs)
    letters = DeadLetters(tmp_path / "bad", "readings", lambda rows, _: None)
    run(spark, hubs, hub, letters, tmp_path / "checkpoint")
    forget_last_commit(tmp_path / "checkpoint")
    run(spark, hubs, hub, letters, tmp_path / "checkpoint")

    found = spark.read.parquet(str(tmp_path / "bad" / "readings")).orderBy("sequenceNumber").collect()
    assert [bytes(row.body) for row in found] == BAD
