"""How events become publications and lines become events, without a node."""

import base64
import json
import os
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.cli.commands.events.outgoing import (
    BATCH_TYPE,
    Outgoing,
    Publication,
    Publications,
    events_of,
    lines,
    parse_event,
)
from hubmere.cli.exit_codes import CommandFailed, Exit

KEYS = st.sampled_from([None, "a", "b"])
EVENTS = st.lists(st.builds(Outgoing, st.binary(max_size=50), KEYS, st.sampled_from([{}, {"n": 1}])), max_size=40)


def published(events: Iterable[Outgoing]) -> list[Publication]:
    publications = Publications()
    return [*(full for event in events for full in publications.add(event)), *publications.rest()]


def unpacked(publication: Publication) -> list[Outgoing]:
    """The events of a publication, as a node decodes them."""
    if publication.headers.get("Content-Type") != BATCH_TYPE:
        broker = json.loads(publication.headers.get("BrokerProperties", "{}"))
        return [Outgoing(publication.body, broker.get("PartitionKey"))]
    return [
        Outgoing(
            base64.b64decode(entry["Body"]) if entry.get("IsBodyBase64") else entry["Body"].encode(),
            entry.get("BrokerProperties", {}).get("PartitionKey"),
            entry.get("UserProperties", {}),
        )
        for entry in json.loads(publication.body)
    ]


@given(EVENTS)
def test_every_event_is_published_once_in_the_order_of_its_key(events: list[Outgoing]) -> None:
    """A publication has events of one key, since it is stored in one partition."""
    publications = published(events)

    by_key: dict[str | None, list[Outgoing]] = defaultdict(list)
    for publication in publications:
        inside = unpacked(publication)
        assert publication.count == len(inside)
        assert len({event.partition_key for event in inside}) == 1
        by_key[inside[0].partition_key] += inside
    assert dict(by_key) == {
        key: [event for event in events if event.partition_key == key] for key in {one.partition_key for one in events}
    }


def test_publication_fits_the_smallest_tier() -> None:
    """The limit is 256 KiB on Basic; a larger event is sent alone."""
    small, large = Outgoing(b"x" * 1000), Outgoing(b"y" * 900_000)

    publications = published([*([small] * 1000), large])

    assert all(len(one.body) <= 256 * 1024 for one in publications if one.count > 1)
    assert (publications[-1].count, publications[-1].body) == (1, large.body)


def test_events_of_many_keys_do_not_accumulate() -> None:
    """Each key could start a publication that never becomes full."""
    publications = Publications()

    early = [full for number in range(2000) for full in publications.add(Outgoing(b"x" * 5000, str(number)))]

    assert len(early) > 1000


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_do_not_depend_on_the_split_of_the_input(data: bytes, size: int) -> None:
    """A pipe can split the input anywhere."""
    reader, writer = os.pipe()
    portions = [data[at : at + size] for at in range(0, len(data), size)]
    found: list[bytes] = []
    arriving = lines(reader)
    for portion in portions:
        os.write(writer, portion)
        # Written lines are returned; an empty list means that there are no more.
        for part in arriving:
            if not part:
                break
            found += part
    os.close(writer)
    found += [line for part in arriving for line in part]
    os.close(reader)

    expected = data.split(b"\n")
    last = expected.pop()
    whole = [line.removesuffix(b"\r") for line in expected]
    assert found == ([*whole, last] if last else whole)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "is not an object"),
        (b'{"body": null}', "is not an object"),
        (b'{"text": "x"}', "--lines sends lines as they are"),
        (b'{"body": "x", "partitionKey": 5}', "partitionKey"),
        (b'{"body": "x", "properties": [1]}', "properties"),
        (b'{"body": "%%", "bodyEncoding": "base64"}', "cannot be decoded"),
        (b'{"body": "\\ud800"}', "cannot be decoded"),
    ],
)
def test_line_that_is_not_an_event_is_reported(line: bytes, message: str) -> None:
    """The error has its number and the reason."""
    with pytest.raises(CommandFailed) as failure:
        parse_event(line, 7)

    assert failure.value.code == Exit.USAGE
    assert failure.value.lines[0].startswith("line 7 ")
    assert message in failure.value.lines[0]


def test_blank_lines_are_skipped_but_counted() -> None:
    """The last line of an editor is no event; the reported number must be that of the editor."""
    portions = events_of([[b"", b'{"body": "x"}'], [b"  ", b"{"]], is_json=True, key=None)

    assert next(portions) == [Outgoing(b"x")]
    with pytest.raises(CommandFailed, match="line 4"):
        next(portions)
