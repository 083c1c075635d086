"""`hubmere links`: lists the open connections of a node, and closes one."""

from hubmere.cli.arm.client import Arm, Json, Resource
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import Step, Verb, a_group, add, list_

_KIND = "connections"
_CONNECTION = Step(kind=_KIND, flags=("--name", "-n"), help="Number of the connection, as `list` shows it.")
_COLUMNS = (
    ("Number", "name"),
    ("Protocol", "properties.protocol"),
    ("Rule", "properties.rule"),
    ("From", "properties.remoteAddress"),
    ("Idle", "properties.idleSeconds"),
    ("Links", "properties.linkCount"),
    ("Client", "properties.clientId"),
    ("Software", "properties.software"),
)


def _close(arm: Arm, at: Resource, _: Json) -> Json:
    """Close a connection, and print its last state."""
    return arm.post(at, "close")


app = a_group("Open connections: clients, links, credit and lag.")
add(
    app,
    [
        Verb(
            name="list",
            help="List the open connections of a namespace; --output json shows their links.",
            run=list_,
            at=(IN_NAMESPACE,),
            below=(_KIND,),
            columns=_COLUMNS,
        ),
        Verb(
            name="close",
            help="Close a connection; its client may connect again.",
            run=_close,
            at=(IN_NAMESPACE, _CONNECTION),
        ),
    ],
)
