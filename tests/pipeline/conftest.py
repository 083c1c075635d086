"""One Spark session and one node for all tests of the pipeline: both are slow to start."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from client.hubs import Hubs, a_node_with_hubs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # A task that dies is tried again, which `local[2]` alone would not do.
    "spark.master": "local[2,4]",
    "spark.app.name": "hubmere-tests",
    "spark.driver.memory": "768m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Spark on this machine, which finds the source by itself."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hubs() -> Iterator[Hubs]:
    """The hubs of a node in memory."""
    with a_node_with_hubs() as hubs:
        yield hubs
