"""One Spark session for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import job


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark as the pipeline has it."""
    folder: Path = tmp_path_factory.mktemp("spark")
    session = job.create_session(folder)
    yield session
    session.stop()
