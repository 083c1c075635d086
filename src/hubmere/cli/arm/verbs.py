"""Verbs on resources, declared as tables and turned into commands with the names and options of `az eventhubs`.

A `Verb` has `Step`s (which option names which level of the resource's path), `Field`s (which option fills which place
of the request's body) and a function that sends the request. Options have the syntax of `az`: several values
after one flag, switches with or without `true` (reference: service 4.3). An example, from declaration to request:

    GROUP = Step(kind="consumergroups", flags=("--name", "-n"), help="Name of the consumer group.")
    METADATA = Field(flags=("--user-metadata",), path=("properties", "userMetadata"), help="A text to keep with it.")
    AT = (IN_NAMESPACE, IN_HUB, GROUP)
    add(app, [Verb(name="create", help="Create a group.", run=put, at=AT, fields=(METADATA,))])

1. `add` makes a function for the verb. Its signature has one keyword for each step and field, named after the longest
   flag (`name`, `user_metadata`), then those of `RESULT_OPTIONS` and `NODE_OPTIONS`. Typer reads this signature as if
   it were written in source code.
2. `hubmere consumergroup create --eventhub-name orders -n billing --user-metadata x` calls it with these values.
3. It finds the node (`take_node`), builds the path, `("namespaces", "hubmere", "eventhubs", "orders",
   "consumergroups", "billing")`, and the body, `{"properties": {"userMetadata": "x"}}`.
4. It calls `put(arm, path, body)` and prints the result in the format that is wanted (`results`).
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand

from hubmere.cli.arm.client import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION, Arm, Json, Resource, merge
from hubmere.cli.arm.edits import ADD, FORCE_STRING, REMOVE, SET, Edits, take_edits
from hubmere.cli.arm.ids import IDS, expand_ids
from hubmere.cli.commands.completion import Level, completer
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.colours import has_colours
from hubmere.cli.output.results import OUTPUT_VARIABLE, Output, check_query, default_output, render
from hubmere.cli.output.tables import Column
from hubmere.cli.target.node import (
    CA_VARIABLE,
    CONNECTION_VARIABLE,
    PROFILE_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    NodeFlags,
    NodeTarget,
    find_node,
)

Switch = Literal["true", "false"]
SWITCH = "true|false"
_SWITCH_WORDS = ("true", "false")
_UPDATE = "update"
_ID_VERBS = ("show", _UPDATE, "delete")
# Where a context keeps the edits of its command.
_EDITS = "hubmere.edits"
_NODE_PANEL = "Which node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One level of a resource's path and the option that names it."""

    kind: str
    flags: tuple[str, ...]
    help: str
    default: str | None = None
    is_required: bool = True
    # Whether the name is a positional argument.
    is_argument: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An option that fills one place of the request's body."""

    flags: tuple[str, ...]
    path: tuple[str, ...]
    help: str
    type: Any = str
    metavar: str | None = None
    is_required: bool = False
    read: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One command: `run` gets the resource's path, including `below`, and the body built from the fields."""

    name: str
    help: str
    run: Callable[[Arm, Resource, Json], object]
    at: tuple[Step, ...] = ()
    below: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    columns: tuple[Column, ...] = (("Name", "name"),)
    # The question to confirm at a terminal before it runs; `{name}` is the resource's name.
    question: str | None = None
    # Builds the table of a result that is neither a list nor plain names and values.
    table: Callable[[object], str] | None = None

    @property
    def has_ids(self) -> bool:
        """Whether `--ids` may name the resource: the verbs of one resource, as with `az`."""
        return self.name in _ID_VERBS and not self.below and not any(step.is_argument for step in self.at)

    @property
    def has_edits(self) -> bool:
        """Whether `--set`, `--add` and `--remove` may change the resource."""
        return self.name == _UPDATE


# Options of `az` for a part of a list.
PAGING = (
    Field(flags=("--skip",), path=("$skip",), type=int, metavar="N", help="Leave out the first N."),
    Field(flags=("--top",), path=("$top",), type=int, metavar="N", help="Show at most N."),
)


# --- what most verbs do ----------------------------------------------------------------------------------------------


def show(arm: Arm, at: Resource, _: Json) -> Json:
    """Read the resource."""
    return arm.get(at)


def list_(arm: Arm, at: Resource, query: Json) -> list[Json]:
    """List the resources of a kind, or the part of them that the query selects."""
    return arm.list(at, query)


def put(arm: Arm, at: Resource, body: Json) -> Json:
    """Create the resource, or replace it: creating it twice is no error, as with `az`."""
    return arm.put(at, body)


def patch(arm: Arm, at: Resource, body: Json) -> Json:
    """Change the given settings."""
    return arm.patch(at, body)


def delete(arm: Arm, at: Resource, _: Json) -> None:
    """Delete the resource; a resource that does not exist is reported, but is no failure, as with `az`."""
    if not arm.delete(at):
        typer.echo(f"hubmere: {arm.missing(at) or 'it was not there'}", err=True)


# --- becoming commands -----------------------------------------------------------------------------------------------


class AzCommand(TyperCommand):
    """Parses options like `az`: `--rights Send Listen`, `--enable-capture` for `--enable-capture true`, `--ids`.

    The edits of `--set`, `--add` and `--remove` are in the `meta` of the context.
    """

    # The option for each kind of resource that an id names; empty if the command accepts no id.
    id_flags: ClassVar[Mapping[str, str]] = MappingProxyType({})
    # Names that `--set` may add; None if the command accepts no edits.
    known_names: ClassVar[frozenset[str] | None] = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the edits, expand the short forms of options, then parse them."""
        if self.known_names is not None:
            args, ctx.meta[_EDITS] = take_edits(args, self.known_names)
        return super().parse_args(ctx, list(self._expand_options(expand_ids(args, self.id_flags))))

    def _expand_options(self, args: list[str]) -> Iterator[str]:
        many = {flag for parameter in self.params if getattr(parameter, "multiple", False) for flag in parameter.opts}
        switches = {flag for parameter in self.params if parameter.metavar == SWITCH for flag in parameter.opts}
        again: str | None = None  # the flag to write before a further value
        values = 0
        for arg, following in zip(args, [*args[1:], ""], strict=False):
            if arg.startswith("-"):
                again, values = (arg if arg in many else None), 0
                yield arg
                if arg in switches and following.lower() not in _SWITCH_WORDS:
                    yield "true"
                continue
            if again is not None and values:
                yield again
            values += 1
            yield arg


def a_group(help_text: str) -> typer.Typer:
    """An empty group of commands."""
    return typer.Typer(help=help_text, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def add(app: typer.Typer, verbs: Sequence[Verb]) -> None:
    """Add verbs to a group."""
    for verb in verbs:
        flags = {step.kind: step.flags[0] for step in verb.at} if verb.has_ids else {}
        names = frozenset(name for field in verb.fields for name in field.path) if verb.has_edits else None
        kind = type(AzCommand.__name__, (AzCommand,), {"id_flags": flags, "known_names": names})
        app.command(verb.name, help=verb.help, cls=kind)(_command(verb))


def _command(verb: Verb) -> Callable[..., None]:
    places = {_python_name(step.flags): step for step in verb.at}
    fields = {_python_name(field.flags): field for field in verb.fields}
    levels = [(name, step.kind, step.default) for name, step in places.items()]

    def run(given: dict[str, Any]) -> None:
        for name in ("ids", *_EDIT_NAMES):
            given.pop(name, None)  # `AzCommand` has taken them
        edits: Edits | None = given.pop("context").meta[_EDITS] if verb.has_edits else None
        output, query, group, subscription = (given.pop(name) for name in RESULT_NAMES)
        output = output or default_output()
        check_query(query)
        for name, step in places.items():
            refuse_empty(step.flags[0], given[name])
        with closing(Arm(take_node(given), subscription, group)) as arm:
            path: list[str] = []
            for name, step in places.items():
                path += [step.kind, given[name] or step.default or arm.namespace(None)]
            if verb.question is not None and not given.pop("yes"):
                confirm(verb.question.format(name=path[-1]))
            at, body = (*path, *verb.below), _body(fields, given)
            if edits is not None and edits.options:
                body = merge(body, edits.changes(arm.get(at)))
            result = verb.run(arm, at, body)
        is_own_table = verb.table is not None and output is Output.TABLE and query is None
        text = verb.table(result) if is_own_table and verb.table else render(result, output, verb.columns, query)
        if text:
            typer.echo(text, color=has_colours() or None)

    options = [_step_option(name, step, levels[: index + 1]) for index, (name, step) in enumerate(places.items())]
    return with_signature(
        run,
        [
            *sorted(options, key=lambda each: each.kind),
            *((_IDS_OPTION,) if verb.has_ids else ()),
            *(_field_option(name, field) for name, field in fields.items()),
            *((*_EDIT_OPTIONS, _CONTEXT) if verb.has_edits else ()),
            *((YES_OPTION,) if verb.question is not None else ()),
            *RESULT_OPTIONS,
            *NODE_OPTIONS,
            _IGNORED_OPTION,
        ],
    )


def _body(fields: dict[str, Field], given: dict[str, Any]) -> Json:
    body: Json = {}
    for name, field in fields.items():
        value = given[name]
        if value is None or value == []:
            continue
        inner = body
        for part in field.path[:-1]:
            inner = inner.setdefault(part, {})
        if field.metavar == SWITCH:
            value = value == _SWITCH_WORDS[0]
        inner[field.path[-1]] = field.read(value) if field.read else value
    return body


def _python_name(flags: tuple[str, ...]) -> str:
    longest = next(flag for flag in flags if flag.startswith("--"))
    return longest.strip("-").replace("-", "_")


def option(name: str, kind: Any, *flags: str, default: Any = None, **more: Any) -> inspect.Parameter:
    """One option of a command whose signature is built at run time."""
    annotation = Annotated[kind, typer.Option(*flags, show_default=False, **more)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_signature(
    run: Callable[[dict[str, Any]], None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function a signature that Typer reads."""

    def command(**given: Any) -> None:
        run(given)

    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _step_option(name: str, step: Step, levels: Sequence[Level]) -> inspect.Parameter:
    more: dict[str, Any] = {"metavar": "NAME", "help": step.help, "autocompletion": completer(levels)}
    if step.is_argument:
        annotation = Annotated[str, typer.Argument(show_default=False, **{**more, "metavar": "GROUP"})]
        return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
    if step.is_required:
        return option(name, str, *step.flags, default=inspect.Parameter.empty, **more)
    return option(name, str | None, *step.flags, **more)


def _field_option(name: str, field: Field) -> inspect.Parameter:
    more: dict[str, Any] = {"help": field.help, "metavar": field.metavar, "case_sensitive": False}
    if field.is_required:
        return option(name, field.type, *field.flags, default=inspect.Parameter.empty, **more)
    return option(name, field.type | None, *field.flags, **more)


def refuse_empty(what: str, name: str | None) -> None:
    """Refuse a name that is given but empty, such as an unset variable of a script: it must not mean the default."""
    if name == "":
        raise CommandFailed(Exit.USAGE, f"{what} is empty; expected a name")


def confirm(question: str) -> None:
    """Ask for confirmation at a terminal; scripts are not asked, as with `az`. Ctrl-D means no, Ctrl-C ends it all."""
    if not sys.stdin.isatty():
        return
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandFailed(Exit.FAILED, "nothing was changed")


_IDS_OPTION = option("ids", str | None, IDS, metavar="ID", help="Resource id, instead of the names in it.")
_EDIT_OPTIONS = (
    option(
        "set", list[str] | None, SET, metavar="PATH=VALUE", help="Set a property, such as properties.status=Disabled."
    ),
    option(
        "add",
        list[str] | None,
        ADD,
        metavar="PATH VALUE",
        help="Append a value, or an object of NAME=VALUE, to a list.",
    ),
    option(
        "remove", list[str] | None, REMOVE, metavar="PATH [INDEX]", help="Remove a property, or an element of a list."
    ),
    option("force_string", bool, FORCE_STRING, default=False, help=f"Values of {SET} and {ADD} are texts, not JSON."),
)
_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
_EDIT_NAMES = tuple(each.name for each in _EDIT_OPTIONS)
YES_OPTION = option("yes", bool, "--yes", "-y", default=False, help="Do not ask for confirmation at a terminal.")
# Scripts for `az` have these. They make no difference here: there are no warnings, and each request waits for its end.
_IGNORED_OPTION = option(
    "ignored", bool, "--only-show-errors", "--verbose", "--debug", "--no-wait", default=False, hidden=True,
    help="Accepted from scripts for `az`, without effect.",
)  # fmt: skip
RESULT_NAMES = ("output", "query", "resource_group", "subscription")
RESULT_OPTIONS = (
    option(
        "output", Output | None, "--output", "-o", case_sensitive=False, metavar="|".join(Output),
        help=f"Format of the result, else {OUTPUT_VARIABLE}. Default: table at a terminal, json in a script.",
    ),
    option("query", str | None, "--query", metavar="JMESPATH", help="Show a part of the result: a JMESPath query."),
    option(
        "resource_group", str, "--resource-group", "-g", default=DEFAULT_RESOURCE_GROUP, metavar="NAME",
        help="Resource group in resource ids; every resource group contains all namespaces of the node.",
    ),
    option(
        "subscription", str, "--subscription", default=DEFAULT_SUBSCRIPTION, metavar="ID",
        help="Subscription in resource ids.",
    ),
)  # fmt: skip

NODE_OPTIONS = (
    option(
        "profile", str | None, "--profile", metavar="NAME", rich_help_panel=_NODE_PANEL,
        help=f"Profile of the node, as `hubmere profile` keeps it, else {PROFILE_VARIABLE}.",
    ),
    option(
        "data", Path | None, "--data", metavar="PATH", rich_help_panel=_NODE_PANEL,
        help="Data folder of the node on this machine, else HUBMERE_DATA. Default: hubmere-data.",
    ),
    option(
        "url", str | None, "--url", metavar="URL", rich_help_panel=_NODE_PANEL,
        help=f"HTTP or HTTPS address of a node, else {URL_VARIABLE}.",
    ),
    option(
        "token", str | None, "--token", metavar="TEXT", rich_help_panel=_NODE_PANEL,
        help=f"The administrator's token for --url, else {TOKEN_VARIABLE}, which other users cannot see.",
    ),
    option(
        "connection_string", str | None, "--connection-string", metavar="TEXT", rich_help_panel=_NODE_PANEL,
        help=f"Connection string with the rights that are needed, else {CONNECTION_VARIABLE}.",
    ),
    option(
        "ca_file", str | None, "--ca-file", metavar="PATH", rich_help_panel=_NODE_PANEL,
        help=f"Certificate of the authority to trust, else {CA_VARIABLE}. Default: the node's own, or the system's.",
    ),
)  # fmt: skip


def take_node(given: dict[str, Any]) -> NodeTarget:
    """The node that the options name; removes these options from `given`."""
    flags = {parameter.name: given.pop(parameter.name) for parameter in NODE_OPTIONS}
    return find_node(NodeFlags(**flags), os.environ)


def some_of(name: str, *members: StrEnum) -> Any:
    """The members of a model's enum that an option accepts, for enums with members that only the service sets."""
    return StrEnum(name, [(member.name, member.value) for member in members])


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` texts as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise CommandFailed(Exit.USAGE, f"'{text}' is not of the form name=value")
        found[name] = value
    return found


def grouped_pairs(texts: Sequence[str]) -> Iterator[dict[str, str]]:
    """Objects of `name=value` texts, as `az` writes a list of them: a repeated name starts the next object."""
    given: dict[str, str] = {}
    for name, value in (pair for text in texts for pair in pairs([text]).items()):
        if name in given:
            yield given
            given = {}
        given[name] = value
    yield given
