"""Fixtures for tests of applications: a node for the run, a hub for each test, both for asyncio, too.

| fixture | scope | gives |
| --- | --- | --- |
| `hubmere_node` | session | a node in memory with the hubs of `hubmere_hubs` |
| `hubmere_hub` | function | the name of a new hub on that node, which is deleted after the test |
| `hubmere_async_node` | session | the same node for tests that run in an event loop (pytest-asyncio, anyio) |
| `hubmere_hubs` | session | the hubs of the node; override it |

Found by pytest through its entry point; imports no other module of Hubmere until a test uses a node.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hubmere.settings import HubSetting
    from hubmere.testing import AsyncNode, Node


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


@pytest.fixture(scope="session")
def hubmere_async_node(hubmere_node: "Node") -> "AsyncNode":
    """`hubmere_node` for tests that run in an event loop: `await node.events(hub)`."""
    from hubmere.testing import AsyncNode

    return AsyncNode(hubmere_node)


@pytest.fixture
def hubmere_hub(hubmere_node: "Node") -> "Iterator[str]":
    """The name of a hub that only this test knows: one partition, empty, deleted after the test."""
    name = hubmere_node.create_hub()
    yield name
    hubmere_node.delete_hub(name)
