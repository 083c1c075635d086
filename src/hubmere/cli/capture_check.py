"""Checks what readers get from the captured files of a running node on this machine (`hubmere doctor --captured`)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from hubmere.cli.arm.client import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION, HUBS, NAMESPACES, Arm
from hubmere.cli.commands.capture import partitions
from hubmere.cli.target.node import NodeFlags, find_node


def check_captured(data: Path) -> Iterator[tuple[str, str]]:
    """Each partition whose captured files readers get, and the gap in them; empty if there is none."""
    target = find_node(NodeFlags(data=data), {})
    assert target.namespace is not None, "the ready file of a node names its namespace"
    at = (NAMESPACES, target.namespace)
    with closing(Arm(target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP)) as arm:
        for hub in arm.list((*at, HUBS)):
            if (hub["properties"].get("captureDescription") or {}).get("coldReads"):
                for found in partitions(arm, (*at, HUBS, hub["name"]), {}):
                    yield f"{hub['name']}/{found['partition']}", _problem(found["coldGap"])


def _problem(gap: str | None) -> str:
    if gap is None:
        return ""
    first, _, last = gap.partition("-")
    return f"no captured file holds the events {first} to {last}: no reader gets older ones"
