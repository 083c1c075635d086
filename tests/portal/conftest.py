"""Shared fixture of the portal tests."""

from collections.abc import Iterator

import pytest

from portal.builders import PortalHarness


@pytest.fixture
def harness() -> Iterator[PortalHarness]:
    """A broker with the hub `orders`, and a portal over it."""
    harness = PortalHarness()
    yield harness
    harness.close()
