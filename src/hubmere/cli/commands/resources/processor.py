"""`hubmere processor`: event processors with checkpoints on the node: owner, checkpoint and lag."""

from hubmere.cli.commands.resources.arm import PROCESSORS
from hubmere.cli.commands.resources.steps import IN_NAMESPACE
from hubmere.cli.commands.resources.verbs import Verb, a_group, add, list_

_COLUMNS = (
    ("EventHub", "properties.eventHub"),
    ("Group", "properties.consumerGroup"),
    ("Partition", "properties.partition"),
    ("Owner", "properties.owner"),
    ("SequenceNumber", "properties.sequenceNumber"),
    ("CheckpointAt", "properties.checkpointAt"),
    ("Lag", "properties.lag"),
)

app = a_group("Event processors that keep checkpoints on the node.")


@app.callback()
def processor() -> None:
    """Event processors that keep checkpoints on the node."""
    # Typer would make `processor` itself the command if `list` were all there is.


add(
    app,
    [
        Verb(
            name="list", help="List the partitions of event processors with owner, checkpoint and lag.", run=list_,
            at=(IN_NAMESPACE,), below=(PROCESSORS,), columns=_COLUMNS,
        ),
    ],
)  # fmt: skip
