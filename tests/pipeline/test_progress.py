"""The lag of a query, from the progress that Spark reports."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from hubmere.pipeline.offsets import HubOffset
from pipeline.queries import STREAM_TIMEOUT_S, conf
from pyspark_eventhubs import events_behind


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    """The progress of a query with these reached and latest offsets."""
    return {"sources": [{"endOffset": reached, "latestOffset": latest} for reached, latest in sources]}


def test_lag_is_what_is_between_the_query_and_the_end() -> None:
    """In the form of Spark's progress, and already parsed; a partition that was added counts from its beginning."""
    reached, latest = {"orders": {"0": 5, "1": 7}}, {"orders": {"0": 9, "1": 7, "2": 3}}

    assert events_behind(progress((json.dumps(reached), json.dumps(latest)))) == {"orders": {0: 4, 1: 0, 2: 3}}
    assert events_behind(progress((reached, latest))) == {"orders": {0: 4, 1: 0, 2: 3}}


def test_hub_that_was_created_again_counts_from_its_beginning() -> None:
    """Its sequence numbers begin at 0 again."""
    reached, latest = (
        HubOffset(hub="orders", id=id_, next=ends).to_json() for id_, ends in (("old", {0: 500}), ("new", {0: 3}))
    )

    assert events_behind(progress((reached, latest))) == {"orders": {0: 3}}


def test_query_with_two_readers_of_a_hub_has_the_larger_lag() -> None:
    """A query may join a hub with itself."""
    latest = {"orders": {"0": 9}}

    assert events_behind(progress(({"orders": {"0": 5}}, latest), ({"orders": {"0": 8}}, latest))) == {"orders": {0: 4}}


@pytest.mark.parametrize("other", ["12", None, '{"topic": {"0": "x"}}', "[]", '{"a": {"0": 1}, "b": {"0": 1}}'])
def test_other_sources_are_left_out(other: str | None) -> None:
    """A rate source, one before its first micro-batch, and several topics."""
    assert events_behind(progress((other, other))) == {}
    assert events_behind(None) == {}


@pytest.mark.slow
def test_progress_of_a_running_query_has_its_lag(spark: SparkSession, hubs: Hubs, tmp_path: Path) -> None:
    """It shrinks by the events of each micro-batch."""
    hub = hubs.new(2)
    for partition in range(2):
        hubs.publish(hub, partition, *([body] for body in bodies(20)))
    rows = spark.readStream.format("eventhubs").options(**conf(hubs, hub, maxEventsPerTrigger="10")).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    query = writer.trigger(availableNow=True).start()

    assert query.awaitTermination(STREAM_TIMEOUT_S)
    lags = [sum(events_behind(each)[hub].values()) for each in query.recentProgress if each["numInputRows"]]
    assert lags == [30, 20, 10, 0]
