"""Authorization rules and their keys: the same verbs on a namespace and on a hub, and read-only on an alias."""

from enum import StrEnum

import typer

from hubmere.cli.commands.resources.arm import RULES, Arm, Json, Resource
from hubmere.cli.commands.resources.steps import RULE
from hubmere.cli.commands.resources.verbs import (
    SWITCH,
    Field,
    Step,
    Switch,
    Verb,
    a_group,
    add,
    delete,
    list_,
    put,
    show,
)
from hubmere.model.entity import KeyKind


class Right(StrEnum):
    """What a rule allows: the names of the model's `Rights`, as values of an option."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


_RIGHTS = Field(
    flags=("--rights",),
    path=("properties", "rights"),
    type=list[Right],
    metavar="Send|Listen|Manage",
    help="What the rule allows, one or more; Manage brings the others.",
    is_required=True,
    read=lambda rights: with_implied(rights),
)
_RENEWED = (
    Field(
        flags=("--key",),
        path=("keyType",),
        type=KeyKind,
        metavar="PrimaryKey|SecondaryKey",
        help="Which key is made anew.",
        is_required=True,
    ),
    Field(
        flags=("--key-value",),
        path=("key",),
        metavar="TEXT",
        help="The new key. Default: a random one, which is better.",
    ),
    Field(
        flags=("--revoke-open-links",),
        path=("revokeOpenLinks",),
        type=Switch,
        metavar=SWITCH,
        read=lambda text: text == "true",
        help="End at once what was opened with the old key. Default: it lives on for the grace time.",
    ),
)
_COLUMNS = (("Name", "name"), ("Rights", "properties.rights"))


def with_implied(rights: list[Right]) -> list[Right]:
    """Rights with those that they need: the service takes Manage only together with the others."""
    return list(Right) if Right.MANAGE in rights else list(dict.fromkeys(rights))


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Other rights for a rule that is there; its keys stay."""
    arm.get(at)
    return arm.put(at, body)


def list_keys(arm: Arm, at: Resource, _: Json) -> Json:
    """Both keys and their connection strings."""
    return arm.post(at, "listKeys")


def renew_keys(arm: Arm, at: Resource, body: Json) -> Json:
    """A new key; the old one opens nothing any more."""
    return arm.post(at, "regenerateKeys", body)


def key_verbs(*at: Step, is_read_only: bool = False) -> list[Verb]:
    """The verbs on the keys of a rule."""
    verbs = [Verb(name="list", help="Show the keys of a rule and the connection strings.", run=list_keys, at=at)]
    if not is_read_only:
        renew = "Make a key of a rule anew; whoever uses the old one is locked out."
        verbs.append(Verb(name="renew", help=renew, run=renew_keys, at=at, fields=_RENEWED))
    return verbs


def rules_group(*parents: Step, is_read_only: bool = False) -> typer.Typer:
    """The group `authorization-rule` below some levels."""
    app = a_group("Authorization rules: names, rights and keys.")
    at = (*parents, RULE)
    verbs = [
        Verb(name="show", help="Show a rule, without its keys.", run=show, at=at),
        Verb(name="list", help="List the rules.", run=list_, at=parents, below=(RULES,), columns=_COLUMNS),
    ]
    if not is_read_only:
        verbs += [
            Verb(name="create", help="Make a rule with two random keys.", run=put, at=at, fields=(_RIGHTS,)),
            Verb(name="update", help="Give a rule other rights.", run=update, at=at, fields=(_RIGHTS,)),
            Verb(
                name="delete",
                help="Delete a rule; what it opened is closed.",
                run=delete,
                question="Delete the rule '{name}'? Clients that use its keys are disconnected.",
                at=at,
            ),
        ]
    add(app, verbs)
    keys = a_group("The two keys of a rule.")
    add(keys, key_verbs(*at, is_read_only=is_read_only))
    app.add_typer(keys, name="keys")
    return app
