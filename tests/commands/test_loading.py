"""Commands are loaded on demand, completed by the shell and described in the manual."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands.runner import environment, hubmere
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node

MANUAL = Path(__file__).parents[2] / "docs" / "how-to" / "manage.md"


def test_node_starts_without_loading_the_commands() -> None:
    """`hubmere up` starts in less than a second because it loads only what it needs."""
    program = (
        "import sys; sys.argv = ['hubmere', 'up', '--amqp-port', 'many']\n"
        "from hubmere.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*(name for name in sys.modules if name.startswith('hubmere.cli.commands')))"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment())

    assert run.stdout.split() == []


def test_help_lists_every_command() -> None:
    """This includes commands that are loaded on demand, but not aliases."""
    run = hubmere("--help")

    commands = {line.split()[1] for line in run.out.splitlines() if re.match(r"│ [a-z]", line)}
    assert commands >= {"up", "send", "tail", "namespace", "eventhub", "consumergroup", "keys", "capture"}
    assert "georecovery-alias" in commands
    assert "georecovery" not in commands


@pytest.mark.parametrize(
    "command", [(), ("up",), ("tail",), ("eventhub",), ("eventhub", "show"), ("namespace", "network-rule-set", "show")]
)
def test_help_has_a_short_option(command: tuple[str, ...]) -> None:
    """`az` has it too, and it is what people type first."""
    short, long = hubmere(*command, "-h"), hubmere(*command, "--help")

    assert (short.code, short.out) == (Exit.OK, long.out)
    assert "Usage: " in short.out


def test_unknown_command_is_answered_with_the_nearest() -> None:
    """This works even if that command was not loaded yet."""
    run = hubmere("evnthub", "list")

    assert run.code == Exit.USAGE
    assert "Did you mean 'eventhub'" in run.err


def completed(words: str, **variables: str) -> list[str]:
    """The words that the shell offers for the last word."""
    program = "import sys; sys.argv = ['hubmere']; from hubmere.cli.main import main; main()"
    ask = {"_HUBMERE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**environment(**variables), **ask}
    ).stdout.split()


def test_shell_completes_commands_verbs_and_options() -> None:
    """Only the table of commands is needed."""
    assert completed("hubmere name") == ["namespace"]
    assert completed("hubmere eventhub upd") == ["update"]
    assert completed("hubmere eventhub create --partition-c") == ["--partition-count"]


def test_shell_completes_names_from_the_running_node(node: Node, hub: str) -> None:
    """It offers hubs, their groups and rules, and namespaces, according to the options before."""
    at_node = {"HUBMERE_DATA": str(node.data)}

    assert completed("hubmere eventhub show -n ord", **at_node) == ["orders"]
    assert completed(f"hubmere tail {hub[:-1]}", **at_node) == [hub]
    assert completed("hubmere consumergroup show --eventhub-name orders -n $", **at_node) == ["$Default"]
    assert completed("hubmere eventhub list --namespace-name hub", **at_node) == ["hubmere"]


def test_shell_completes_nothing_without_a_running_node(tmp_path: Path) -> None:
    """There is no error message either, because it would disturb the typed line."""
    assert completed("hubmere eventhub show -n ord", HUBMERE_DATA=str(tmp_path)) == []
    assert completed("hubmere eventhub show -n ord", HUBMERE_URL="http://127.0.0.1:9", HUBMERE_TOKEN="t") == []


def test_examples_of_the_manual_run_unchanged(node: Node) -> None:
    """Users paste them."""
    examples = re.findall(r"^```sh\n(.*?)^```$", MANUAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    # `hubmere` as a user's shell finds it.
    command = f'hubmere() {{ "{sys.executable}" -m hubmere "$@"; }}\n'

    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command + "\n".join(examples)],
        capture_output=True, text=True, check=False, timeout=3000,
        env={**environment(HUBMERE_DATA=str(node.data)), "PATH": os.environ["PATH"]},
    )  # fmt: skip

    assert len(examples) >= 6
    assert run.returncode == 0, run.stderr
    assert '{"celsius":22.0}' in run.stdout
    assert "sent 7 events to copies" in run.stderr
