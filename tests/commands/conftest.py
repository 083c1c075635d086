"""One node for all tests of the commands; each test creates the hubs and namespaces that it needs."""

from collections.abc import Iterator
from itertools import count

import pytest

from commands.runner import at
from hubmere.testing import Node

_NUMBERS = count()


@pytest.fixture(scope="package")
def node() -> Iterator[Node]:
    """A node on disk, since commands find it by its data folder."""
    with Node(hubs=["orders"], settings={"capture_supervise": False, "capture_account_folders": True}) as node:
        yield node


@pytest.fixture
def hub(node: Node) -> Iterator[str]:
    """A hub of two partitions for one test; it is deleted afterwards, so that lists stay short."""
    name = f"hub{next(_NUMBERS)}"
    assert at(node, "eventhub", "create", "-n", name, "--partition-count", "2").code == 0
    yield name
    assert at(node, "eventhub", "delete", "-n", name).code == 0


@pytest.fixture
def namespace(node: Node) -> str:
    """A namespace for one test."""
    name = f"space{next(_NUMBERS):03}"
    assert at(node, "namespace", "create", "-n", name).code == 0
    return name
