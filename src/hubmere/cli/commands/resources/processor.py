"""`hubmere processor`: event processors that keep their checkpoints on the node: owner, checkpoint, lag and resets."""

import sys

import typer

from hubmere.cli.arm.client import PROCESSORS, Arm, Json, Resource
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import SWITCH, Field, Switch, Verb, a_group, add, confirm, list_
from hubmere.cli.commands.resources.kafkagroup import PLANNED_COLUMNS, RESET_TARGETS, parse_target
from hubmere.cli.output.tables import resource_table

_COLUMNS = (
    ("EventHub", "properties.eventHub"),
    ("Group", "properties.consumerGroup"),
    ("Partition", "properties.partition"),
    ("Owner", "properties.owner"),
    ("SequenceNumber", "properties.sequenceNumber"),
    ("CheckpointAt", "properties.checkpointAt"),
    ("Lag", "properties.lag"),
)
_RESET_FIELDS = (
    Field(flags=("--eventhub-name",), path=("eventHub",), metavar="NAME", is_required=True, help="The event hub."),
    Field(
        flags=("--consumer-group-name",), path=("consumerGroup",), metavar="NAME",
        help="The consumer group of the processors. Default: $Default.",
    ),
    Field(
        flags=("--to",), path=("to",), metavar="POSITION", is_required=True,
        help=f"Where the processors go on: {RESET_TARGETS}.",
    ),
    Field(
        flags=("--partitions",), path=("partitions",), type=list[int], metavar="N", help="Only these partitions.",
    ),
    Field(
        flags=("--container-name",), path=("container",), metavar="NAME",
        help="The container with the checkpoints, if several have some of this group.",
    ),
    Field(flags=("--dry-run",), path=("preview",), type=Switch, metavar=SWITCH, help="Show the new positions only."),
    Field(
        flags=("--yes", "-y"), path=("yes",), type=Switch, metavar=SWITCH,
        help="Do not ask for confirmation at a terminal.",
    ),
)  # fmt: skip

app = a_group("Event processors that keep checkpoints on the node.")


def reset(arm: Arm, at: Resource, wish: Json) -> list[Json]:
    """Store other checkpoints for processors that do not run; a person sees them before."""
    body = {**wish, **parse_target(wish["to"])}
    is_agreed = body.pop("yes", False)
    place = (*at, PROCESSORS)
    if sys.stdin.isatty() and not is_agreed and not wish.get("preview"):
        planned: list[Json] = arm.post(place, "reset", {**body, "preview": True})["value"]
        typer.echo(resource_table(planned, PLANNED_COLUMNS), err=True)
        confirm(f"Store these checkpoints for the processors of '{body['eventHub']}'?")
    stored: list[Json] = arm.post(place, "reset", body)["value"]
    return stored


add(
    app,
    [
        Verb(
            name="list", help="List the partitions of event processors with owner, checkpoint and lag.", run=list_,
            at=(IN_NAMESPACE,), below=(PROCESSORS,), columns=_COLUMNS,
        ),
        Verb(
            name="reset", help="Store other checkpoints for event processors that do not run.", run=reset,
            at=(IN_NAMESPACE,), fields=_RESET_FIELDS, columns=PLANNED_COLUMNS,
        ),
    ],
)  # fmt: skip
