"""The fast start of `hubmere up` parses flags exactly as the command line does, and leaves everything else to it."""

import subprocess
import sys
from typing import Any

import pytest
import typer.main

from hubmere.cli.entry import plain_flags
from hubmere.cli.exit_codes import Exit
from hubmere.cli.main import app
from hubmere.settings import SETTINGS, Setting


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ([], {}),
        (["--amqp-port", "0", "--data=here"], {"amqp_port": "0", "data": "here"}),
        (["--hostname", "a.example", "--hostname=b.example"], {"hostname": ["a.example", "b.example"]}),
        (["--memory", "--no-auto-create-hubs"], {"memory": True, "auto_create_hubs": False}),
        (["--as", "basic", "--config", "hubmere.toml"], {"as": "basic", "--config": "hubmere.toml"}),
        (["--data="], {"data": ""}),
    ],
)
def test_known_flags_are_read(arguments: list[str], flags: dict[str, object]) -> None:
    """Values stay texts; the settings parse them like those of every other source."""
    assert plain_flags(arguments) == flags


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--nonsense"], ["--data"], ["--data", "--memory"], ["here"], ["--memory=yes"], ["-h"], ["--no-data"]],
)
def test_everything_else_is_left_to_the_command_line(arguments: list[str]) -> None:
    """It answers help requests and reports errors."""
    assert plain_flags(arguments) is None


def by_typer(arguments: list[str]) -> dict[str, Any]:
    """The flags that the command line parses, by key; flags that are not given are omitted."""
    group: Any = typer.main.get_command(app)
    with group.commands["up"].make_context("up", list(arguments)) as context:
        found = {setting.key: context.params[setting.field_name] for setting in SETTINGS}
    given = {key: value for key, value in found.items() if value not in (None, [], ())}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}


def spellings(setting: Setting) -> list[list[str]]:
    """All spellings of the flag of a setting."""
    if setting.kind.is_switch:
        return [[setting.flag], [f"--no-{setting.flag[2:]}"]]
    once = [[setting.flag, "value"], [f"{setting.flag}=value"], [f"{setting.flag}="]]
    return [*once, [setting.flag, "first", f"{setting.flag}=second"]]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_both_parsers_agree_on_every_setting(setting: Setting) -> None:
    """The fast start is a second parser of flags: a setting that only one of them knows would be lost."""
    for arguments in spellings(setting):
        assert plain_flags(arguments) == by_typer(arguments), arguments


# A node that prints whether garbage collection is enabled, and ends, as soon as it is ready.
PROGRAM = """
import gc, sys
from hubmere.cli.entry import main
from hubmere.node.node import Node

async def run_until(self, stopping):
    print("collecting:", gc.isenabled(), "frozen:", gc.get_freeze_count() > 0)

Node.run_until = run_until
sys.argv = ["hubmere", "up", "--memory", *(f"--{name}-port=0" for name in "amqp amqps kafka kafkas http https".split())]
main()
"""


# Ctrl-C while the command line is being loaded.
INTERRUPTED = """
import sys
from hubmere.cli.entry import main

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "hubmere.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["hubmere", "status"]
main()
"""


def test_ctrl_c_while_the_program_is_loaded_prints_no_traceback() -> None:
    """Loading takes a noticeable time, and an impatient user presses Ctrl-C then."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=100)

    assert (done.returncode, done.stderr) == (Exit.INTERRUPTED, "")


def test_garbage_is_collected_once_the_node_is_ready() -> None:
    """The start disables the collector, which would visit all objects repeatedly; a running node needs it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=100)

    assert "collecting: True frozen: True" in done.stdout, done.stderr


def test_node_starts_without_libraries_that_it_may_never_need() -> None:
    """Together they take 5 MB: codecs, regular expressions of groups, an HTTP client, readers of captured files."""
    unneeded = {"cramjam", "re2", "http.client", "urllib.request", "decimal", "difflib", "joserfc", "fastavro"}
    program = "import sys, hubmere.cli.entry, hubmere.node.runtime.process; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)

    assert not unneeded & set(loaded.stdout.split())
