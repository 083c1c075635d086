"""A node with the hub `orders` (two partitions), and a client that may do everything on it."""

from collections.abc import Iterator

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.raw_client import RawClient


@pytest.fixture
def node() -> Iterator[AmqpNode]:
    with AmqpNode() as node:
        yield node


@pytest.fixture
def client(node: AmqpNode) -> Iterator[RawClient]:
    with RawClient(node) as client:
        client.authorize()
        yield client
