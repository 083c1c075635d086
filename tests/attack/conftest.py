"""A real node with the hub `orders` in a separate process; `--torture` makes attacks long."""

from collections.abc import Iterator

import pytest

from hubmere.testing import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """The node that the attacks of a module use. It must stop with exit code 0 afterwards."""
    with Node(hubs=["orders"]) as node:
        yield node


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether attacks take minutes (`--torture`)."""
    return bool(request.config.getoption("--torture", default=False))
