"""Delta tables, written by the package `deltalake`: no jar is needed.

With the Delta jars on Spark's class path, `writeStream.format("delta")` does the same.
"""

from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession


def append_once(table: Path, rows: DataFrame, query: str, number: int) -> None:
    """Append a micro-batch, unless the table has it already.

    Spark repeats a micro-batch that it has not finished under the same number, and Delta keeps the number of the last
    micro-batch of each query in its log. Only the driver writes, so a micro-batch must fit its memory (`max_events`).
    """
    if DeltaTable.is_deltatable(str(table)):
        last = DeltaTable(str(table)).transaction_version(query)
        if last is not None and last >= number:
            return
    arrow = rows.toArrow()
    if arrow.num_rows:
        done = CommitProperties(app_transactions=[Transaction(app_id=query, version=number)])
        write_deltalake(str(table), arrow, mode="append", commit_properties=done)


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The rows of a table, read by Spark's executors."""
    return spark.read.parquet(*DeltaTable(str(table)).file_uris())
