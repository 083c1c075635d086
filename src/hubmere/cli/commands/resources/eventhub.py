"""`hubmere eventhub`: event hubs, their authorization rules and their consumer groups."""

from hubmere.cli.arm.client import HUBS, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import HUB, IN_HUB, IN_NAMESPACE
from hubmere.cli.arm.verbs import PAGING, Field, Verb, a_group, add, delete, list_, put, show, some_of
from hubmere.cli.commands import capture
from hubmere.cli.commands.resources.consumergroup import groups_group
from hubmere.cli.commands.resources.rules import rules_group
from hubmere.model.entity import CleanupPolicy, Status, TimestampType

_RETENTION = ("properties", "retentionDescription")


FIELDS = (
    Field(
        flags=("--partition-count",),
        path=("properties", "partitionCount"),
        type=int,
        metavar="N",
        help="Number of partitions.",
    ),
    Field(
        flags=("--message-retention-in-days", "--message-retention"),
        path=("properties", "messageRetentionInDays"),
        type=int,
        metavar="DAYS",
        help="Retention time of events in days.",
    ),
    Field(
        flags=("--retention-time", "--retention-time-in-hours"),
        path=(*_RETENTION, "retentionTimeInHours"),
        type=int,
        metavar="HOURS",
        help="Retention time of events in hours; -1: unlimited.",
    ),
    Field(
        flags=("--cleanup-policy",),
        path=(*_RETENTION, "cleanupPolicy"),
        type=CleanupPolicy,
        metavar="Delete|Compact|DeleteOrCompact",
        help="How old events are removed; fixed when the hub is created.",
    ),
    Field(
        flags=("--tombstone-retention-time-in-hours", "--tombstone-time"),
        path=(*_RETENTION, "tombstoneRetentionTimeInHours"),
        type=int,
        metavar="HOURS",
        help="How long compaction keeps the tombstone of a deleted key.",
    ),
    Field(
        flags=("--min-compaction-lag-in-mins", "--min-lag"),
        path=(*_RETENTION, "minCompactionLagTimeInMinutes"),
        type=int,
        metavar="MINUTES",
        help="Minimum age of an event before compaction may remove it.",
    ),
    Field(
        flags=("--timestamp-type",),
        path=("properties", "messageTimestampDescription", "timestampType"),
        type=TimestampType,
        metavar="LogAppend|Create",
        help="Which time an event gets: that of the node or that of its sender.",
    ),
    Field(
        flags=("--status",),
        path=("properties", "status"),
        type=some_of("Status", Status.ACTIVE, Status.DISABLED, Status.SEND_DISABLED, Status.RECEIVE_DISABLED),
        metavar="Active|Disabled|SendDisabled|ReceiveDisabled",
        help="What the hub may be used for.",
    ),
    Field(flags=("--user-metadata",), path=("properties", "userMetadata"), metavar="TEXT", help="A text of your own."),
    capture.ENABLE,
    *capture.FIELDS,
)
_COLUMNS = (
    ("Name", "name"),
    ("Partitions", "properties.partitionCount"),
    ("RetentionHours", "properties.retentionDescription.retentionTimeInHours"),
    ("Cleanup", "properties.retentionDescription.cleanupPolicy"),
    ("Status", "properties.status"),
    ("Capture", "properties.captureDescription.enabled"),
)


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change the given settings and keep the others: ARM replaces a hub as a whole."""
    present = arm.get(at)
    if "messageRetentionInDays" in body.get("properties", {}):
        # The node prefers hours to days, and the current description contains hours: remove them if days are given.
        present["properties"].get("retentionDescription", {}).pop("retentionTimeInHours", None)
    return arm.put(at, merge(present, body))


app = a_group("Event hubs: partitioned logs that events are sent to and read from.")
_AT = (IN_NAMESPACE, HUB)
add(
    app,
    [
        Verb(name="create", help="Make an event hub.", run=put, at=_AT, fields=FIELDS),
        Verb(name="update", help="Change an event hub.", run=update, at=_AT, fields=FIELDS),
        Verb(name="show", help="Show an event hub.", run=show, at=_AT),
        Verb(
            name="list",
            help="List the event hubs.",
            run=list_,
            at=(IN_NAMESPACE,),
            below=(HUBS,),
            fields=PAGING,
            columns=_COLUMNS,
        ),
        Verb(
            name="delete",
            help="Delete an event hub and all its events.",
            run=delete,
            question="Delete the event hub '{name}' and all its events?",
            at=_AT,
        ),
    ],
)
app.add_typer(rules_group(IN_NAMESPACE, IN_HUB), name="authorization-rule")
app.add_typer(groups_group(), name="consumer-group")
