"""`hubmere tail`: the events of a hub on standard output, those that are there and, if wanted, those that come."""

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from hubmere.cli.commands.events.hub_client import HUB_ARGUMENT, NAMESPACE_OPTION, hub_of
from hubmere.cli.commands.events.incoming import Incoming, Json
from hubmere.cli.commands.resources.verbs import NODE_OPTIONS, AzCommand, a_group, option, take_node, with_signature
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.names import DEFAULT_GROUP

_FIRST, _LAST = "first", "last"
# What would move the cursor or ring the bell: a body is shown, not obeyed. C0 but for the tab, DEL, C1.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_VALUES = ("properties", "systemProperties")


class Shape(StrEnum):
    """How an event is shown."""

    TEXT = "text"
    JSON = "json"
    BODY = "body"


def _tail(given: dict[str, Any]) -> None:
    client = hub_of(given, take_node(given))
    start = given["from_"] or (_LAST if given["follow"] else _FIRST)
    is_following = given["follow"] or start == _LAST
    position = _position(start)
    # Ctrl-C is how a person ends it.
    with closing(client), suppress(KeyboardInterrupt):
        partitions = [given["partition"]] if given["partition"] is not None else client.partition_ids()
        incoming = Incoming(client, given["group"], partitions, position)
        events: Iterator[Json] = chain(incoming.present(), incoming.coming() if is_following else ())
        _print(islice(events, given["count"]), given["output"], is_flushed=is_following)


def _position(text: str) -> str:
    """A position in the words of the node's look-up."""
    if text == _FIRST:
        return "first"
    if text == _LAST:
        return "latest"
    if text.isascii() and text.isdigit():
        return f"sequence:{text}"
    word, _, value = text.partition(":")
    if word in ("offset", "sequence") and value.isascii() and value.isdigit():
        return text
    try:
        datetime.fromisoformat(text)
    except ValueError:
        allowed = "first, last, a sequence number, offset:N or a time such as 2026-01-31T12:00:00Z"
        raise CommandFailed(Exit.USAGE, f"--from {text} is none of {allowed}") from None
    return f"time:{text}"


def _print(events: Iterator[Json], shape: Shape, *, is_flushed: bool) -> None:
    out = sys.stdout.buffer
    for event in events:
        out.write(_SHAPES[shape](event))
        out.write(b"\n")
        if is_flushed:
            out.flush()
    out.flush()


def _as_text(event: Json) -> bytes:
    key = f"  [{_shown(event['partitionKey'])}]" if event["partitionKey"] is not None else ""
    body = event["body"] or ""
    shown = f"base64:{body}" if event["bodyEncoding"] == "base64" else _shown(body)
    place = f"{event['partition']}:{event['sequenceNumber']}"
    time = event["enqueuedTime"].replace("+00:00", "Z")
    return f"{place:<8}  {time}{key}  {shown}".encode()


def _shown(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


def _as_json(event: Json) -> bytes:
    """One line of JSON, which `hubmere send --json-lines` takes; of typed values only the value."""
    plain = {name: {key: typed["value"] for key, typed in event[name].items()} for name in _VALUES}
    return json.dumps({**event, **plain}, ensure_ascii=False).encode()


def _as_body(event: Json) -> bytes:
    body: str = event["body"] or ""
    return base64.b64decode(body) if event["bodyEncoding"] == "base64" else body.encode()


_SHAPES = {Shape.TEXT: _as_text, Shape.JSON: _as_json, Shape.BODY: _as_body}

app = a_group("Show events.")
_OPTIONS = (
    HUB_ARGUMENT,
    option("partition", str | None, "--partition", "--partition-id", metavar="N", help="One partition. Default: all."),
    option(
        "group", str, "--group", "--consumer-group", default=DEFAULT_GROUP, metavar="NAME",
        help=f"Consumer group to look as; it keeps its place. Default: {DEFAULT_GROUP}.",
    ),
    option(
        "from_", str | None, "--from", metavar="POSITION",
        help="first, last, a sequence number, offset:N or an ISO time. Default: first, or last with --follow; last "
        "waits for new events.",
    ),
    option("count", int | None, "--count", "-c", min=1, metavar="N", help="End after so many events."),
    option("follow", bool, "--follow", "-f", default=False, help="Go on with what comes, until Ctrl-C."),
    option(
        "output", Shape, "--output", "-o", default=Shape.TEXT, case_sensitive=False, metavar="text|json|body",
        help="A line for people, a line of JSON, or the body alone. Default: text.",
    ),
    NAMESPACE_OPTION,
    *NODE_OPTIONS,
)  # fmt: skip
_HELP = """Show the events of a hub, without becoming one of its readers.

What is there is shown in the order of time over all partitions, then what comes.
"""
app.command("tail", help=_HELP, cls=AzCommand)(with_signature(_tail, _OPTIONS))
