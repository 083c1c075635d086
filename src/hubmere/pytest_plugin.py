"""Fixtures for tests of applications: a node for the run, a hub for each test, both for asyncio, too.

| fixture | scope | gives |
| --- | --- | --- |
| `hubmere_node` | session | a node in memory with the hubs of `hubmere_hubs` |
| `hubmere_hub` | function | the name of a new hub on that node, which is deleted after the test |
| `hubmere_async_node` | session | the same node for tests that run in an event loop (pytest-asyncio, anyio) |
| `hubmere_hubs` | session | the hubs of the node; override it |

The report of a failed test shows what the node has logged since the test began.

Found by pytest through its entry point; imports no other module of Hubmere until a test uses a node.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hubmere.settings import HubSetting
    from hubmere.testing import AsyncNode, Node

_NODE: "pytest.StashKey[Node]" = pytest.StashKey()
_LOGGED_BEFORE: pytest.StashKey[int] = pytest.StashKey()
# The last lines say most; thousands of them would hide the failure.
_LAST_CHARACTERS = 8000


@pytest.fixture(scope="session")
def hubmere_hubs() -> "Sequence[str | HubSetting]":
    """The hubs of `hubmere_node`; override it in your `conftest.py`."""
    return ("events",)


@pytest.fixture(scope="session")
def hubmere_node(request: pytest.FixtureRequest, hubmere_hubs: "Sequence[str | HubSetting]") -> "Iterator[Node]":
    """A node for the whole test run: in memory, on free ports, on this machine only."""
    from hubmere.testing import Node

    with Node(hubs=hubmere_hubs, settings={"memory": True}) as node:
        request.config.stash[_NODE] = node
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


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how much the node has logged before the test."""
    node = item.config.stash.get(_NODE, None)
    item.stash[_LOGGED_BEFORE] = 0 if node is None else len(node.logs())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the node has logged during a failed test that used it."""
    report = yield
    node = item.config.stash.get(_NODE, None)
    if report.failed and node is not None and "hubmere_node" in getattr(item, "fixturenames", ()):
        logged = node.logs()[item.stash.get(_LOGGED_BEFORE, 0) :][-_LAST_CHARACTERS:]
        if logged:
            report.sections.append(("Hubmere node log", logged))
    return report
