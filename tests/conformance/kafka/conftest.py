"""One node for all tests of a module: foreign clients are slow enough by themselves."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from hubmere.testing import Node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with Node(settings={"as": "unlimited", "default_partition_count": 4}) as node:
        yield node


@pytest.fixture
def topic() -> str:
    """A name that no other test uses; the topic comes into being when it is first asked for."""
    return f"topic-{uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"group-{uuid4().hex[:8]}"
