"""Events that cannot be parsed: each is marked with its problem, counted, and stored in another hub or in files.

`parse_json` adds the parsed body and the problem, if there is one, to the columns of an event. `DeadLetters` is a
function for `foreachBatch`: it passes good rows to a function of the caller and stores the bad ones. A micro-batch that
Spark repeats stores no bad event twice.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

log = logging.getLogger("hubmere.spark")

PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"
VALUE: Final = "value"
PROBLEM: Final = "problem"
# Where Spark puts a body that it could not parse.
_CORRUPT: Final = "_corrupt"
# Prefix of the properties that an event gets in the dead-letter hub. If a dead letter is bad again, they are replaced.
_PREFIX: Final = "deadletter-"

WriteRows = Callable[[DataFrame, int], None]


class InvalidParsing(ValueError):
    """An argument of `parse_json` or `DeadLetters` is not valid."""


def parse_json(
    events: DataFrame, schema: str | StructType, *, mode: str = PERMISSIVE, required: Sequence[str] = ()
) -> DataFrame:
    """All columns of the events, with `value`, the body parsed as JSON, and `problem`, which is null for a good event.

    With mode PERMISSIVE, `problem` says what is wrong: there is no body, it is not JSON of this schema, or one of the
    `required` fields is missing or null; `value` is then null. With FAILFAST such an event fails the query.
    """
    folded = mode.strip().upper()
    if folded not in (PERMISSIVE, FAILFAST):
        raise InvalidParsing(f"mode '{mode}': expected {PERMISSIVE} or {FAILFAST}")
    fields = _fields(schema, required)
    marked = StructType([*fields, StructField(_CORRUPT, StringType())])
    options = {"mode": PERMISSIVE, "columnNameOfCorruptRecord": _CORRUPT}
    parsed = events.withColumn(VALUE, sql.from_json(sql.col("body").cast("string"), marked, options))
    problem = _problem(required)
    if folded == FAILFAST:
        place = sql.concat(sql.lit("partition "), "partition", sql.lit(", event "), "sequenceNumber", sql.lit(": "))
        problem = sql.when(problem.isNotNull(), sql.raise_error(sql.concat(place, problem)).cast("string"))
    kept = sql.struct(*(sql.col(f"{VALUE}.`{field.name}`") for field in fields))
    return parsed.withColumn(PROBLEM, problem).withColumn(VALUE, sql.when(sql.col(PROBLEM).isNull(), kept))


def _fields(schema: str | StructType, required: Sequence[str]) -> list[StructField]:
    """The fields of a schema; InvalidParsing if there are none, or if a required one is not among them."""
    found = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    if not isinstance(found, StructType) or not found.fields:
        raise InvalidParsing(f"schema '{schema}': expected fields, such as 'device string, temperature double'")
    if missing := sorted(set(required) - set(found.names)):
        raise InvalidParsing(f"required fields {missing} are not in the schema, which has {found.names}")
    return found.fields


def _problem(required: Sequence[str]) -> Column:
    text, value = sql.col("body").cast("string"), sql.col(VALUE)
    found = sql.when(text.isNull(), "the event has no body")
    found = found.when(~sql.is_valid_utf8(text), "the body is not UTF-8")
    found = found.when(value.isNull(), "the body is empty")
    found = found.when(value[_CORRUPT].isNotNull(), "the body is not JSON of the schema")
    for name in required:
        found = found.when(sql.col(f"{VALUE}.`{name}`").isNull(), f"the field '{name}' is missing")
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of the micro-batches so far, each micro-batch counted once."""

    good: int = 0
    bad: int = 0


class DeadLetters:
    """Stores the bad rows of `parse_json` in a hub (options of the sink) or in Parquet files below a path.

    `name` must be unique among the queries that write to the same hub or path: by it and the number of the micro-batch
    a repeat is recognized. Pass one object to `foreachBatch` of one query.
    """

    def __init__(self, target: Mapping[str, str] | str | PurePath, name: str, write_good: WriteRows) -> None:
        if not name or "/" in name:
            raise InvalidParsing(f"name '{name}': expected a name without '/'")
        self._target = target
        self._name = name
        self._write_good = write_good
        self._last = -1
        self.counts = Counts()

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch: the good rows, then the bad ones."""
        batch.persist()
        try:
            good, bad = batch.where(f"{PROBLEM} is null"), batch.where(f"{PROBLEM} is not null")
            self._write_good(good, number)
            bad_count = bad.count()
            if bad_count:
                self._store(bad, number)
                log.warning("%s: %d bad events in micro-batch %d", self._name, bad_count, number)
            if number > self._last:
                self._last = number
                self.counts = Counts(self.counts.good + good.count(), self.counts.bad + bad_count)
        finally:
            batch.unpersist()

    def _store(self, bad: DataFrame, number: int) -> None:
        if isinstance(self._target, (str, PurePath)):
            # One folder for each micro-batch: a repeat replaces the files of the first attempt.
            bad.drop(VALUE).write.mode("overwrite").parquet(f"{self._target}/{self._name}/batch={number}")
            return
        # The hub recognizes a repeat by its id if the rows are the same in the same order.
        rows = bad.coalesce(1).sortWithinPartitions("partition", "sequenceNumber")
        writer = _letters(rows).write.format("eventhubs").options(**self._target)
        writer.option("writeId", f"{self._name}/{number}").mode("append").save()


def _letters(bad: DataFrame) -> DataFrame:
    """Bad rows as events: body and key are unchanged; properties say what is wrong and where the event came from."""
    own = sql.map_filter(
        sql.coalesce("properties", sql.expr("map()").cast("map<string,string>")),
        lambda name, _: ~name.startswith(_PREFIX),
    )
    added = {
        "problem": sql.col(PROBLEM),
        "partition": sql.col("partition"),
        "sequence-number": sql.col("sequenceNumber").cast("string"),
        "offset": sql.col("offset"),
        "enqueued-time": sql.date_format("enqueuedTime", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
    }
    origin = sql.create_map(*(part for name, value in added.items() for part in (sql.lit(_PREFIX + name), value)))
    return bad.select("body", "partitionKey", sql.map_concat(own, origin).alias("properties"))
