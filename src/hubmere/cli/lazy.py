"""Which command is in which module, and a group that imports a module when its command is first asked for.

`hubmere up` reaches its event loop without loading any of them; help and completion load all.
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
    "keys": "resources.keys",
    "capture": "capture",
    "pipeline": "pipeline",
    "links": "links",
    "audit": "audit",
    "demo": "demo",
    "georecovery-alias": "resources.georecovery",
    "georecovery": "resources.georecovery",
}
_HIDDEN = ("georecovery",)


class LazyGroup(TyperGroup):
    """The group of all commands; those of `MODULES` come and go without costing the others anything."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, those that are not loaded yet included."""
        return list(dict.fromkeys([*self.commands, *MODULES]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One command, loaded if need be."""
        if cmd_name not in self.commands and cmd_name in MODULES:
            self.commands[cmd_name] = _loaded(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant; all are loaded before a wrong name is answered with the nearest ones."""
        if args and self.get_command(ctx, args[0]) is None:
            for name in MODULES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _loaded(name: str) -> Any:
    command = typer.main.get_command(import_module(f"hubmere.cli.commands.{MODULES[name]}").app)
    command.name = name
    command.hidden = name in _HIDDEN
    return command
