"""Fixtures for the tests of those who use Hubmere: `hubmere_node`, and `hubmere_hubs` to say which hubs it has.

Found by pytest through its entry point; imports nothing of ours until a test asks for a node.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hubmere.settings import HubSetting
    from hubmere.testing import Node


@pytest.fixture(scope="session")
def hubmere_hubs() -> "Sequence[str | HubSetting]":
    """The hubs of `hubmere_node`; override it in your `conftest.py`."""
    return ("events",)


@pytest.fixture(scope="session")
def hubmere_node(hubmere_hubs: "Sequence[str | HubSetting]") -> "Iterator[Node]":
    """A node for the whole test run: in memory, on free ports, on this machine only."""
    from hubmere.testing import Node

    with Node(hubs=hubmere_hubs, settings={"memory": True}) as node:
        yield node
