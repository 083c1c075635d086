"""A broker for each test."""

from collections.abc import Iterator

import pytest

from broker.builders import BrokerHarness


@pytest.fixture
def broker_harness() -> Iterator[BrokerHarness]:
    """A broker in memory with the hub `orders` of four partitions."""
    made = BrokerHarness()
    yield made
    made.close()


@pytest.fixture
def harness(broker_harness: BrokerHarness) -> BrokerHarness:
    """The broker harness; files that need another harness override this fixture."""
    return broker_harness
