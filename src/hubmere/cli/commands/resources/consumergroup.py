"""`hubmere eventhub consumer-group`, and `hubmere consumergroup` for short: the readers of a hub, by name."""

import typer

from hubmere.cli.arm.client import GROUPS, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import GROUP, IN_HUB, IN_NAMESPACE
from hubmere.cli.arm.verbs import PAGING, Field, Verb, a_group, add, delete, list_, put, show

_AT = (IN_NAMESPACE, IN_HUB, GROUP)
_FIELDS = (
    Field(flags=("--user-metadata",), path=("properties", "userMetadata"), metavar="TEXT", help="A text of your own."),
)
_COLUMNS = (("Name", "name"), ("CreatedAt", "properties.createdAt"), ("UserMetadata", "properties.userMetadata"))


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change an existing group."""
    return arm.put(at, merge(arm.get(at), body))


def groups_group() -> typer.Typer:
    """The group `consumer-group`."""
    app = a_group("Consumer groups: views of a hub, each with its own positions.")
    hub = (IN_NAMESPACE, IN_HUB)
    add(
        app,
        [
            Verb(name="create", help="Make a consumer group.", run=put, at=_AT, fields=_FIELDS),
            Verb(name="update", help="Change a consumer group.", run=update, at=_AT, fields=_FIELDS),
            Verb(name="show", help="Show a consumer group.", run=show, at=_AT),
            Verb(
                name="list",
                help="List the consumer groups.",
                run=list_,
                at=hub,
                below=(GROUPS,),
                fields=PAGING,
                columns=_COLUMNS,
            ),
            Verb(
                name="delete",
                help="Delete a consumer group; its readers are disconnected.",
                run=delete,
                question="Delete the consumer group '{name}'? Its readers are disconnected.",
                at=_AT,
            ),
        ],
    )
    return app


app = groups_group()
