"""Network rules of a namespace: which addresses may connect. The rule set is read, changed and written as a whole."""

from collections.abc import Callable
from typing import Any

import typer

from hubmere.cli.arm.client import NETWORK, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import SWITCH, Field, Switch, Verb, a_group, add, list_, show
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.entity import DefaultAction, PublicNetworkAccess

ACCESS = Field(
    flags=("--public-network-access",),
    path=("properties", "publicNetworkAccess"),
    type=PublicNetworkAccess,
    metavar="Enabled|Disabled|SecuredByPerimeter",
    help="Whether the namespace accepts connections from the public network.",
)
_UPDATED = (
    Field(
        flags=("--default-action",),
        path=("properties", "defaultAction"),
        type=DefaultAction,
        metavar="Allow|Deny",
        help="Action for addresses that match no rule.",
    ),
    ACCESS,
    Field(
        flags=("--enable-trusted-service-access", "-t"),
        path=("properties", "trustedServiceAccessEnabled"),
        type=Switch,
        metavar=SWITCH,
        help="Stored and returned, without effect: a node trusts no service by its address.",
    ),
)
_ADDRESS = Field(
    flags=("--ip-address", "--ip-mask"),
    path=("ipMask",),
    metavar="ADDRESS",
    help="An address, or a block such as 10.1.0.0/16.",
    is_required=True,
)
_ACTION = Field(
    flags=("--action",),
    path=("action",),
    type=DefaultAction,
    metavar="Allow",
    help="Only Allow.",
    read=lambda _: "Allow",
)
_SUBNET = Field(
    flags=("--subnet",), path=("subnet", "id"), metavar="ID", help="Resource id of a subnet.", is_required=True
)
_IGNORE_MISSING = Field(
    flags=("--ignore-missing-endpoint",),
    path=("ignoreMissingVnetServiceEndpoint",),
    type=Switch,
    metavar=SWITCH,
    help="Stored and returned, without effect.",
)


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change the given settings of the rule set."""
    return arm.put(at, merge(arm.get(at), body))


def adding(rules: str, key: str) -> Callable[[Arm, Resource, Json], Json]:
    """A function that adds a rule to one of the lists, or replaces the same rule."""

    def run(arm: Arm, at: Resource, rule: Json) -> Json:
        present = arm.get(at)
        others = [one for one in present["properties"][rules] if one[key] != rule[key]]
        return _write_rules(arm, at, present, rules, [*others, rule])

    return run


def removing(rules: str, key: str) -> Callable[[Arm, Resource, Json], Json]:
    """A function that removes a rule from one of the lists."""

    def run(arm: Arm, at: Resource, rule: Json) -> Json:
        present = arm.get(at)
        there = present["properties"][rules]
        others = [one for one in there if one[key] != rule[key]]
        if len(others) == len(there):
            raise CommandFailed(Exit.FAILED, f"there is no such rule; {_existing_rules(there, key)}")
        return _write_rules(arm, at, present, rules, others)

    return run


def _existing_rules(rules: list[Any], key: str) -> str:
    values = [one[key]["id"] if isinstance(one[key], dict) else one[key] for one in rules]
    return f"there are {', '.join(values)}" if values else "there is none"


def _write_rules(arm: Arm, at: Resource, present: Json, rules: str, wanted: list[Json]) -> Json:
    return arm.put(at, merge(present, {"properties": {rules: wanted}}))


def network_group() -> typer.Typer:
    """The group `network-rule-set`."""
    app = a_group("Network rules: which addresses may connect; they are checked before any credential.")
    at = (IN_NAMESPACE,)
    columns = (("Default", "properties.defaultAction"), ("Addresses", "properties.ipRules"))
    add(
        app,
        [
            Verb(name="show", help="Show the rule set.", run=show, at=at, below=NETWORK),
            Verb(name="list", help="List the one rule set.", run=list_, at=at, below=NETWORK[:1], columns=columns),
            Verb(name="update", help="Change the rule set.", run=update, at=at, below=NETWORK, fields=_UPDATED),
        ],
    )
    app.add_typer(_list_group("ipRules", "ipMask", (_ADDRESS, _ACTION), "Addresses that may connect."), name="ip-rule")
    subnets = _list_group(
        "virtualNetworkRules", "subnet", (_SUBNET, _IGNORE_MISSING), "Subnets: stored and returned, without effect."
    )
    app.add_typer(subnets, name="virtual-network-rule")
    return app


def _list_group(rules: str, key: str, fields: tuple[Field, ...], help_text: str) -> typer.Typer:
    app = a_group(help_text)
    at = (IN_NAMESPACE,)
    add(
        app,
        [
            Verb(name="add", help="Add a rule.", run=adding(rules, key), at=at, below=NETWORK, fields=fields),
            Verb(name="remove", help="Remove a rule.", run=removing(rules, key), at=at, below=NETWORK, fields=fields),
        ],
    )
    return app
