"""Entry point of the program: a plain `hubmere up` starts a node directly, everything else goes to the command line.

Typer loads a validation library whenever a command runs, which costs a fifth of a second before the node starts. So the
flags of `up` are parsed here if every one is known and complete. Anything else, such as `--help` or a mistake, is left
to Typer. A test checks that both parsers agree on every setting.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hubmere.cli.exit_codes import end_with_code
from hubmere.settings import SETTINGS, Setting, load

_CONFIG = "--config"
_UP = "up"
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
_LAST_STREAM = len(_STREAMS) - 1

Flags = Mapping[str, str | bool | list[str]]


def main() -> NoReturn:
    """Run what the arguments ask for; ends the process."""
    _open_missing_streams()
    flags = plain_flags(sys.argv[2:]) if sys.argv[1:2] == [_UP] else None
    if flags is not None:
        end_with_code(lambda: _up(flags))
    end_with_code(_command_line)


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that the parent has closed, as some daemons and schedulers do.

    Python has None for such a stream, and the next file or socket would get its descriptor.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for descriptor, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _command_line() -> None:
    """Load and run the command line; Ctrl-C may come while it is being loaded."""
    from hubmere.cli.main import main as command_line

    command_line()


def _up(flags: Flags) -> None:
    config = flags.get(_CONFIG)
    given = {setting.key: flags.get(setting.key) for setting in SETTINGS}
    settings = load(given, os.environ, Path(config) if isinstance(config, str) else None)
    # Objects that are created until the node is ready stay alive. The garbage collector would scan them repeatedly,
    # which took a seventh of the CPU time of a start. `process` collects once and enables it again.
    gc.disable()
    from hubmere.node.runtime.process import run

    run(settings)


def plain_flags(arguments: Sequence[str]) -> Flags | None:
    """The values of the flags by key; None unless all of them are known and complete."""
    known = {setting.flag: setting for setting in SETTINGS}
    values: dict[str, str | bool | list[str]] = {}
    rest = list(arguments)
    while rest:
        flag, has_value, value = rest.pop(0).partition("=")
        switched = _switch(flag, known)
        if switched is not None and not has_value:
            values[switched[0].key] = switched[1]
            continue
        setting = known.get(flag)
        if (setting is None and flag != _CONFIG) or (setting is not None and setting.kind.is_switch):
            return None
        if not has_value:
            if not rest or rest[0].startswith("-"):
                return None
            value = rest.pop(0)
        if setting is not None and setting.kind.is_list:
            listed = values.setdefault(setting.key, [])
            assert isinstance(listed, list)
            listed.append(value)
        else:
            values[_CONFIG if setting is None else setting.key] = value
    return values


def _switch(flag: str, known: Mapping[str, Setting]) -> tuple[Setting, bool] | None:
    """The setting and value of a switch: `--name` is on, `--no-name` is off."""
    if (setting := known.get(flag)) is not None and setting.kind.is_switch:
        return setting, True
    if flag.startswith("--no-") and (setting := known.get("--" + flag[5:])) is not None and setting.kind.is_switch:
        return setting, False
    return None
