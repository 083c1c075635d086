"""`hubmere capture`: switches the capture of a hub on and off, and shows its state.

The settings are a part of the hub's description. The state is a separate, read-only resource.
"""

import time

from hubmere.broker import JobState
from hubmere.cli.arm.client import Arm, Json, Resource, merge
from hubmere.cli.arm.steps import HUB, IN_NAMESPACE
from hubmere.cli.arm.verbs import SWITCH, Field, Switch, Verb, a_group, add
from hubmere.cli.commands.capture_jobs import add_jobs
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.entity import CaptureEncoding

_CAPTURE = "captureDescription"
_STATES = "captureStates"
_PATH = ("properties", _CAPTURE)
_TARGET = (*_PATH, "destination", "properties")
# A node starts the capture job within a second, and then reports whether it can run.
_START_SECONDS = 60.0
_POLL_SECONDS = 0.2


FIELDS = (
    Field(
        flags=("--encoding",),
        path=(*_PATH, "encoding"),
        type=CaptureEncoding,
        metavar="Avro|AvroDeflate|Parquet|Delta",
        help="How captured files are written.",
    ),
    Field(
        flags=("--capture-interval",),
        path=(*_PATH, "intervalInSeconds"),
        type=int,
        metavar="SECONDS",
        help="Longest time that a captured file stays open.",
    ),
    Field(
        flags=("--capture-size-limit",),
        path=(*_PATH, "sizeLimitInBytes"),
        type=int,
        metavar="BYTES",
        help="Size at which a captured file is closed.",
    ),
    Field(
        flags=("--destination-name",),
        path=(*_PATH, "destination", "name"),
        metavar="NAME",
        help="Kind of destination, by the service's names; it makes no difference here.",
    ),
    Field(
        flags=("--storage-account",),
        path=(*_TARGET, "storageAccountResourceId"),
        metavar="ID",
        help="Storage account that captured files go to.",
    ),
    Field(
        flags=("--blob-container",),
        path=(*_TARGET, "blobContainer"),
        metavar="NAME",
        help="Container that captured files go to.",
    ),
    Field(
        flags=("--archive-name-format",),
        path=(*_TARGET, "archiveNameFormat"),
        metavar="TEXT",
        help="Names of captured files, with {Namespace}, {EventHub}, {PartitionId} and the parts of the time.",
    ),
    Field(
        flags=("--skip-empty-archives",),
        path=(*_PATH, "skipEmptyArchives"),
        type=Switch,
        metavar=SWITCH,
        help="Write no file for a window without events.",
    ),
    Field(
        flags=("--cold-reads",),
        path=(*_PATH, "coldReads"),
        type=Switch,
        metavar=SWITCH,
        help="Give readers the events that only captured files still hold.",
    ),
)
ENABLE = Field(
    flags=("--enable-capture",),
    path=(*_PATH, "enabled"),
    type=Switch,
    metavar=SWITCH,
    help="Write the events to files.",
)


def show(arm: Arm, at: Resource, _: Json) -> Json:
    """The capture settings and the capture state of a hub; a hub without settings is not captured."""
    description = _description(arm.get(at))
    if not description["enabled"]:
        return description
    return {**description, "captureState": _state(arm, at, has_partitions=False)}


def list_states(arm: Arm, at: Resource, _: Json) -> list[Json]:
    """The capture state of every captured hub."""
    return [one["properties"] for one in arm.list((*at, _STATES))]


def partitions(arm: Arm, at: Resource, _: Json) -> list[Json]:
    """The capture state of each partition."""
    found: list[Json] = _state(arm, at)["partitions"]
    return found


def _state(arm: Arm, at: Resource, *, has_partitions: bool = True) -> Json:
    state: Json = arm.get((*at, _STATES, "default"))["properties"]
    return state if has_partitions else {name: value for name, value in state.items() if name != "partitions"}


def enable(arm: Arm, at: Resource, body: Json) -> Json:
    """Enable capture; options override the current settings. CommandFailed if the node cannot run the capture job."""
    description = _set_enabled(arm, at, body, is_enabled=True)
    deadline = time.monotonic() + _START_SECONDS
    while (state := _state(arm, at, has_partitions=False))["state"] == JobState.OFF and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    if state["state"] == JobState.BLOCKED:
        raise CommandFailed(Exit.FAILED, f"capture is enabled but cannot run: {state['reason']}")
    return description


def disable(arm: Arm, at: Resource, body: Json) -> Json:
    """Disable capture, and keep its settings."""
    return _set_enabled(arm, at, body, is_enabled=False)


def _set_enabled(arm: Arm, at: Resource, body: Json, *, is_enabled: bool) -> Json:
    hub = merge(merge(arm.get(at), body), {"properties": {_CAPTURE: {"enabled": is_enabled}}})
    return _description(arm.put(at, hub))


def _description(hub: Json) -> Json:
    found: Json = hub["properties"].get(_CAPTURE) or {"enabled": False}
    return found


app = a_group("Capture: write the events of a hub to files.")
_AT = (IN_NAMESPACE, HUB)
_COLUMNS = (
    ("Name", "eventHub"),
    ("State", "state"),
    ("LagEvents", "lagEvents"),
    ("BacklogBytes", "backlogBytes"),
    ("HeldBytes", "heldBytes"),
    ("Files", "files"),
    ("LastWritten", "lastWritten"),
    ("LastFile", "lastFile.name"),
    ("Reason", "reason"),
)
_PARTITION_COLUMNS = (
    ("Partition", "partition"),
    ("Captured", "captured"),
    ("LagEvents", "lagEvents"),
    ("BacklogBytes", "backlogBytes"),
    ("HeldBytes", "heldBytes"),
    ("ColdBegin", "coldBegin"),
    ("ColdGap", "coldGap"),
    ("LastFile", "lastFile.name"),
)
add(
    app,
    [
        Verb(name="show", help="Show the capture settings and the capture state of a hub.", run=show, at=_AT),
        Verb(
            name="list",
            help="List the captured hubs with their state, lag and last file.",
            run=list_states,
            at=(IN_NAMESPACE,),
            columns=_COLUMNS,
        ),
        Verb(
            name="partitions",
            help="List the capture progress of each partition of a hub.",
            run=partitions,
            at=_AT,
            columns=_PARTITION_COLUMNS,
        ),
        Verb(name="enable", help="Capture a hub from now on.", run=enable, at=_AT, fields=FIELDS),
        Verb(name="disable", help="Stop capturing a hub, and keep its settings.", run=disable, at=_AT),
    ],
)
add_jobs(app)
