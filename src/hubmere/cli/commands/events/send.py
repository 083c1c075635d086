"""`hubmere send`: events from an argument, a file or standard input to a hub, over HTTP.

Returns when every event is on the node's disk. A busy node is retried. A broken connection is not, since its last
publication may have arrived: the error then gives the number of acknowledged events.
"""

import inspect
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

import typer

from hubmere.cli.arm.verbs import (
    NODE_OPTIONS,
    AzCommand,
    a_group,
    option,
    pairs,
    take_node,
    with_signature,
)
from hubmere.cli.commands.events.counting import EventCounter, open_counter
from hubmere.cli.commands.events.hub_client import HUB_ARGUMENT, NAMESPACE_OPTION, HubClient, hub_of
from hubmere.cli.commands.events.outgoing import Outgoing, Publication, Publications, events_of, lines
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.http import Refused

_STANDARD_INPUT = "-"
_PAUSE_S = 1.0
# How long one publication is retried while the node is busy.
_PATIENCE_S = 120.0
# Copies of one body that are created at a time.
_COPIES = 500


class _Sender:
    """Sends events and counts what was acknowledged."""

    def __init__(self, client: HubClient, partition_id: str | None, bar: EventCounter) -> None:
        self._client, self._bar = client, bar
        self._below = "/messages" if partition_id is None else f"/partitions/{quote(partition_id, safe='')}/messages"
        self.acknowledged = 0

    def send(self, portions: Iterator[list[Outgoing]]) -> None:
        """Send all events. Incomplete publications are sent whenever no further event is available."""
        publications = Publications()
        for portion in portions:
            for event in portion:
                for publication in publications.add(event):
                    self._publish(publication)
            if not portion:
                self._publish_all(publications)
        self._publish_all(publications)

    def _publish_all(self, publications: Publications) -> None:
        for publication in publications.rest():
            self._publish(publication)

    def _publish(self, publication: Publication) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._client.post(self._below, publication.body, publication.headers)
                break
            except Refused as refused:
                if not refused.is_transient or time.monotonic() > deadline:
                    raise
                time.sleep(refused.retry_after_s or _PAUSE_S)
        self.acknowledged += publication.count
        self._bar.advance(publication.count)


def _send(given: dict[str, Any]) -> None:
    client = hub_of(given, take_node(given))
    key, partition_id = given["partition_key"], given["partition_id"]
    if key is not None and partition_id is not None:
        raise CommandFailed(Exit.USAGE, "give either --partition-key or --partition-id")
    portions, total = _source(given)
    with closing(client), open_counter(total, is_shown=total != 1) as bar:
        sender = _Sender(client, partition_id, bar)
        try:
            sender.send(_with_properties(portions, pairs(given["properties"] or ())))
        except CommandFailed as failed:
            done = sender.acknowledged
            note = "1 event was acknowledged before" if done == 1 else f"{done} events were acknowledged before"
            raise CommandFailed(failed.code, *failed.lines, *((note,) if sender.acknowledged else ())) from None
    typer.echo(f"sent {sender.acknowledged} event{'' if sender.acknowledged == 1 else 's'} to {client.hub}", err=True)


# --- what is sent ----------------------------------------------------------------------------------------------------


def _source(given: dict[str, Any]) -> tuple[Iterator[list[Outgoing]], int | None]:
    """The events in portions, and their number if it is known."""
    body, file, key, count = (given[name] for name in ("body", "file", "partition_key", "count"))
    if body is not None and file is not None:
        raise CommandFailed(Exit.USAGE, "give a body or --file")
    if given["lines"] and given["json_lines"]:
        raise CommandFailed(Exit.USAGE, "give either --lines or --json-lines")
    if given["lines"] or given["json_lines"]:
        if body is not None or count != 1:
            raise CommandFailed(Exit.USAGE, "lines come from --file or standard input, each once")
        if given["content_type"] is not None:
            raise CommandFailed(Exit.USAGE, "--content-type is for one body; JSON lines name it in systemProperties")
        opened = _open_file(file)
        return _closing(opened, events_of(lines(opened.fileno()), is_json=given["json_lines"], key=key)), None
    system = {"content-type": given["content_type"]} if given["content_type"] else {}
    return _copies(Outgoing(_read_body(body, file), key, system=system), count), count


def _open_file(file: str | None) -> BinaryIO:
    if file is None or file == _STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandFailed(Exit.USAGE, f"--file {file}: {error.strerror}") from None


def _closing(opened: BinaryIO, portions: Iterator[list[Outgoing]]) -> Iterator[list[Outgoing]]:
    with opened:
        yield from portions


def _read_body(body: str | None, file: str | None) -> bytes:
    if body is not None:
        # The bytes of the argument: those that are invalid in the locale arrive as surrogates.
        return body.encode("utf-8", "surrogateescape")
    with _open_file(file) as opened:
        content = opened.read()
    if not content and (file is None or file == _STANDARD_INPUT):
        raise CommandFailed(
            Exit.USAGE, "standard input is empty: nothing was sent", "give '' as the body to send an empty event"
        )
    return content


def _copies(event: Outgoing, count: int) -> Iterator[list[Outgoing]]:
    for done in range(0, count, _COPIES):
        yield [event] * min(_COPIES, count - done)


def _with_properties(portions: Iterator[list[Outgoing]], common: dict[str, str]) -> Iterator[list[Outgoing]]:
    """Add the properties of the command to every event; the event's own properties override them."""
    if not common:
        return portions
    return ([replace(one, properties={**common, **one.properties}) for one in portion] for portion in portions)


app = a_group("Send events.")
_BODY = Annotated[
    str | None,
    typer.Argument(
        metavar="[BODY]", help="Body of one event. Default: from --file or standard input.", show_default=False
    ),
]
_OPTIONS = (
    HUB_ARGUMENT,
    inspect.Parameter("body", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_BODY),
    option("file", str | None, "--file", "-f", metavar="PATH", help="File to send; - is standard input."),
    option("lines", bool, "--lines", default=False, help="Send each line as the body of an event."),
    option(
        "json_lines", bool, "--json-lines", default=False,
        help="Send each line as an event, in the format of `tail --output json`: body, optionally bodyEncoding, "
        "partitionKey or key, properties, propertyTypes, systemProperties.",
    ),
    option("partition_key", str | None, "--partition-key", metavar="TEXT", help="Key that chooses the partition."),
    option("partition_id", str | None, "--partition-id", metavar="N", help="The partition itself."),
    option(
        "properties", list[str] | None, "--property", "--properties", metavar="NAME=VALUE",
        help="Property of every event; one flag accepts several.",
    ),
    option("content_type", str | None, "--content-type", metavar="TYPE", help="Content type of the event."),
    option("count", int, "--count", default=1, min=1, metavar="N", help="How often to send the body. Default: 1."),
    NAMESPACE_OPTION,
    *NODE_OPTIONS,
)  # fmt: skip
_HELP = """Send events to a hub: from an argument, a file or standard input.

The command ends when every event is on the node's disk. Lines from a pipe are sent as they arrive.
"""
app.command("send", help=_HELP, cls=AzCommand)(with_signature(_send, _OPTIONS))
