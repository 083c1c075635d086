"""Names from the running node for the shell's completion: hubs after `--name`, groups of a hub that was named, ...

Asks the node that the command itself would ask. Completion is a courtesy: where no node answers at once, or the
credential may not list, nothing is offered and nothing is said.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing

import typer

from hubmere.cli.commands.resources.arm import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION, Arm
from hubmere.cli.commands.target import NodeFlags, find_node
from hubmere.cli.exit_codes import CommandFailed
from hubmere.settings import BadSettings

# A shell that hangs on TAB is worse than one that offers nothing.
_PATIENCE_S = 1.0
# How a command's parameters name the node; `verbs.NODE_OPTIONS` are the same.
_NODE = ("data", "url", "token", "connection_string", "ca_file", "profile")

# A level of a resource: the parameter that names it, its kind, and what is meant where nothing is given.
Level = tuple[str, str, str | None]


def completer(levels: Sequence[Level]) -> Callable[[typer.Context], list[str]]:
    """What to offer for the last of some levels, by the names that were given for those above it.

    All names are given; Typer keeps those that begin as the word does.
    """

    def offered(ctx: typer.Context) -> list[str]:
        try:
            return _names(ctx, levels)
        except (CommandFailed, BadSettings):
            return []

    return offered


def _names(ctx: typer.Context, levels: Sequence[Level]) -> list[str]:
    target = find_node(NodeFlags(**{name: ctx.params.get(name) for name in _NODE}), os.environ)
    with closing(Arm(target, DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP, timeout_s=_PATIENCE_S)) as arm:
        path: list[str] = []
        for parameter, kind, default in levels[:-1]:
            path += [kind, ctx.params.get(parameter) or default or arm.namespace(None)]
        return [str(one["name"]) for one in arm.list((*path, levels[-1][1]))]
