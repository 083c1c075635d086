"""`hubmere audit`: the latest management actions of a node: who did what, from where, and the outcome."""

from hubmere.cli.arm.verbs import Verb, a_group, add, list_

_COLUMNS = (
    ("Time", "properties.time"),
    ("Actor", "properties.actor"),
    ("From", "properties.remoteAddress"),
    ("Action", "properties.action"),
    ("Target", "properties.target"),
    ("Outcome", "properties.outcome"),
    ("Reason", "properties.reason"),
)

app = a_group("The audit log.")
add(
    app,
    [
        Verb(
            name="audit",
            help="Show the latest management actions, newest first; all of them are in audit.log in the data folder.",
            run=list_,
            below=("auditEntries",),
            columns=_COLUMNS,
        )
    ],
)
