"""`hubmere group`: Kafka groups of a namespace: members, lag, resets of committed offsets, deletion."""

import sys

import typer

from hubmere.cli.arm.client import KAFKA_GROUPS, Arm, Json, Resource
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import (
    SWITCH,
    Field,
    Step,
    Switch,
    Verb,
    a_group,
    add,
    confirm,
    delete,
    list_,
    show,
)
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.tables import resource_table

_GROUP = Step(kind=KAFKA_GROUPS, flags=("--name", "-n"), help="Id of the Kafka group.", is_argument=True)
_AT = (IN_NAMESPACE, _GROUP)
_COLUMNS = (
    ("Group", "name"),
    ("State", "properties.state"),
    ("Members", "properties.memberCount"),
    ("EventHubs", "properties.eventHubs"),
    ("Partitions", "properties.partitionCount"),
    ("Lag", "properties.lag"),
)
_POSITIONS = (
    ("EventHub", "eventHub"),
    ("Partition", "partition"),
    ("Committed", "committedOffset"),
    ("End", "endOffset"),
    ("Lag", "lag"),
    ("Client", "clientId"),
    ("Host", "host"),
)
PLANNED_COLUMNS = (
    ("EventHub", "eventHub"),
    ("Partition", "partition"),
    ("Current", "currentOffset"),
    ("New", "newOffset"),
    ("Begin", "beginOffset"),
    ("End", "endOffset"),
    ("Lag", "lag"),
)
_WORDS = ("earliest", "latest")
_NUMBERS = ("offset", "shift")
RESET_TARGETS = "earliest, latest, offset:N, shift:N (negative to go back) or a time such as 2026-01-31T12:00:00Z"
_RESET_FIELDS = (
    Field(
        flags=("--to",), path=("to",), metavar="POSITION", is_required=True,
        help=f"New position of the group: {RESET_TARGETS}.",
    ),
    Field(
        flags=("--eventhub-name",), path=("eventHub",), metavar="NAME",
        help="Only this event hub, with or without committed offsets. Default: all that the group has committed.",
    ),
    Field(
        flags=("--partitions",), path=("partitions",), type=list[int], metavar="N",
        help="Reset only these partitions of the event hub.",
    ),
    Field(flags=("--dry-run",), path=("preview",), type=Switch, metavar=SWITCH, help="Only show the new offsets."),
    Field(
        flags=("--yes", "-y"), path=("yes",), type=Switch, metavar=SWITCH,
        help="Do not ask for confirmation at a terminal.",
    ),
)  # fmt: skip


def reset(arm: Arm, at: Resource, wish: Json) -> list[Json]:
    """Commit other offsets for a group; a person at a terminal confirms them first."""
    body = {**wish, **parse_target(wish["to"])}
    is_agreed = body.pop("yes", False)
    if sys.stdin.isatty() and not is_agreed and not wish.get("preview"):
        planned: list[Json] = arm.post(at, "reset", {**body, "preview": True})["value"]
        typer.echo(resource_table(planned, PLANNED_COLUMNS), err=True)
        confirm(f"Commit these offsets for the group '{at[-1]}'?")
    committed: list[Json] = arm.post(at, "reset", body)["value"]
    return committed


def parse_target(text: str) -> Json:
    """The body of a reset for what `--to` says."""
    if text in _WORDS:
        return {"to": text}
    word, colon, number = text.partition(":")
    if colon and word in _NUMBERS:
        try:
            return {"to": word, "value": int(number)}
        except ValueError:
            raise CommandFailed(Exit.USAGE, f"--to {text} is none of {RESET_TARGETS}") from None
    if not text[:1].isdigit():
        raise CommandFailed(Exit.USAGE, f"--to {text} is none of {RESET_TARGETS}")
    return {"to": "time", "value": text}


def _group_tables(group: object) -> str:
    """A table with the essentials of the group, then one line for each partition."""
    assert isinstance(group, dict)
    properties = dict(group["properties"])
    positions, members = properties.pop("positions"), properties.pop("members")
    clients = [f"{member['clientId']}@{member['host']}" for member in members]
    head = resource_table({"group": group["name"], **properties, "members": clients}, ())
    return f"{head}\n\n{resource_table(positions, _POSITIONS)}" if positions else head


app = a_group("Kafka groups: members, lag, resets.")
_DELETE = "Delete the group '{name}' with its committed offsets?"
add(
    app,
    [
        Verb(
            name="list", help="List the Kafka groups with their lag.", run=list_, at=(IN_NAMESPACE,),
            below=(KAFKA_GROUPS,), columns=_COLUMNS,
        ),
        Verb(
            name="describe", help="Show a group: members, and position and lag in each partition.", run=show, at=_AT,
            table=_group_tables,
        ),
        Verb(
            name="reset", help="Commit other offsets for a group that has no members.", run=reset, at=_AT,
            fields=_RESET_FIELDS, columns=PLANNED_COLUMNS,
        ),
        Verb(
            name="delete", help="Delete a group that has no members, with its offsets.", run=delete, at=_AT,
            question=_DELETE,
        ),
    ],
)  # fmt: skip
