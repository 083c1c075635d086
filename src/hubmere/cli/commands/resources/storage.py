"""`hubmere storage account`: the storage account for checkpoints, its keys and connection string; named as in `az`."""

from enum import StrEnum

from hubmere.cli.arm.client import STORAGE_ACCOUNTS, Arm, Json, Resource
from hubmere.cli.arm.verbs import Field, Step, Verb, a_group, add, list_, show
from hubmere.model.names import DEFAULT_STORAGE_ACCOUNT


class StorageKey(StrEnum):
    """The keys of an account, by both names that `az` takes."""

    KEY1 = "key1"
    KEY2 = "key2"
    PRIMARY = "primary"
    SECONDARY = "secondary"


_KEY_NAMES = {StorageKey.PRIMARY: "key1", StorageKey.SECONDARY: "key2"}
_KEYS = "key1|key2|primary|secondary"
_HELP = f"Name of the storage account. Default: {DEFAULT_STORAGE_ACCOUNT}."
_NAMED = Step(
    kind=STORAGE_ACCOUNTS, flags=("--name", "-n"), help=_HELP, default=DEFAULT_STORAGE_ACCOUNT, is_required=False
)
_ACCOUNT = Step(
    kind=STORAGE_ACCOUNTS,
    flags=("--account-name", "-n"),
    help=_HELP,
    default=DEFAULT_STORAGE_ACCOUNT,
    is_required=False,
)
_RENEWED = Field(
    flags=("--key",),
    path=("keyName",),
    type=StorageKey,
    metavar=_KEYS,
    help="Which key to replace.",
    is_required=True,
    read=lambda key: _KEY_NAMES.get(key, str(key)),
)
_SHOWN = Field(
    flags=("--key",),
    path=("keyName",),
    type=StorageKey,
    metavar=_KEYS,
    help="Which key is in the connection string. Default: key1.",
    read=lambda key: _KEY_NAMES.get(key, str(key)),
)
_KEY_COLUMNS = (("KeyName", "keyName"), ("Value", "value"))


def list_keys(arm: Arm, at: Resource, _: Json) -> list[Json]:
    """Both keys."""
    return _without_connection_strings(arm.post(at, "listKeys"))


def renew_key(arm: Arm, at: Resource, body: Json) -> list[Json]:
    """A new key; the old one opens nothing any more."""
    return _without_connection_strings(arm.post(at, "regenerateKey", body))


def show_connection_string(arm: Arm, at: Resource, body: Json) -> Json:
    """The connection string with one of the keys."""
    keys = {key["keyName"]: key["connectionString"] for key in arm.post(at, "listKeys")["keys"]}
    return {"connectionString": keys[body.get("keyName", StorageKey.KEY1)]}


def _without_connection_strings(answer: Json) -> list[Json]:
    return [{name: value for name, value in key.items() if name != "connectionString"} for key in answer["keys"]]


app = a_group("The storage account in which event processors keep checkpoints.")
account = a_group("Storage accounts of the node.")
keys = a_group("The two keys of a storage account.")
add(
    account,
    [
        Verb(name="list", help="List the storage accounts.", run=list_, below=(STORAGE_ACCOUNTS,)),
        Verb(name="show", help="Show a storage account, without its keys.", run=show, at=(_NAMED,)),
        Verb(
            name="show-connection-string", help="Show the connection string of a storage account.",
            run=show_connection_string, at=(_NAMED,), fields=(_SHOWN,),
        ),
    ],
)  # fmt: skip
add(
    keys,
    [
        Verb(
            name="list", help="Show the keys of a storage account.",
            run=list_keys, at=(_ACCOUNT,), columns=_KEY_COLUMNS,
        ),
        Verb(
            name="renew", help="Replace a key of a storage account; the old key is refused at once.",
            run=renew_key, at=(_ACCOUNT,), fields=(_RENEWED,), columns=_KEY_COLUMNS,
        ),
    ],
)  # fmt: skip
account.add_typer(keys, name="keys")
app.add_typer(account, name="account")
