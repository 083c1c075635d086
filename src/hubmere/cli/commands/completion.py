"""Names from the running node for the shell's completion: hubs after `--name`, consumer groups of the given hub, and so
on.

Asks the same node as the command itself. If the node does not answer at once, or the credential may not list, nothing
is offered and no error is printed.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing

import typer

from hubmere.cli.arm.client import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION, Arm
from hubmere.cli.exit_codes import CommandFailed
from hubmere.cli.target.node import NodeFlags, find_node
from hubmere.settings import BadSettings

# A shell that hangs on TAB is worse than one that offers nothing.
_PATIENCE_S = 1.0
# The parameters that name the node; the same as `verbs.NODE_OPTIONS`.
_NODE = ("data", "url", "token", "connection_string", "ca_file", "profile")

# A level of a resource: the parameter that names it, its kind, and its default.
Level = tuple[str, str, str | None]


def completer(levels: Sequence[Level]) -> Callable[[typer.Context], list[str]]:
    """The completion of the last level, by the names that were given for the levels above it.

    It returns all names; Typer keeps those that begin with the typed word.
    """

    def complete(ctx: typer.Context) -> list[str]:
        try:
            return _names(ctx, levels)
        except (CommandFailed, BadSettings):
            return []

    return complete


def _names(ctx: typer.Context, levels: Sequence[Level]) -> list[str]:
    target = find_node(NodeFlags(**{name: ctx.params.get(name) for name in _NODE}), os.environ)
    with closing(Arm(target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP, timeout_s=_PATIENCE_S)) as arm:
        path: list[str] = []
        for parameter, kind, default in levels[:-1]:
            path += [kind, ctx.params.get(parameter) or default or arm.namespace(None)]
        return [str(one["name"]) for one in arm.list((*path, levels[-1][1]))]
