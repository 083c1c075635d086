"""Network rules of a namespace: which addresses may connect. The rule set is read, changed and written as a whole."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import typer

from hubmere.cli.arm.client import NETWORK, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import IN_NAMESPACE
from hubmere.cli.arm.verbs import SWITCH, Field, Switch, Verb, a_group, add, grouped_pairs, list_, show
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.entity import DefaultAction, PublicNetworkAccess

# Here `az` names the namespace by --name too.
_NAMESPACE = replace(IN_NAMESPACE, flags=(*IN_NAMESPACE.flags, "--name", "-n"))
ACCESS = Field(
    flags=("--public-network-access", "--public-network"),
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
# The rules that a field in the form of `az` gives; the other fields give the values of one rule.
_RULES = "rules"
_ADDRESS = Field(
    flags=("--ip-address", "--ip-mask"),
    path=("ipMask",),
    metavar="ADDRESS",
    help="An address, or a block such as 10.1.0.0/16.",
)
_ACTION = Field(
    flags=("--action",),
    path=("action",),
    type=DefaultAction,
    metavar="Allow",
    help="Only Allow.",
    read=lambda _: "Allow",
)
_IP_RULE = Field(
    flags=("--ip-rule",),
    path=(_RULES,),
    type=list[str],
    metavar="KEY=VALUE",
    help="Instead, as `az` has it: ip-address=ADDRESS action=Allow; repeat for each rule.",
    read=lambda texts: [_ip_rule(given) for given in grouped_pairs(texts)],
)
_SUBNET = Field(
    flags=("--subnet",),
    path=(_RULES,),
    type=list[str],
    metavar="ID",
    help="Resource id of a subnet, or as `az` has it: id=ID ignore-missing-endpoint=true|false.",
    is_required=True,
    read=lambda texts: [_subnet_rule(given) for given in grouped_pairs(list(map(_with_name, texts)))],
)
_IGNORE_MISSING = Field(
    flags=("--ignore-missing-endpoint",),
    path=("ignoreMissingVnetServiceEndpoint",),
    type=Switch,
    metavar=SWITCH,
    help="Stored and returned, without effect.",
)


def _ip_rule(given: dict[str, str]) -> Json:
    if (
        not {"ip-address"} <= given.keys() <= {"ip-address", "action"}
        or given.get("action", "Allow").lower() != "allow"
    ):
        raise CommandFailed(Exit.USAGE, "a rule is ip-address=ADDRESS, or ip-address=ADDRESS action=Allow")
    return {"ipMask": given["ip-address"], "action": "Allow"}


def _with_name(text: str) -> str:
    """A value of `--subnet` with the name of its key, which is optional for an id."""
    return text if "=" in text else f"id={text}"


def _subnet_rule(given: dict[str, str]) -> Json:
    if not {"id"} <= given.keys() <= {"id", "ignore-missing-endpoint"}:
        raise CommandFailed(Exit.USAGE, "a rule is id=ID, or id=ID ignore-missing-endpoint=true|false")
    rule: Json = {"subnet": {"id": given["id"]}}
    if "ignore-missing-endpoint" in given:
        rule["ignoreMissingVnetServiceEndpoint"] = given["ignore-missing-endpoint"].lower() == "true"
    return rule


def _wanted_rules(body: Json, key: str) -> list[Json]:
    """The rules that the options describe."""
    single = {name: value for name, value in body.items() if name != _RULES}
    rules = [*body.get(_RULES, ()), *([single] if key in single else ())]
    if not rules:
        raise CommandFailed(Exit.USAGE, "give a rule: --ip-address ADDRESS, or --ip-rule ip-address=ADDRESS")
    return [{**single, **rule} for rule in rules]


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change the given settings of the rule set."""
    return arm.put(at, merge(arm.get(at), body))


def adding(rules: str, key: str) -> Callable[[Arm, Resource, Json], Json]:
    """A function that adds rules to one of the lists, or replaces the same rules."""

    def run(arm: Arm, at: Resource, body: Json) -> Json:
        wanted = _wanted_rules(body, key)
        present = arm.get(at)
        replaced = [rule[key] for rule in wanted]
        others = [one for one in present["properties"][rules] if one[key] not in replaced]
        return _write_rules(arm, at, present, rules, [*others, *wanted])

    return run


def removing(rules: str, key: str) -> Callable[[Arm, Resource, Json], Json]:
    """A function that removes rules from one of the lists; a missing rule is reported and no failure, as with `az`."""

    def run(arm: Arm, at: Resource, body: Json) -> Json:
        unwanted = [rule[key] for rule in _wanted_rules(body, key)]
        present = arm.get(at)
        there = present["properties"][rules]
        missing = [value for value in unwanted if value not in [one[key] for one in there]]
        if missing:
            names = ", ".join(map(_rule_name, missing))
            typer.echo(f"hubmere: there is no rule for {names}; {_existing_rules(there, key)}", err=True)
        return _write_rules(arm, at, present, rules, [one for one in there if one[key] not in unwanted])

    return run


def _existing_rules(rules: list[Any], key: str) -> str:
    values = [_rule_name(one[key]) for one in rules]
    return f"there are {', '.join(values)}" if values else "there are no others"


def _rule_name(value: Any) -> str:
    """The address of a rule, or the id of its subnet."""
    return str(value["id"] if isinstance(value, dict) else value)


def _write_rules(arm: Arm, at: Resource, present: Json, rules: str, wanted: list[Json]) -> Json:
    return arm.put(at, merge(present, {"properties": {rules: wanted}}))


def network_group() -> typer.Typer:
    """The group `network-rule-set`."""
    app = a_group("Network rules: which addresses may connect; they are checked before any credential.")
    at = (_NAMESPACE,)
    columns = (("Default", "properties.defaultAction"), ("Addresses", "properties.ipRules"))
    add(
        app,
        [
            Verb(name="show", help="Show the rule set.", run=show, at=at, below=NETWORK),
            Verb(name="list", help="List the one rule set.", run=list_, at=at, below=NETWORK[:1], columns=columns),
            Verb(name="update", help="Change the rule set.", run=update, at=at, below=NETWORK, fields=_UPDATED),
        ],
    )
    app.add_typer(
        _list_group("ipRules", "ipMask", (_ADDRESS, _ACTION, _IP_RULE), "Addresses that may connect."), name="ip-rule"
    )
    subnets = _list_group(
        "virtualNetworkRules", "subnet", (_SUBNET, _IGNORE_MISSING), "Subnets: stored and returned, without effect."
    )
    app.add_typer(subnets, name="virtual-network-rule")
    return app


def _list_group(rules: str, key: str, fields: tuple[Field, ...], help_text: str) -> typer.Typer:
    app = a_group(help_text)
    at = (_NAMESPACE,)
    add(
        app,
        [
            Verb(name="add", help="Add a rule.", run=adding(rules, key), at=at, below=NETWORK, fields=fields),
            Verb(name="remove", help="Remove a rule.", run=removing(rules, key), at=at, below=NETWORK, fields=fields),
        ],
    )
    return app
