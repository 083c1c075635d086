"""`hubmere namespace application-group`: clients of one credential with their own rate limits."""

from collections.abc import Sequence
from dataclasses import replace

import typer

from hubmere.cli.arm.client import APPLICATION_GROUPS, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import APPLICATION_GROUP, IN_NAMESPACE
from hubmere.cli.arm.verbs import (
    SWITCH,
    Field,
    Switch,
    Verb,
    a_group,
    add,
    delete,
    grouped_pairs,
    list_,
    pairs,
    put,
    show,
)
from hubmere.cli.exit_codes import CommandFailed, Exit

_AT = (IN_NAMESPACE, APPLICATION_GROUP)
_COLUMNS = (
    ("Name", "name"),
    ("Client", "properties.clientAppGroupIdentifier"),
    ("Enabled", "properties.isEnabled"),
    ("Policies", "properties.policies"),
)
# The keys of a policy on the command line, with their names in the management API.
_POLICY_KEYS = {"name": "name", "metric-id": "metricId", "rate-limit-threshold": "rateLimitThreshold"}


def _policies(texts: Sequence[str]) -> list[Json]:
    """Parse policies like `az`: a repeated key starts the next policy."""
    return [_policy(given) for given in grouped_pairs(texts)]


def _policy(given: dict[str, str]) -> Json:
    if given.keys() != _POLICY_KEYS.keys() or not given["rate-limit-threshold"].isdecimal():
        raise CommandFailed(Exit.USAGE, f"a policy is {' '.join(f'{key}=...' for key in _POLICY_KEYS)}, a whole number")
    policy: Json = {_POLICY_KEYS[key]: value for key, value in given.items()}
    return policy | {"type": "ThrottlingPolicy", "rateLimitThreshold": int(given["rate-limit-threshold"])}


_POLICIES = Field(
    flags=("--throttling-policy-config", "--throttling-policy", "--policy-config"),
    path=("properties", "policies"),
    type=list[str],
    metavar="KEY=VALUE",
    help="name=... metric-id=IncomingMessages|IncomingBytes|OutgoingMessages|OutgoingBytes rate-limit-threshold=N, "
    "per second; repeat for each policy.",
    read=lambda texts: _policies([text for text in texts if text]),
)
_CLIENT = Field(
    flags=("--client-app-group-identifier", "--client-app-group-id"),
    path=("properties", "clientAppGroupIdentifier"),
    metavar="ID",
    help="The clients: NamespaceSASKeyName=RULE for a rule of the namespace, EntitySASKeyName=RULE for one of a hub, "
    "AADAppID=ID for an application with OAuth tokens.",
    is_required=True,
)
_ENABLED = Field(
    flags=("--is-enabled",),
    path=("properties", "isEnabled"),
    type=Switch,
    metavar=SWITCH,
    help="Whether its clients may connect; false closes their connections.",
)
_NAMES = Field(
    flags=("--policy",),
    path=("names",),
    type=list[str],
    metavar="name=NAME",
    help="Names of policies.",
    is_required=True,
    read=lambda texts: [pairs([text]).get("name") for text in texts],
)


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change an existing group."""
    return arm.put(at, merge(arm.get(at), body))


def add_policies(arm: Arm, at: Resource, body: Json) -> Json:
    """Add policies; a policy replaces one of the same name."""
    wanted = body["properties"]["policies"]
    names = [policy["name"] for policy in wanted]
    return _write_policies(arm, at, [*(one for one in _present(arm, at) if one["name"] not in names), *wanted])


def remove_policies(arm: Arm, at: Resource, body: Json) -> Json:
    """Remove policies."""
    present, names = _present(arm, at), body["names"]
    missing = [name for name in names if name not in [one["name"] for one in present]]
    if missing:
        there = ", ".join(one["name"] for one in present) or "none"
        raise CommandFailed(Exit.NOT_FOUND, f"there is no policy '{missing[0]}'; there is {there}")
    return _write_policies(arm, at, [one for one in present if one["name"] not in names])


def _present(arm: Arm, at: Resource) -> list[Json]:
    policies: list[Json] = arm.get(at)["properties"]["policies"]
    return policies


def _write_policies(arm: Arm, at: Resource, policies: list[Json]) -> Json:
    return update(arm, at, {"properties": {"policies": policies}})


def application_groups_group() -> typer.Typer:
    """The group `application-group`."""
    app = a_group(
        "Application groups: clients of one credential, with their own rate limits, which can be disabled together."
    )
    made = (_CLIENT, _ENABLED, _POLICIES)
    add(
        app,
        [
            Verb(name="create", help="Create an application group.", run=put, at=_AT, fields=made),
            Verb(name="update", help="Allow or refuse its clients.", run=update, at=_AT, fields=(_ENABLED,)),
            Verb(name="show", help="Show an application group.", run=show, at=_AT),
            Verb(
                name="list",
                help="List the application groups.",
                run=list_,
                at=(IN_NAMESPACE,),
                below=(APPLICATION_GROUPS,),
                columns=_COLUMNS,
            ),
            Verb(
                name="delete",
                help="Delete an application group; its limits no longer apply.",
                run=delete,
                question="Delete the application group '{name}'?",
                at=_AT,
            ),
        ],
    )
    app.add_typer(_policy_group(), name="policy")
    return app


def _policy_group() -> typer.Typer:
    app = a_group("Throttling policies of an application group.")
    add(
        app,
        [
            Verb(
                name="add",
                help="Add policies.",
                run=add_policies,
                at=_AT,
                fields=(replace(_POLICIES, is_required=True),),
            ),
            Verb(name="remove", help="Remove policies.", run=remove_policies, at=_AT, fields=(_NAMES,)),
        ],
    )
    return app
