"""One Spark session and one node for all tests of the pipeline: both are slow to start."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from client.hubs import Hubs, a_node_with_hubs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Spark on this machine."""
    from pipeline.sessions import a_session

    session = a_session(str(tmp_path_factory.mktemp("warehouse")))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hubs() -> Iterator[Hubs]:
    """The hubs of a node in memory."""
    with a_node_with_hubs() as hubs:
        yield hubs


@pytest.fixture
def deaths(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often to kill: few times, or often with `--torture`; some tests run only with `--torture`."""
    is_long = bool(request.config.getoption("--torture", default=False))

    def choose(short: int, long: int) -> int:
        if not short and not is_long:
            pytest.skip("takes minutes; --torture runs it")
        return long if is_long else short

    return choose
