"""Authorization rules and their keys: the same verbs on a namespace and on a hub, and read-only on an alias."""

from dataclasses import replace
from enum import StrEnum

import typer

from hubmere.cli.arm.client import RULES, Arm, Json, Resource, merge
from hubmere.cli.arm.steps import RULE
from hubmere.cli.arm.verbs import (
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
    """The rights of a rule: the names of the model's `Rights`, as values of an option."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


_RIGHTS = Field(
    flags=("--rights",),
    path=("properties", "rights"),
    type=list[Right],
    metavar="Send|Listen|Manage",
    help="Rights of the rule, one or more; Manage includes the others.",
    is_required=True,
    read=lambda rights: with_implied(rights),
)
_NEW_RIGHTS = replace(_RIGHTS, is_required=False)
_RENEWED = (
    Field(
        flags=("--key",),
        path=("keyType",),
        type=KeyKind,
        metavar="PrimaryKey|SecondaryKey",
        help="Which key to replace.",
        is_required=True,
    ),
    Field(
        flags=("--key-value",),
        path=("key",),
        metavar="TEXT",
        help="The new key. Default: a random key, which is more secure.",
    ),
    Field(
        flags=("--revoke-open-links",),
        path=("revokeOpenLinks",),
        type=Switch,
        metavar=SWITCH,
        read=lambda text: text == "true",
        help="Close connections that used the old key at once. Default: they are closed after the grace time.",
    ),
)
_COLUMNS = (("Name", "name"), ("Rights", "properties.rights"))


def with_implied(rights: list[Right]) -> list[Right]:
    """Rights, and those that they imply: the service accepts Manage only together with the others."""
    return list(Right) if Right.MANAGE in rights else list(dict.fromkeys(rights))


def update(arm: Arm, at: Resource, body: Json) -> Json:
    """Change the rights of an existing rule and keep its keys."""
    return arm.put(at, merge(arm.get(at), body))


def list_keys(arm: Arm, at: Resource, _: Json) -> Json:
    """Both keys and their connection strings."""
    return arm.post(at, "listKeys")


def renew_keys(arm: Arm, at: Resource, body: Json) -> Json:
    """Replace a key; the old key becomes invalid."""
    return arm.post(at, "regenerateKeys", body)


def key_verbs(*at: Step, is_read_only: bool = False) -> list[Verb]:
    """The verbs on the keys of a rule."""
    verbs = [Verb(name="list", help="Show the keys of a rule and the connection strings.", run=list_keys, at=at)]
    if not is_read_only:
        renew = "Replace a key of a rule; clients with the old key lose access."
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
            Verb(name="create", help="Create a rule with two random keys.", run=put, at=at, fields=(_RIGHTS,)),
            Verb(name="update", help="Change the rights of a rule.", run=update, at=at, fields=(_NEW_RIGHTS,)),
            Verb(
                name="delete",
                help="Delete a rule; connections that use its keys are closed.",
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
