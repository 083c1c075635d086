"""`hubmere tail`: prints the stored events of a hub and, with --follow, new ones."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from hubmere.cli.arm.verbs import NODE_OPTIONS, AzCommand, a_group, option, take_node, with_signature
from hubmere.cli.commands.events.formats import (
    Json,
    Write,
    body_of,
    format_writer,
    key_of,
    text_writer,
    write_body,
    write_json,
)
from hubmere.cli.commands.events.hub_client import HUB_ARGUMENT, NAMESPACE_OPTION, hub_of
from hubmere.cli.commands.events.incoming import Incoming
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.colours import has_colours
from hubmere.model.clock import SystemClock
from hubmere.model.names import DEFAULT_GROUP

_FIRST, _LAST = "first", "last"
_AGO = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Shape(StrEnum):
    """The output format of an event."""

    TEXT = "text"
    JSON = "json"
    BODY = "body"


def _tail(given: dict[str, Any]) -> None:
    client = hub_of(given, take_node(given))
    position, is_following = _start(given)
    write, is_wanted = _writer(given), _filter(given)
    # Ctrl-C is the normal end of following without a number of events; otherwise, events are missing, and scripts must
    # see that.
    is_endless = is_following and given["count"] is None
    with closing(client), suppress(KeyboardInterrupt) if is_endless else nullcontext():
        partitions = [given["partition"]] if given["partition"] is not None else client.partition_ids()
        incoming = Incoming(client, given["group"], partitions, position)
        events: Iterator[Json] = chain(incoming.present(), incoming.coming() if is_following else ())
        _print(islice(filter(is_wanted, events), given["count"]), write, is_flushed=is_following)


# --- where it begins ---


def _start(given: dict[str, Any]) -> tuple[str, bool]:
    """The start position as query parameters of the browse request, and whether to follow new events."""
    start, since = given["from_"], given["since"]
    if start is not None and since is not None:
        raise CommandFailed(Exit.USAGE, "give either --from or --since")
    if since is not None:
        return _since(since), given["follow"]
    start = start or (_LAST if given["follow"] else _FIRST)
    return _position(start), given["follow"] or start == _LAST


def _position(text: str) -> str:
    if text == _FIRST:
        return "first"
    if text == _LAST:
        return "latest"
    if text.isascii() and text.isdigit():
        return f"sequence:{text}"
    word, _, value = text.partition(":")
    if word in ("offset", "sequence") and value.isascii() and value.isdigit():
        return text
    allowed = "first, last, a sequence number, offset:N or a time such as 2026-01-31T12:00:00Z"
    return _time(text, f"--from {text} is none of {allowed}")


def _since(text: str) -> str:
    """Parse a time, or a duration before now."""
    if found := _AGO.fullmatch(text):
        try:
            ago = timedelta(**{_UNITS[found["unit"]]: int(found["number"])})
            return f"time:{(datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC) - ago).isoformat()}"
        except OverflowError:
            return "first"
    return _time(text, f"--since {text} is neither like 30s, 10m, 2h or 1d nor a time such as 2026-01-31T12:00:00Z")


def _time(text: str, problem: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(Exit.USAGE, problem) from None
    return f"time:{text}"


# --- which events, and how ---


def _filter(given: dict[str, Any]) -> Callable[[Json], bool]:
    key, pattern = given["key"], given["grep"]
    wanted_key = None if key is None else key.encode("utf-8", "surrogateescape")
    try:
        matches = None if pattern is None else re.compile(pattern.encode("utf-8", "surrogateescape")).search
    except re.error as error:
        raise CommandFailed(Exit.USAGE, f"--grep {pattern} is not a regular expression: {error}") from None

    def is_wanted(event: Json) -> bool:
        if wanted_key is not None and key_of(event) != wanted_key:
            return False
        return matches is None or matches(body_of(event)) is not None

    return is_wanted


def _writer(given: dict[str, Any]) -> Write:
    if given["format"] is None:
        shape = given["output"] or Shape.TEXT
        return text_writer(is_coloured=has_colours()) if shape is Shape.TEXT else _SHAPES[shape]
    if given["output"] is not None:
        raise CommandFailed(Exit.USAGE, "give either --output or --format")
    return format_writer(given["format"])


_SHAPES: dict[Shape, Write] = {Shape.JSON: write_json, Shape.BODY: write_body}


def _print(events: Iterator[Json], write: Write, *, is_flushed: bool) -> None:
    out = sys.stdout.buffer
    try:
        for event in events:
            out.write(write(event))
            if is_flushed:
                out.flush()
        out.flush()
    except BrokenPipeError:
        # The reader, such as `head -1`, has what it wanted: a normal end. Python writes what is left at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = a_group("Show events.")
_OPTIONS = (
    HUB_ARGUMENT,
    option("partition", str | None, "--partition", "--partition-id", metavar="N", help="One partition. Default: all."),
    option(
        "group", str, "--group", "--consumer-group", default=DEFAULT_GROUP, metavar="NAME",
        help=f"Consumer group to read as; its checkpoints do not change. Default: {DEFAULT_GROUP}.",
    ),
    option(
        "from_", str | None, "--from", metavar="POSITION",
        help="first, last, a sequence number, offset:N or an ISO time. Default: first, or last with --follow; last "
        "waits for new events.",
    ),
    option(
        "since", str | None, "--since", metavar="TIME",
        help="Events of the last 30s, 10m, 2h or 1d, or since an ISO time.",
    ),
    option("key", str | None, "--key", metavar="TEXT", help="Only events with this partition key or Kafka key."),
    option(
        "grep", str | None, "--grep", metavar="REGEX",
        help="Only events whose body matches a regular expression (Python's syntax).",
    ),
    option("count", int | None, "--count", "-c", min=1, metavar="N", help="End after this number of events."),
    option("follow", bool, "--follow", "-f", default=False, help="Follow new events until Ctrl-C."),
    option(
        "output", Shape | None, "--output", "-o", case_sensitive=False, metavar="text|json|body",
        help="A line for people, a line of JSON, or the body alone. Default: text.",
    ),
    option(
        "format", str | None, "--format", metavar="TEXT",
        help="Format string like in kcat: %t hub, %p partition, %o sequence number, %k key, %s body, %T time in ms, "
        "%h properties, %K and %S lengths of key and body, \\n and \\t.",
    ),
    NAMESPACE_OPTION,
    *NODE_OPTIONS,
)  # fmt: skip
_HELP = """Show the events of a hub, without becoming one of its readers.

Stored events are shown in the order of time over all partitions, then new ones as they arrive.
"""
app.command("tail", help=_HELP, cls=AzCommand)(with_signature(_tail, _OPTIONS))
