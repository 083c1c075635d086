"""What the tests of the portal share."""

from collections.abc import Iterator

import pytest

from portal.builders import Desktop


@pytest.fixture
def desktop() -> Iterator[Desktop]:
    """A broker with the hub `orders`, and a portal over it."""
    made = Desktop()
    yield made
    made.close()
