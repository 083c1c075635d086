"""What results look like: as azure-cli prints them, so that scripts work with `az eventhubs` replaced by `hubmere`.

`az_output.json` holds names and types of the values that azure-cli 2.91.0 printed for these commands when it was
pointed at a node of this project, in this order.
"""

import json
import os
import pty
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import yaml

from commands.runner import at, environment, hubmere
from hubmere.cli.exit_codes import Exit
from hubmere.cli.output.results import Output, flatten, render
from hubmere.testing import Node

RECORDED = json.loads((Path(__file__).parent / "az_output.json").read_text(encoding="utf-8"))


def shape(value: object) -> object:
    """Names and types of a value; of a list only the first item."""
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return {name: shape(each) for name, each in value.items()} if isinstance(value, dict) else type(value).__name__


def missing(theirs: object, ours: object, place: str = "") -> list[str]:
    """The values that azure-cli prints and this command does not."""
    if isinstance(theirs, list) and isinstance(ours, list) and theirs and ours:
        return missing(theirs[0], ours[0], f"{place}[]")
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            line
            for name, value in theirs.items()
            for line in (missing(value, ours[name], f"{place}.{name}") if name in ours else [f"{place}.{name}"])
        ]
    return [] if theirs == ours else [f"{place}: {theirs} here {ours}"]


def test_every_value_that_az_prints_has_the_same_name_here(tmp_path: Path) -> None:
    """Scripts give no --output; additional values do no harm."""
    with Node(data=tmp_path / "data") as node:
        for command, theirs in RECORDED.items():
            ours = at(node, *command.split()).json

            assert missing(theirs, shape(ours)) == [], command


def test_connection_string_is_one_line_for_a_script(node: Node) -> None:
    """Most scripts for Event Hubs contain this line."""
    run = at(node, "keys", "list", "--query", "primaryConnectionString", "-o", "tsv")

    assert run.out == node.connection_string + "\n"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("[].name", ["one", "two"]),
        ("[].{name: name, count: partitionCount}", ["one\t1", "two\t2"]),
        ("[].{s: status, ids: partitionIds, r: retention}", ["Active\t1\t", "Active\t2\t"]),
        ("[0].partitionIds", ["0"]),
        ("[0].partitionCount == `1`", ["true"]),
        ("[].nothing", []),
    ],
)
def test_query_and_rows_equal_those_of_az(query: str, rows: list[str]) -> None:
    """Recorded from azure-cli: arrays inside a row are their length, objects are empty, an object keeps its order."""
    hubs = [
        {
            "name": name,
            "properties": {
                "partitionCount": count,
                "partitionIds": [str(number) for number in range(count)],
                "status": "Active",
                "retention": {"hours": 1},
            },
        }
        for name, count in (("one", 1), ("two", 2))
    ]

    assert render(hubs, Output.TSV, (), query).splitlines() == rows


@pytest.mark.parametrize("output", list(Output))
def test_query_without_a_result_prints_nothing(output: Output) -> None:
    """As with `az`, in every format: a script tests whether the text is empty, and `None` is not."""
    assert render([{"name": "one"}], output, (), "[?name=='two'] | [0].name") == ""


def test_resource_is_flattened_and_has_its_resource_group() -> None:
    """`properties` is removed, and values outside of it have precedence."""
    resource = {
        "id": "/subscriptions/s/resourceGroups/rg/providers/Microsoft.EventHub/namespaces/n",
        "name": "n",
        "properties": {"status": "Active", "name": "inner", "to": {"name": "t", "properties": {"box": "b"}}},
    }

    assert flatten([resource]) == [
        {"id": resource["id"], "name": "n", "status": "Active", "to": {"name": "t", "box": "b"}, "resourceGroup": "rg"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        {"a": "plain", "b": 5, "c": None, "d": True, "e": 1.5},
        {"words": ["yes", "no", "null", "~", "", "0", "1e5", "- a", "a: b", "a #b", "#", "'", '"', "x\ny", "ü", "a:b"]},
        {"deep": {"list": [{"x": [1, [2, []], {}]}, {}], "empty": {}, "none": []}, "time": "2026-01-31T12:00:00Z"},
        [], {}, "text", 5, [[1, 2], [3]], [{"a": 1, "b": [{"c": "d"}]}], {"5": "5", "a b": "c", "": "x"},
    ],
)  # fmt: skip
def test_yaml_output_can_be_parsed(value: object) -> None:
    """PyYAML reads it, which other programs use too."""
    assert yaml.safe_load(render(value, Output.YAML, (), "@")) == value


def test_table_of_a_query_has_the_columns_of_the_query(node: Node, hub: str) -> None:
    """Names of an object, numbers for an array, as with `az`."""
    named = at(node, "eventhub", "list", "--query", f"[?name=='{hub}'].{{Hub: name, n: partitionCount}}", "-o", "table")
    numbered = at(node, "eventhub", "list", "--query", f"[?name=='{hub}'].[name, status]", "-o", "table")

    assert [line.split() for line in named.lines[::2]] == [["Hub", "N"], [hub, "2"]]
    assert [line.split() for line in numbered.lines[::2]] == [["Column1", "Column2"], [hub, "Active"]]


def test_bad_query_and_bad_default_are_wrong_usage(node: Node) -> None:
    """Each error names the text and the reason."""
    query = at(node, "eventhub", "list", "--query", "[?")
    default = hubmere("eventhub", "list", HUBMERE_DATA=str(node.data), HUBMERE_OUTPUT="xml")

    assert (query.code, default.code) == (Exit.USAGE, Exit.USAGE)
    assert query.err.startswith("hubmere: --query [?: ")
    assert default.err.startswith("hubmere: HUBMERE_OUTPUT is 'xml'; expected one of table, json")


def test_bad_query_and_bad_default_change_nothing(node: Node, namespace: str) -> None:
    """Exit code 2 promises that nothing was done."""
    verbs = ("eventhub", "create", "-n", "early", "--namespace-name", namespace)

    query = at(node, *verbs, "--query", "[?")
    default = hubmere(*verbs, HUBMERE_DATA=str(node.data), HUBMERE_OUTPUT="xml")

    assert (query.code, default.code) == (Exit.USAGE, Exit.USAGE)
    assert at(node, "eventhub", "list", "--namespace-name", namespace).json == []


def test_status_prints_nothing_for_a_query_without_a_result(node: Node) -> None:
    """An empty line would be a result too."""
    assert at(node, "status", "--query", "nothing").out == ""


def test_output_format_depends_on_flag_then_variable_then_terminal(node: Node) -> None:
    """A script gets JSON, the default of `az`; at a terminal there is a table with colours."""
    data = str(node.data)
    script = at(node, "eventhub", "list")
    by_variable = hubmere("eventhub", "list", HUBMERE_DATA=data, HUBMERE_OUTPUT="tsv", FORCE_COLOR="1")
    by_flag = hubmere("eventhub", "list", "-o", "none", HUBMERE_DATA=data, HUBMERE_OUTPUT="tsv")
    coloured = hubmere("eventhub", "list", "-o", "jsonc", HUBMERE_DATA=data, FORCE_COLOR="1")

    assert json.loads(script.out)[0]["name"]
    assert "\t" in by_variable.out
    assert by_flag.out == ""
    assert "\x1b[" in coloured.out
    assert run_on_a_terminal(node, "", "eventhub", "list")[1].startswith("\x1b[1mName")


def test_deletion_is_confirmed_at_a_terminal_only(node: Node) -> None:
    """A user at a terminal is asked, and the default is no; a script is not asked, as with `az`; --yes skips the
    question.
    """
    for name in ("asked", "agreed", "flagged", "scripted"):
        assert at(node, "eventhub", "create", "-n", name, "--partition-count", "1").code == Exit.OK

    no = run_on_a_terminal(node, "\n", "eventhub", "delete", "-n", "asked")
    yes = run_on_a_terminal(node, "y\n", "eventhub", "delete", "-n", "agreed")
    flag = run_on_a_terminal(node, "", "eventhub", "delete", "-n", "flagged", "--yes")
    script = at(node, "eventhub", "delete", "-n", "scripted")

    assert "Delete the event hub 'asked' and all its events? [y/N]" in no[1]
    assert "hubmere: nothing was changed" in no[1]
    assert (no[0], yes[0], flag[0], script.code) == (Exit.FAILED, Exit.OK, Exit.OK, Exit.OK)
    left = set(at(node, "eventhub", "list", "--query", "[].name").json)
    assert left & {"asked", "agreed", "flagged", "scripted"} == {"asked"}
    assert at(node, "eventhub", "delete", "-n", "asked").code == Exit.OK


class _Terminal:
    """A terminal at which a key is pressed instead of an answer."""

    def __init__(self, *, is_interrupted: bool) -> None:
        self._is_interrupted = is_interrupted

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        if self._is_interrupted:
            raise KeyboardInterrupt
        return ""


@pytest.mark.parametrize(("is_interrupted", "code"), [(True, Exit.INTERRUPTED), (False, Exit.FAILED)])
def test_question_is_answered_by_ctrl_c_and_ctrl_d(
    node: Node, hub: str, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool, code: Exit
) -> None:
    """Neither deletes; Ctrl-C has the exit code that it has everywhere."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", _Terminal(is_interrupted=is_interrupted))
        run = at(node, "eventhub", "delete", "-n", hub)

    assert run.code == code
    assert at(node, "eventhub", "show", "-n", hub).code == Exit.OK


def run_on_a_terminal(node: Node, typed: str, *arguments: str) -> tuple[int, str]:
    """Run the command with a terminal as input and output; returns the exit code and the output."""
    leader, follower = pty.openpty()
    variables = environment(HUBMERE_DATA=str(node.data), TERM="xterm")
    with subprocess.Popen(
        [sys.executable, "-m", "hubmere", *arguments], stdin=follower, stdout=follower, stderr=follower, env=variables
    ) as process:
        os.close(follower)
        os.write(leader, typed.encode())
        shown = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # Linux reports a closed other end in this way.
                break
            if not data:
                break
            shown += data
    os.close(leader)
    return process.returncode, shown.decode()


def test_object_of_a_query_keeps_its_order() -> None:
    """Columns of a row are in the order of the query."""
    assert list(OrderedDict(b=1, a=2)) == ["b", "a"]
    assert render({"a": 1, "b": 2}, Output.TSV, (), "{b: b, a: a}") == "2\t1"
