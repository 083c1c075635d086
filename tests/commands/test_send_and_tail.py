"""`send` and `tail`: events that were sent are printed again, from every source and every position."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from commands.runner import Run, at, hubmere, piped, started
from hubmere.cli.commands.events.incoming import Incoming
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


def bodies(node: Node, hub: str, *arguments: str) -> list[str]:
    """The bodies that `tail` prints."""
    return at(node, "tail", hub, "-o", "body", *arguments).lines


def events(run: Run) -> list[dict[str, object]]:
    return [json.loads(line) for line in run.lines]


# --- send ------------------------------------------------------------------------------------------------------------


def test_body_key_and_properties_are_sent_as_given(node: Node, hub: str) -> None:
    """Several properties may follow one flag."""
    sent = at(node, "send", hub, "grüße", "--partition-key", "k", "--property", "a=1", "b=x=y")

    (event,) = events(at(node, "tail", hub, "-o", "json"))
    assert (sent.code, sent.out, sent.err) == (Exit.OK, "", f"sent 1 event to {hub}\n")
    assert (event["body"], event["partitionKey"], event["properties"]) == ("grüße", "k", {"a": "1", "b": "x=y"})


def test_file_is_sent_unchanged(node: Node, hub: str, tmp_path: Path) -> None:
    """This includes binary files, and files larger than one batch."""
    content = bytes(range(256)) * 2000
    path = tmp_path / "body.bin"
    path.write_bytes(content)

    sent = at(node, "send", hub, "--file", str(path))
    code, out, _ = piped(node, b"", "tail", hub, "-o", "body")

    assert (sent.code, code) == (Exit.OK, Exit.OK)
    assert out == content + b"\n"


def test_standard_input_is_one_body(node: Node, hub: str) -> None:
    """Without an argument or a file, standard input is read, as in other tools."""
    code, _, _ = piped(node, b"two\nlines\n", "send", hub)

    (event,) = events(at(node, "tail", hub, "-o", "json"))
    assert (code, event["body"]) == (Exit.OK, "two\nlines\n")


def test_empty_standard_input_sends_nothing(node: Node, hub: str) -> None:
    """A script whose input failed must not publish an empty event; an empty argument is intended."""
    code, _, err = piped(node, b"", "send", hub)
    on_purpose = at(node, "send", hub, "")

    assert (code, on_purpose.code) == (Exit.USAGE, Exit.OK)
    assert err.startswith("hubmere: standard input is empty: nothing was sent\n")
    assert bodies(node, hub) == [""]


def test_every_line_is_an_event_in_order(node: Node, hub: str) -> None:
    """Both kinds of line ends, empty lines and a last line without an end are accepted."""
    code, _, err = piped(node, b"one\r\n\ntwo\nthree", "send", hub, "--lines", "--partition-id", "1")

    assert (code, err) == (Exit.OK, f"sent 4 events to {hub}\n")
    assert bodies(node, hub, "--partition", "1") == ["one", "", "two", "three"]


def test_json_lines_describe_events_in_the_format_of_tail(node: Node, hub: str, namespace: str) -> None:
    """Events can be copied from hub to hub in this way."""
    place = ("--namespace-name", namespace)
    assert at(node, "eventhub", "create", *place, "-n", "copies", "--partition-count", "1").code == Exit.OK
    lines = (
        b'{"body": "text", "partitionKey": "a", "properties": {"n": 5, "ok": true, "x": 1.5}}\n'
        b"\n"
        b'{"body": {"celsius": 21}, "partitionKey": "b"}\n'
        b'{"body": "/wA=", "bodyEncoding": "base64"}\n'
    )

    first, _, _ = piped(node, lines, "send", hub, "--json-lines", "--property", "n=0", "all=yes")
    _, copied, _ = piped(node, b"", "tail", hub, "-o", "json")
    second, _, err = piped(node, copied, "send", "copies", *place, "--json-lines")

    assert (first, second, err) == (Exit.OK, Exit.OK, "sent 3 events to copies\n")
    shapes = {
        (event["body"], event["bodyEncoding"], event["partitionKey"], json.dumps(event["properties"], sort_keys=True))
        for event in events(at(node, "tail", "copies", *place, "-o", "json"))
    }
    assert shapes == {
        ("text", "utf-8", "a", '{"all": "yes", "n": 5, "ok": true, "x": 1.5}'),
        ('{"celsius":21}', "utf-8", "b", '{"all": "yes", "n": "0"}'),
        ("/wA=", "base64", None, '{"all": "yes", "n": "0"}'),
    }


def test_copy_keeps_the_types_of_properties(node: Node, hub: str) -> None:
    """JSON has no UUID, no bytes and one kind of number; SDKs return another class for another type."""
    properties = {
        "text": "t", "flag": True, "small": 5, "real": 2.0, "wide": 2**40, "id": "0d8c6c3e-94a1-4f1c-8a2e-6a3c5ce2b1f0",
        "at": 1795066705744, "words": "grün", "raw": "/wA=", "long": 5, "huge": str(2**64 - 1), "single": 0.5,
        "symbol": "s", "nan": "nan", "nothing": None,
    }  # fmt: skip
    types = {
        "id": "uuid", "at": "timestamp", "words": "binary", "raw": "base64", "long": "long", "huge": "ulong",
        "single": "float", "symbol": "symbol", "nan": "double", "nothing": "null",
    }  # fmt: skip
    line = json.dumps({"body": "b", "properties": properties, "propertyTypes": types}).encode()
    code, _, err = piped(node, line, "send", hub, "--json-lines")
    assert code == Exit.OK, err

    _, shown, _ = piped(node, b"", "tail", hub, "-o", "json")
    copied, _, err = piped(node, shown, "send", hub, "--json-lines")

    assert copied == Exit.OK, err
    found = [(event["properties"], event["propertyTypes"]) for event in events(at(node, "tail", hub, "-o", "json"))]
    assert found == [(properties, types)] * 2


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"propertyTypes": {"a": "uuid"}}, "line 1 has propertyTypes with 'a', which is not a type of one of its"),
        ({"properties": {"a": "x"}, "propertyTypes": []}, ""),
        ({"properties": {"a": "x"}, "propertyTypes": ["a"]}, "line 1 has propertyTypes that are not an object"),
        ({"properties": {"a": 5}, "propertyTypes": {"a": "binary"}}, "line 1 has the property 'a', which is no binary"),
        ({"properties": {"a": "x"}, "propertyTypes": {"a": "uuid"}}, "line 1 has the property 'a', which is no uuid"),
        ({"properties": {"a": "x"}, "propertyTypes": {"a": "shape"}}, "line 1 has the property 'a', which is no shape"),
    ],
)
def test_wrong_types_of_properties_are_reported(node: Node, hub: str, entry: dict[str, Any], message: str) -> None:
    """The error names the line and the property."""
    code, _, err = piped(node, json.dumps({"body": "b", **entry}).encode(), "send", hub, "--json-lines")

    assert (code == Exit.OK) is (message == "")
    assert err.startswith(f"hubmere: {message}" if message else "sent 1 event")


def test_copy_keeps_kafka_keys_headers_and_content_types(node: Node, hub: str) -> None:
    """The manual shows this copy; Kafka consumers read the same key, AMQP receivers the same properties."""
    config = {
        "bootstrap.servers": node.kafka, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString", "sasl.password": node.connection_string,
    }  # fmt: skip
    producer = Producer(config)
    producer.produce(hub, value=b"by kafka", key=b"till-7", headers=[("unit", b"euro"), ("raw", b"\xff")], partition=0)
    assert producer.flush(60) == 0
    sent = at(node, "send", hub, "{}", "--content-type", "application/json", "--partition-id", "0")
    assert sent.code == Exit.OK
    shown = at(node, "tail", hub).lines

    _, copied, _ = piped(node, b"", "tail", hub, "-o", "json")
    code, _, err = piped(node, copied, "send", hub, "--json-lines")

    assert "  [till-7]  by kafka" in shown[0]
    assert (code, err) == (Exit.OK, f"sent 2 events to {hub}\n")
    copies = events(at(node, "tail", hub, "-o", "json"))[2:]
    assert {(event["body"], event["key"], json.dumps(event["properties"])) for event in copies} == {
        ("by kafka", "till-7", '{"unit": "euro", "raw": "/w=="}'),
        ("{}", None, "{}"),
    }
    assert [event["propertyTypes"] for event in copies if event["key"]] == [{"unit": "binary", "raw": "base64"}]
    typed = [event["systemProperties"] for event in copies if event["body"] == "{}"]
    assert [dict(values)["content-type"] for values in typed if isinstance(values, dict)] == ["application/json"]


def test_one_body_is_sent_many_times(node: Node, hub: str) -> None:
    """This is for a simple load test; there is more than one batch."""
    sent = at(node, "send", hub, "x" * 300, "--count", "3000", "--partition-id", "0")

    assert sent.err == f"sent 3000 events to {hub}\n"
    last = at(node, "tail", hub, "--partition", "0", "--from", "2999", "-o", "json")
    assert [event["sequenceNumber"] for event in events(last)] == [2999]


def test_lines_of_a_slow_pipe_are_sent_as_they_arrive(node: Node, hub: str) -> None:
    """`tail -F app.log | hubmere send --lines` must send the last lines too."""
    following = ("tail", hub, "--from", "first", "--follow", "-o", "body")
    with started(node, "send", hub, "--lines") as sender, started(node, *following) as reader:
        assert sender.stdin is not None
        assert reader.stdout is not None
        seen = []
        for word in (b"one\n", b"two\n"):
            sender.stdin.write(word)
            sender.stdin.flush()
            seen.append(reader.stdout.readline())
        reader.send_signal(signal.SIGINT)
        sender.communicate(timeout=120)
        reader.communicate(timeout=120)

    assert seen == [b"one\n", b"two\n"]
    assert (sender.returncode, reader.returncode) == (Exit.OK, Exit.OK)


def test_ctrl_c_before_the_last_stored_event_is_an_error(node: Node, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that keeps the output must know that it is not complete."""
    at(node, "send", hub, "one")

    def present(incoming: Incoming) -> Iterator[dict[str, Any]]:
        yield next(iter(kept(incoming)))
        raise KeyboardInterrupt

    kept = Incoming.present
    monkeypatch.setattr(Incoming, "present", present)
    shown = at(node, "tail", hub, "-o", "body")

    assert (shown.code, shown.out) == (Exit.INTERRUPTED, "one\n")


@pytest.mark.parametrize(
    ("arguments", "code"), [((), Exit.OK), (("--count", "2"), Exit.INTERRUPTED), (("--count", "1"), Exit.OK)]
)
def test_ctrl_c_ends_following_unless_events_were_counted(
    node: Node, hub: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: Exit
) -> None:
    """A script that waits for two events must see that it has one; without a number there is no other end."""
    at(node, "send", hub, "one")

    def coming(_: Incoming) -> Iterator[dict[str, Any]]:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(Incoming, "coming", coming)
    shown = at(node, "tail", hub, "-o", "body", "--follow", "--from", "first", *arguments)

    assert (shown.code, shown.out) == (code, "one\n")


def test_a_line_that_is_too_large_ends_the_command(node: Node, hub: str) -> None:
    """The lines before it are stored, and their number is named."""
    data = b"fine\n" + b"x" * 2_000_000 + b"\nnever\n"

    code, _, err = piped(node, data, "send", hub, "--lines", "--partition-id", "0")

    assert code == Exit.FAILED
    assert "limits.publication_bytes" in err
    assert err.endswith("hubmere: 1 event was acknowledged before\n")


def test_send_waits_for_a_throttled_node(tmp_path: Path) -> None:
    """A throughput unit accepts a thousand events a second; the rest is sent a moment later."""
    with Node(hubs=["orders"], data=tmp_path / "data", settings={"as": "standard"}) as node:
        sent = at(node, "send", "orders", "x", "--count", "5000")
        refused = node.logs().count("refused POST")

    assert (sent.code, sent.err) == (Exit.OK, "sent 5000 events to orders\n")
    assert refused > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("body", "--partition-key", "k", "--partition-id", "0"), "give either --partition-key or --partition-id"),
        (("body", "--file", "f"), "give a body or --file"),
        (("body", "--lines"), "lines come from --file or standard input, each once"),
        (("--lines", "--json-lines"), "give either --lines or --json-lines"),
        (("--file", "there-is-no-such-file"), "--file there-is-no-such-file: No such file or directory"),
        (("body", "--property", "nothing"), "'nothing' is not of the form name=value"),
        (
            ("--lines", "--content-type", "a/b"),
            "--content-type is for one body; JSON lines name it in systemProperties",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(node: Node, arguments: tuple[str, ...], message: str) -> None:
    """They are refused before anything is sent."""
    run = at(node, "send", "orders", *arguments)

    assert (run.code, run.err) == (Exit.USAGE, f"hubmere: {message}\n")


def test_invalid_line_is_reported_with_the_number_of_sent_events(node: Node, hub: str, tmp_path: Path) -> None:
    """A user who repairs the file must know where to continue."""
    path = tmp_path / "events.jsonl"
    good = json.dumps({"body": "x" * 1000, "partitionKey": "k"})
    path.write_text("\n".join([*([good] * 600), '{"no body": 1}']), encoding="utf-8")

    run = at(node, "send", hub, "--json-lines", "--file", str(path))

    first, second = run.err.splitlines()
    assert run.code == Exit.USAGE
    assert first.startswith("hubmere: line 601 is not an object with a")
    acknowledged = int(second.split()[1])
    assert 0 < acknowledged == len(bodies(node, hub)) < 600


def test_progress_bar_is_shown_on_a_terminal_only(node: Node, hub: str) -> None:
    """A bar is useful at a terminal, but not in a log file."""
    leader, follower = os.openpty()
    with subprocess.Popen(
        started_arguments(hub), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower,
        env={**os.environ, "HUBMERE_DATA": str(node.data), "TERM": "xterm", "COLUMNS": "120"},
    ) as process:  # fmt: skip
        os.close(follower)
        shown = _everything(leader)
    os.close(leader)

    assert process.returncode == Exit.OK
    assert b"/s" in shown
    assert b"sent 2000 events" in shown
    assert at(node, "send", hub, "x", "--count", "2000").err == f"sent 2000 events to {hub}\n"


def started_arguments(hub: str) -> list[str]:
    import sys

    return [sys.executable, "-m", "hubmere", "send", hub, "x", "--count", "2000"]


def _everything(terminal: int) -> bytes:
    """The output to a terminal until the last writer closed it."""
    shown = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux reports a closed other end in this way.
            return shown
        if not data:
            return shown
        shown += data


# --- tail ------------------------------------------------------------------------------------------------------------


def test_tail_prints_all_partitions_in_order_of_time(node: Node, hub: str) -> None:
    """Users are interested in time, not in partitions."""
    for number, partition in enumerate(("1", "0", "1")):
        assert at(node, "send", hub, f"event {number}", "--partition-id", partition).code == Exit.OK

    lines = at(node, "tail", hub).lines

    assert [line.split("  ")[-1] for line in lines] == ["event 0", "event 1", "event 2"]
    assert [line.split()[0] for line in lines] == ["1:0", "0:0", "1:1"]


def test_tail_starts_at_the_given_position(node: Node, hub: str) -> None:
    """The position is the first event, a sequence number, an offset or a time, each inclusive."""
    for number in range(4):
        assert at(node, "send", hub, str(number), "--partition-id", "0").code == Exit.OK
    third = events(at(node, "tail", hub, "-o", "json"))[2]

    found = {
        start: bodies(node, hub, "--from", start, "--count", "2")
        for start in ("first", "1", "sequence:3", f"offset:{third['offset']}", str(third["enqueuedTime"]))
    }

    assert found["first"] == ["0", "1"]
    assert found["1"] == ["1", "2"]
    assert found["sequence:3"] == ["3"]
    assert found[f"offset:{third['offset']}"] == ["2", "3"]
    assert found[str(third["enqueuedTime"])][0] in ("1", "2")  # two events may share a millisecond
    assert bodies(node, hub, "--from", "2999-01-01T00:00:00Z") == []


def test_tail_prints_only_matching_events(node: Node, hub: str) -> None:
    """It filters by key, body and time; `--count` counts printed events."""
    for number in range(4):
        key = ("--partition-key", "even" if number % 2 == 0 else "odd")
        assert at(node, "send", hub, f'{{"number": {number}}}', *key).code == Exit.OK

    assert bodies(node, hub, "--key", "odd") == ['{"number": 1}', '{"number": 3}']
    assert bodies(node, hub, "--grep", r'": [23]\}', "--count", "1") == ['{"number": 2}']
    assert len(bodies(node, hub, "--since", "1h")) == len(bodies(node, hub, "--since", "2020-01-01T00:00:00Z")) == 4
    assert bodies(node, hub, "--since", "2999-01-01T00:00:00Z") == []


def test_tail_supports_the_format_strings_of_kcat(node: Node, hub: str) -> None:
    """Scripts for kcat keep their format strings."""
    sent = at(node, "send", hub, "text", "--partition-key", "k", "--property", "a=1", "b=two")
    code, out, _ = piped(node, b"", "tail", hub, "--format", r"%t %o %k %K %s %S %h 100%%\t\x41\n")
    _, place, _ = piped(node, b"", "tail", hub, "--format", "%p %T;")
    (event,) = events(at(node, "tail", hub, "-o", "json"))

    assert (sent.code, code, out) == (Exit.OK, Exit.OK, f"{hub} 0 k 1 text 4 a=1,b=two 100%\tA\n".encode())
    time_ms = round(datetime.fromisoformat(str(event["enqueuedTime"])).timestamp() * 1000)
    assert place.decode() == f"{event['partition']} {time_ms};"


def test_colours_are_used_on_terminals_only(node: Node, hub: str) -> None:
    """FORCE_COLOR simulates a terminal here; NO_COLOR overrides both."""
    assert at(node, "send", hub, "x", "--partition-key", "k").code == Exit.OK
    data = str(node.data)

    plain = at(node, "tail", hub).out
    coloured = hubmere("tail", hub, HUBMERE_DATA=data, FORCE_COLOR="1").out
    switched_off = hubmere("tail", hub, HUBMERE_DATA=data, FORCE_COLOR="1", NO_COLOR="1").out

    assert "\x1b[36m[k]\x1b[0m" in coloured
    assert plain == switched_off
    assert "\x1b" not in plain


def test_long_hub_is_read_page_by_page_without_a_gap(node: Node, hub: str, tmp_path: Path) -> None:
    """A node returns a thousand events at a time."""
    path = tmp_path / "lines"
    path.write_text("\n".join(map(str, range(2500))), encoding="utf-8")

    sent = at(node, "send", hub, "--lines", "--file", str(path), "--partition-id", "0")

    assert sent.code == Exit.OK
    assert bodies(node, hub) == [str(number) for number in range(2500)]


def test_tail_from_last_waits_for_the_next_event(node: Node, hub: str) -> None:
    """A script waits for the next event of a hub; older ones do not count."""
    assert at(node, "send", hub, "old").code == Exit.OK
    with started(node, "tail", hub, "--from", "last", "--count", "1", "-o", "body") as reader:
        while True:
            assert at(node, "send", hub, "new").code == Exit.OK
            try:
                seen, _ = reader.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                continue

    assert (reader.returncode, seen) == (Exit.OK, b"new\n")


def test_control_characters_of_a_body_are_not_sent_to_the_terminal(node: Node, hub: str) -> None:
    """They could change the terminal; formats for programs keep them."""
    hostile = "a\x1b[2Jb\nc\td"
    assert at(node, "send", hub, hostile, "--partition-key", "k\x07").code == Exit.OK

    (line,) = at(node, "tail", hub).lines
    code, out, _ = piped(node, b"", "tail", hub, "-o", "body")

    assert line.endswith("  [k\\x07]  a\\x1b[2Jb\\nc\td")
    assert (code, out) == (Exit.OK, hostile.encode() + b"\n")


def test_closed_output_is_a_normal_end_of_tail(node: Node, hub: str) -> None:
    """`hubmere tail ... | head -1` is common, and with `pipefail` the shell looks at both exit codes."""
    assert at(node, "send", hub, "x" * 1000, "--count", "500").code == Exit.OK
    with started(node, "tail", hub, "-o", "body") as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr is not None
        complaints = reader.stderr.read()

    assert (reader.returncode, complaints) == (Exit.OK, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("ordres",), Exit.NOT_FOUND, "there is no event hub 'ordres'; did you mean 'orders'?"),
        (("orders", "--group", "nobody"), Exit.NOT_FOUND, "there is no consumer group 'nobody'; there are $Default"),
        (("orders", "--namespace-name", "hubmeer"), Exit.NOT_FOUND, "there is no namespace 'hubmeer'; did you mean"),
        (("orders", "--from", "yesterday"), Exit.USAGE, "--from yesterday is none of first, last, a sequence number"),
        (("orders", "--since", "yesterday"), Exit.USAGE, "--since yesterday is neither like 30s, 10m, 2h or 1d nor"),
        (("orders", "--since", "1h", "--from", "first"), Exit.USAGE, "give either --from or --since"),
        (("orders", "--grep", "("), Exit.USAGE, "--grep ( is not a regular expression: "),
        (("orders", "--format", "%q"), Exit.USAGE, "--format: %q is unknown; the codes are %t, %p"),
        (("orders", "--format", "100%"), Exit.USAGE, "--format: it ends in the middle of a code"),
        (("orders", "--format", "%s", "-o", "json"), Exit.USAGE, "give either --output or --format"),
        (("orders", "--partition", "77"), Exit.FAILED, "The specified partition is invalid"),
        (("orders", "--partition", "0", "--from", "123456"), Exit.FAILED, "The supplied sequence number '123456'"),
    ],
)
def test_invalid_options_of_tail_are_reported(node: Node, arguments: tuple[str, ...], code: Exit, message: str) -> None:
    """The error suggests the nearest name if there is one."""
    run = at(node, "tail", *arguments)

    assert (run.code, run.out) == (code, "")
    assert run.err.startswith(f"hubmere: {message}")


def test_sequence_number_that_only_some_partitions_have_is_accepted(node: Node, hub: str) -> None:
    """It means: from there on, in partitions that have events there."""
    assert at(node, "send", hub, "x", "--count", "3", "--partition-id", "1").code == Exit.OK

    lines = at(node, "tail", hub, "--from", "2").lines

    assert [line.split()[0] for line in lines] == ["1:2"]


def test_tail_with_follow_survives_a_restart_of_the_node(tmp_path: Path) -> None:
    """After a restart of a node, users must not have to restart their commands."""
    with Node(hubs=["orders"], data=tmp_path / "data") as node:
        assert at(node, "send", "orders", "before").code == Exit.OK
        with started(node, "tail", "orders", "--from", "first", "--follow", "--count", "2", "-o", "body") as reader:
            assert reader.stdout is not None
            first = reader.stdout.readline()
            node.restart()
            assert at(node, "send", "orders", "after").code == Exit.OK
            second, _ = reader.communicate(timeout=600)

    assert (first, second, reader.returncode) == (b"before\n", b"after\n", Exit.OK)
