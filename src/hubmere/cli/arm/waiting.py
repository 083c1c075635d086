"""The verb `wait`: returns once a resource exists, or is deleted, like that of `az`.

A node answers after a change is complete, so there is seldom anything to wait for. A pairing between two nodes is the
exception: it is `Accepted` until the partner has all metadata.
"""

import time

from hubmere.cli.arm.client import Arm, Json, Resource
from hubmere.cli.arm.verbs import SWITCH, Field, Step, Switch, Verb
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.results import apply_query, check_query, flatten

_SUCCEEDED = "Succeeded"
_INTERVAL_S, _TIMEOUT_S = 1, 3600


def _goal(flag: str, sentence: str) -> Field:
    return Field(flags=(f"--{flag}",), path=(flag,), type=Switch, metavar=SWITCH, help=sentence)


_GOALS = (
    _goal(
        "created", f"Wait until it exists and its state is {_SUCCEEDED}; the same as --updated. This is the default."
    ),
    _goal("updated", f"Wait until it exists and its state is {_SUCCEEDED}."),
    _goal("exists", "Wait until it exists, in any state."),
    _goal("deleted", "Wait until it does not exist."),
    Field(
        flags=("--custom",),
        path=("custom",),
        metavar="JMESPATH",
        help="Wait until a JMESPath query on it is true, such as status=='Active'.",
    ),
)
# What to say when the time is over.
_NOT_REACHED = {
    "created": f"was not created, or its state is not {_SUCCEEDED}",
    "updated": f"does not exist, or its state is not {_SUCCEEDED}",
    "exists": "does not exist",
    "deleted": "was not deleted",
    "custom": "does not satisfy --custom",
}
_PACE = (
    Field(
        flags=("--interval",),
        path=("interval",),
        type=int,
        metavar="SECONDS",
        help=f"Time between two requests. Default: {_INTERVAL_S}.",
    ),
    Field(
        flags=("--timeout",),
        path=("timeout",),
        type=int,
        metavar="SECONDS",
        help=f"Longest time to wait. Default: {_TIMEOUT_S}.",
    ),
)


def wait_verb(*at: Step) -> Verb:
    """`wait` for a resource."""
    return Verb(name="wait", help="Wait until it exists, or is deleted.", run=wait, at=at, fields=(*_GOALS, *_PACE))


def wait(arm: Arm, at: Resource, wish: Json) -> None:
    """Return once the condition holds; fails after the timeout."""
    goals = [field.path[0] for field in _GOALS if wish.get(field.path[0])]
    if len(goals) > 1:
        raise CommandFailed(Exit.USAGE, f"wait for one condition at a time, not for {' and '.join(goals)}")
    goal = goals[0] if goals else "created"
    query = wish.get("custom")
    check_query(query, "--custom")
    interval_s, timeout_s = wish.get("interval", _INTERVAL_S), wish.get("timeout", _TIMEOUT_S)
    if interval_s < 0 or timeout_s < 0:
        raise CommandFailed(Exit.USAGE, "--interval and --timeout are numbers of seconds from 0")
    deadline = time.monotonic() + timeout_s
    while not _is_reached(goal, query, arm.find(at)):
        if time.monotonic() + interval_s > deadline:
            raise CommandFailed(Exit.FAILED, f"'{at[-1]}' {_NOT_REACHED[goal]}; {timeout_s} s have passed")
        time.sleep(interval_s)


def _is_reached(goal: str, query: str | None, resource: Json | None) -> bool:
    if goal == "deleted":
        return resource is None
    if resource is None:
        return False
    if query is not None:
        return bool(apply_query(query, flatten(resource), "--custom"))
    return goal == "exists" or resource["properties"].get("provisioningState", _SUCCEEDED) == _SUCCEEDED
