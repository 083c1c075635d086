"""Checks the event processors of a running node on this machine (`hubmere doctor --processors`)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hubmere.cli.arm.client import (
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    NAMESPACES,
    PROCESSORS,
    Arm,
)
from hubmere.cli.target.node import NodeFlags, find_node


def check_processors(data: Path) -> Iterator[tuple[str, str]]:
    """Each partition with a checkpoint or an owner, and what is wrong with it; empty if nothing is."""
    target = find_node(NodeFlags(data=data), {})
    assert target.namespace is not None, "the ready file of a node names its namespace"
    with closing(Arm(target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP)) as arm:
        for item in arm.list((NAMESPACES, target.namespace, PROCESSORS)):
            found = item["properties"]
            place = f"{found['eventHub']}/{found['partition']} as {found['consumerGroup']} in {found['container']}"
            yield place, "; ".join(found["problems"])
