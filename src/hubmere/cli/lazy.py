"""Commands by module, and a Typer group that imports a module when its command is first used.

`hubmere up` starts without loading any of them; help and completion load all.
"""

from importlib import import_module
from typing import Any

import typer.main
from typer.core import TyperGroup

# Each module has a Typer application called `app`. The short names are those people try first.
MODULES = {
    "send": "events.send",
    "tail": "events.tail",
    "namespace": "resources.namespace",
    "eventhub": "resources.eventhub",
    "consumergroup": "resources.consumergroup",
    "group": "resources.kafkagroup",
    "processor": "resources.processor",
    "keys": "resources.keys",
    "role": "resources.role",
    "account": "account",
    "storage": "resources.storage",
    "capture": "capture",
    "pipeline": "pipeline",
    "status": "status",
    "portal": "portal_link",
    "profile": "profile",
    "links": "links",
    "audit": "audit",
    "demo": "demo",
    "cluster": "cluster",
    "georecovery-alias": "resources.georecovery",
    "georecovery": "resources.georecovery",
}
_HIDDEN = ("georecovery",)


class LazyGroup(TyperGroup):
    """The group of all commands; those of `MODULES` are loaded on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, including those that are not loaded yet."""
        return list(dict.fromkeys([*self.commands, *MODULES]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One command, loaded if necessary."""
        if cmd_name not in self.commands and cmd_name in MODULES:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of that name; for an unknown name all are loaded, so that the closest ones can be suggested."""
        if args and self.get_command(ctx, args[0]) is None:
            for name in MODULES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    command = typer.main.get_command(import_module(f"hubmere.cli.commands.{MODULES[name]}").app)
    command.name = name
    command.hidden = name in _HIDDEN
    return command
