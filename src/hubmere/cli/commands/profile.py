"""`hubmere profile`: names for the nodes that a person works with."""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hubmere.cli.arm.verbs import (
    NODE_OPTIONS,
    RESULT_OPTIONS,
    AzCommand,
    a_group,
    option,
    refuse_empty,
    with_signature,
)
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.results import render
from hubmere.cli.target.node import TOKEN_VARIABLE, NodeFlags, check_flags
from hubmere.cli.target.profiles import Profile, Profiles

_COLUMNS = (("Name", "name"), ("Node", "node"), ("InUse", "inUse"))


def _known_names() -> list[str]:
    return sorted(Profiles(os.environ).all)


_NAME = inspect.Parameter(
    "name",
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    annotation=Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the profile.", show_default=False, autocompletion=_known_names),
    ],
)


def _add(given: dict[str, Any]) -> None:
    name, is_used = given.pop("name"), given.pop("use")
    if given["url"] and not given["token"]:
        given["token"] = os.environ.get(TOKEN_VARIABLE)
    if not any(given[each] for each in ("data", "url", "connection_string")):
        raise CommandFailed(Exit.USAGE, "name a node: --url with --token, --connection-string, or --data")
    refuse_empty("NAME", name)
    check_flags(NodeFlags(**given))
    data = given["data"]
    profiles = Profiles(os.environ)
    profiles.set(name, Profile(**{**given, "data": None if data is None else str(Path(data).resolve())}))
    if is_used:
        profiles.use(name)


def _list(given: dict[str, Any]) -> None:
    profiles = Profiles(os.environ)
    rows = [
        {"name": name, "node": profile.place, "inUse": name == profiles.used}
        for name, profile in sorted(profiles.all.items())
    ]
    if text := render(rows, given["output"], _COLUMNS, given["query"]):
        typer.echo(text)


def _use(given: dict[str, Any]) -> None:
    name = given["name"]
    if name is None and not given["none"]:
        raise CommandFailed(Exit.USAGE, "give the name of a profile, or --none")
    Profiles(os.environ).use(None if given["none"] else name)


def _remove(given: dict[str, Any]) -> None:
    Profiles(os.environ).remove(given["name"])


app = a_group("Profiles: names for several nodes.")
_OPTIONAL_NAME = inspect.Parameter(
    "name",
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of the profile.", show_default=False, autocompletion=_known_names),
    ],
)
_ADD = (
    _NAME,
    option("use", bool, "--use", default=False, help="Also make it the default for commands that name no node."),
    *(each for each in NODE_OPTIONS if each.name != "profile"),
)
_NONE = option(
    "none", bool, "--none", default=False, help="Use no profile; commands then use the node of the data folder."
)
_SHOWN = tuple(each for each in RESULT_OPTIONS if each.name in ("output", "query"))
app.command("add", help="Add or replace a profile.", cls=AzCommand)(with_signature(_add, _ADD))
app.command("list", help="List the profiles.", cls=AzCommand)(with_signature(_list, _SHOWN))
app.command("use", help="Use a profile for commands that name no node.", cls=AzCommand)(
    with_signature(_use, (_OPTIONAL_NAME, _NONE))
)
app.command("remove", help="Remove a profile.", cls=AzCommand)(with_signature(_remove, (_NAME,)))
