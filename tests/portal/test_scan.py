"""Paging through a hub with a filter, newest or oldest first."""

import asyncio
import csv
import io
import json
from dataclasses import replace

import pytest

from hubmere.model.keys import partition_of_key
from hubmere.model.position import Position
from hubmere.portal.events import export, scan
from hubmere.portal.events.scan import EventFilter, Scan
from hubmere.portal.events.search import FoundEvent
from hubmere.translate import TypedValue
from portal.builders import PortalHarness


def a_scan(harness: PortalHarness, *, newest_first: bool = True, **wanted: str | int) -> Scan:
    made = Scan(
        harness.a_page_context(),
        harness.hub.view,
        EventFilter(**wanted),  # type: ignore[arg-type]
        newest_first=newest_first,
    )
    made.start(dict.fromkeys(range(4), Position.first()))
    return made


def next_bodies(made: Scan, limit: int) -> list[bytes]:
    return [hit.event.body or b"" for hit in asyncio.run(made.next_page(limit))]


def publish_in_turn(harness: PortalHarness, count: int) -> list[bytes]:
    """Events one second apart, each in the next partition."""
    bodies = [str(number).encode() for number in range(count)]
    for number, body in enumerate(bodies):
        harness.clock.advance(1.0)
        harness.publish(body, partition=str(number % 3))
    return bodies


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_contain_all_partitions_in_order_of_time(harness: PortalHarness, newest_first: bool) -> None:
    """There are no gaps and repeats, up to the last event."""
    bodies = publish_in_turn(harness, 25)
    made = a_scan(harness, newest_first=newest_first)

    pages = []
    while made.has_more:
        pages.append(next_bodies(made, 10))

    assert [len(page) for page in pages] == [10, 10, 5]
    assert [body for page in pages for body in page] == (bodies[::-1] if newest_first else bodies)
    assert made.progress == 1.0


def test_back_returns_to_a_page(harness: PortalHarness) -> None:
    """It shows the same events again, although more was read ahead."""
    publish_in_turn(harness, 25)
    for newest_first in (True, False):
        made = a_scan(harness, newest_first=newest_first)
        next_bodies(made, 7)
        bookmark = made.bookmark()
        second, third = next_bodies(made, 7), next_bodies(made, 7)

        made.return_to(bookmark)

        assert (next_bodies(made, 7), next_bodies(made, 7)) == (second, third)


def test_large_batches_are_read_backwards_completely(harness: PortalHarness) -> None:
    """A read goes forward and is limited in bytes; going back must not skip an event."""
    large = b"x" * 90_000
    harness.publish(*[large + str(number).encode() for number in range(7)])
    harness.publish(*[str(number).encode() for number in range(150)])

    made = a_scan(harness)
    found = [body[-3:] for body in next_bodies(made, 1000)]

    assert len(found) == 157
    assert found[-1] == b"xx0"


def test_key_is_found_in_any_partition(harness: PortalHarness) -> None:
    """Kafka producers choose the partition of a key themselves, each client in its own way."""
    own = partition_of_key("device", 4)
    other = str((own + 1) % 4)
    harness.publish(b"by the service", key="device")
    harness.publish(b"no key", partition=other)
    made = a_scan(harness, key="device", newest_first=False)
    [hit] = asyncio.run(made.next_page(10))
    by_kafka = replace(hit.event, partition_key=None, key=b"device")

    assert hit.event.body == b"by the service"
    assert EventFilter(key="device").matches(by_kafka)
    assert not EventFilter(key="device").matches(replace(by_kafka, key=b"device-2"))


@pytest.mark.parametrize("text", ["wörld", "WÖRLD", "my-key", "temperature", "21.5"])
def test_text_is_found_in_body_key_and_properties(harness: PortalHarness, text: str) -> None:
    """People remember a part of an event, in any case."""
    harness.publish("Hello Wörld".encode(), key="my-key")
    [hit] = asyncio.run(a_scan(harness).next_page(1))
    event = replace(hit.event, properties={"Temperature": TypedValue("double", 21.5)})

    assert EventFilter(text=text).matches(event)
    assert not EventFilter(text="else").matches(event)


def test_events_can_be_filtered_by_time_and_sequence_number(harness: PortalHarness) -> None:
    """Both ends are included."""
    bodies = publish_in_turn(harness, 9)
    first_ms = harness.clock.now_ms() - 8000

    by_sequence = next_bodies(a_scan(harness, until_sequence=0), 10)
    by_time = next_bodies(a_scan(harness, until_ms=first_ms + 3000, newest_first=False), 10)

    assert by_sequence == bodies[:3][::-1]
    assert by_time == bodies[:4]


def test_work_of_a_page_is_bounded_and_continues(harness: PortalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rare match in a large hub must not block the node; the page shows that there is more."""
    monkeypatch.setattr(scan, "MAX_SCANNED_EVENTS", 200)
    harness.publish(b"rare")
    for _ in range(5):
        harness.publish(*[b"x"] * 100)
    made = a_scan(harness, text="rare")

    first = next_bodies(made, 10)
    has_more, progress = made.has_more, made.progress
    rest = [next_bodies(made, 10) for _ in range(2)]

    assert (first, has_more, rest) == ([], True, [[], [b"rare"]])
    assert 0 < progress < 1
    assert not made.has_more


def test_stop_ends_the_page_and_more_continues(harness: PortalHarness) -> None:
    """The person decides how long to wait."""
    harness.publish(b"rare")
    for _ in range(5):
        harness.publish(*[b"x"] * 100)
    made = a_scan(harness, text="rare")

    stopped = asyncio.run(made.next_page(10, on_progress=made.stop))

    assert stopped == []
    assert made.scanned == 100
    assert next_bodies(made, 10) == [b"rare"]


def hits_of(harness: PortalHarness) -> list[FoundEvent]:
    harness.publish(b'{"a": 1}', key="k")
    harness.publish(b"=1+1", b"\xff\xfe", partition="1")
    return asyncio.run(a_scan(harness, newest_first=False).next_page(10))


def test_json_export_has_text_and_binary_bodies(harness: PortalHarness) -> None:
    """No part of the body is lost."""
    exported = json.loads(export.to_json(hits_of(harness)))

    assert sorted((event["body"] or "", event["bodyBase64"] or "") for event in exported) == [
        ("", "//4="),
        ("=1+1", ""),
        ('{"a": 1}', ""),
    ]
    assert {event["key"] for event in exported} == {"k", None}


def test_csv_export_contains_no_formulas(harness: PortalHarness) -> None:
    """Clients choose the content; a spreadsheet would execute a cell that begins with an equals sign."""
    rows = list(csv.DictReader(io.StringIO(export.to_csv(hits_of(harness)))))

    assert sorted(row["body"] for row in rows) == ["", "'=1+1", '{"a": 1}']


def test_text_is_found_in_headers_of_kafka_clients(harness: PortalHarness) -> None:
    """Their values are bytes, and their text need not be ASCII."""
    harness.publish(b"x")
    [hit] = asyncio.run(a_scan(harness).next_page(1))
    event = replace(hit.event, properties={"city": TypedValue("binary", "Köln".encode())})

    assert EventFilter(text="köln").matches(event)
    assert not EventFilter(text="b'").matches(event)


def test_export_keeps_keys_and_headers_of_kafka_clients(harness: PortalHarness) -> None:
    """Text stays readable, binary data is complete, and the result is valid JSON."""
    harness.publish(b"x")
    [hit] = asyncio.run(a_scan(harness).next_page(1))
    properties = {
        "city": TypedValue("binary", "Köln".encode()),
        "id": TypedValue("binary", b"\x00\xff"),
        "ratio": TypedValue("double", float("nan")),
    }
    event = replace(hit.event, key=b"\xff\x00", partition_key=None, properties=properties)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    [exported] = json.loads(export.to_json([replace(hit, event=event)]), parse_constant=refuse)

    assert (exported["key"], exported["keyBase64"]) == (None, "/wA=")
    assert exported["properties"] == {"city": "Köln", "id": "base64:AP8=", "ratio": "nan"}
