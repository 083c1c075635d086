"""The buffer between a worker and Spark."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs
from hubmere.pipeline.worker_files import enlarge_output
from pipeline.queries import batch, conf

WORKER = {"__name__": "pyspark.worker"}


def run_in_worker(outfile: Any) -> None:
    """Call it as Spark's worker calls a task, with this output."""
    entry: dict[str, Callable[..., None]] = {}
    exec("def main(infile, outfile, task):\n    task()", WORKER, entry)
    entry["main"](None, outfile, enlarge_output)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def buffer_bytes(connection: socket.socket) -> int:
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_buffer_of_a_unix_socket_grows_up_to_the_limit_of_the_kernel() -> None:
    """The connection stays usable: the worker goes on writing to its own file."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    expected = socket.socket(socket.AF_UNIX)
    expected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * 1024 * 1024)
    with ours, theirs, expected, os.fdopen(os.dup(ours.fileno()), "wb") as outfile:
        run_in_worker(outfile)
        outfile.write(b"rows")
        outfile.flush()

        assert buffer_bytes(ours) == buffer_bytes(expected)
        assert theirs.recv(4) == b"rows"


def test_tcp_socket_keeps_its_own_size() -> None:
    """The kernel adapts it only as long as nobody sets it."""
    with socket.socket() as connection, connection.makefile("wb") as outfile:
        before = buffer_bytes(connection)

        run_in_worker(outfile)

        assert buffer_bytes(connection) == before


@pytest.mark.parametrize("kind", ["none", "a file", "a closed file", "not a file"])
def test_other_output_changes_nothing(kind: str, tmp_path: Path) -> None:
    """A later PySpark may keep something else there; no file stays open."""
    output: IO[bytes] | object | None = None
    if kind != "none":
        output = object() if kind == "not a file" else (tmp_path / "out").open("wb")
    if kind == "a closed file":
        output.close()  # type: ignore[union-attr]
    before = open_files()

    run_in_worker(output)

    assert open_files() == before
    if kind == "a file":
        output.close()  # type: ignore[union-attr]


def test_worker_of_spark_has_an_output_to_enlarge(spark: SparkSession, hubs: Hubs) -> None:
    """The source finds the file in this version of PySpark, and reads all events through it."""
    hub = hubs.new(partitions=1)
    hubs.publish(hub, 0, [bytes(100_000)] * 9)
    rows = batch(spark, conf(hubs, hub))

    def sizes(_: Any) -> Any:
        from hubmere.pipeline.worker_files import worker_file

        file = worker_file("outfile", sys._getframe(1))
        with socket.socket(fileno=os.dup(file.fileno())) as connection:
            yield connection.family == socket.AF_UNIX

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(sizes).collect() == [True]
    assert {len(row.body) for row in rows.collect()} == {100_000}
