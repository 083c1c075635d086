"""Captured Avro files: read by fastavro and by Apache's own library; both encoders give the same bytes."""

import io
import json
from collections.abc import Callable, Sequence
from random import Random
from struct import pack
from typing import Any

import avro.datafile
import avro.io
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.client.consumer import UNKNOWN_POSITION
from hubmere.pipeline.capture.files.avro import BLOCK_BYTES, AvroFile, Records, RecordsLike, read_about
from hubmere.pipeline.capture.files.originals import TIME
from hubmere.pipeline.capture.files.schema import SCHEMA, long_of, time_text
from hubmere.pipeline.decode import visible_batches
from hubmere.records.compression import Codec
from hubmere.records.header import read_header, seal
from hubmere.records.records import Record
from hubmere.translate import publication_from_amqp
from pipeline.batches import NOW_MS, fetched, kafka_batch, plain, stored
from pipeline.twin import compiled_twins
from translate.builders import annotations, application_properties, compound, data, record_of, section, sized, text
from translate.messages import a_message

NAME, SPAN = "shop/orders/0/2023/11/14/22/13/20.avro", "f00/0/0-5"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
BLOBS = st.none() | st.binary(max_size=40) | TEXTS.map(str.encode)
PROPERTIES = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)
HEADERS = st.lists(st.tuples(TEXTS, BLOBS), max_size=5).map(tuple)
TWINS: list[Callable[[], RecordsLike]] = [Records, lambda: compiled_twins().Records()]


def a_file(
    *batches: bytes,
    start: int = 0,
    end: int = 1 << 40,
    deflates: bool = False,
    position: int = UNKNOWN_POSITION,
    pieces: int = 1,
) -> bytes:
    """The file that both encoders make of batches, which are fetched in a number of parts."""
    made = []
    for twin in TWINS:
        sink = io.BytesIO()
        file = AvroFile(sink, NAME, SPAN, deflates=deflates, records_of=twin)
        at = position
        step = max(1, -(-len(batches) // pieces))
        for first in range(0, len(batches), step):
            piece = batches[first : first + step]
            for batch in visible_batches(fetched(*piece, position=at), start, end):
                file.add(batch, 0, start, end)
            at += sum(map(len, piece)) if at != UNKNOWN_POSITION else 0
        file.close()
        made.append((sink.getvalue(), file.events, file.times_us))
    assert made[0] == made[1]
    return made[0][0]


def events(content: bytes) -> list[dict[str, Any]]:
    """The events that fastavro reads."""
    return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]


def of_the_service(event: dict[str, Any]) -> dict[str, Any]:
    """System properties without those that Hubmere adds (`originals`)."""
    return {name: value for name, value in event["SystemProperties"].items() if not name.startswith("x-hubmere-")}


def test_schema_is_the_services_own() -> None:
    """Reference, service 6: readers of captured files rely on names, order and unions."""
    header = fastavro.reader(io.BytesIO(a_file(kafka_batch(plain(1)))))

    found = json.loads(header.metadata["avro.schema"])

    assert found == SCHEMA
    unions = {field["name"]: field["type"]["values"] for field in found["fields"] if isinstance(field["type"], dict)}
    assert unions == {
        "SystemProperties": ["long", "double", "string", "bytes"],
        "Properties": ["long", "double", "string", "bytes", "null"],
    }
    assert [field["name"] for field in found["fields"]] == [
        "SequenceNumber", "Offset", "EnqueuedTimeUtc", "SystemProperties", "Properties", "Body",
    ]  # fmt: skip
    assert header.metadata["avro.codec"] == "null"


def test_event_with_only_a_body_has_exactly_these_bytes() -> None:
    """Written by hand from the Avro specification: longs, strings, a map with the time, an empty one, a union."""
    content = a_file(kafka_batch([Record(0, NOW_MS, None, b"ab")], base=3), end=4)

    time = b"11/14/2023 10:13:20 PM"
    system = b"\x02" + bytes((len(TIME) * 2,)) + TIME.encode() + b"\x00" + long_of(NOW_MS) + b"\x00"
    record = b"\x06" + b"\x023" + bytes((len(time) * 2,)) + time + system + b"\x00" + b"\x02" + b"\x04ab"

    sync = content[-16:]
    assert content.endswith(sync + b"\x02" + long_of(len(record)) + record + sync)


# Values encoded by hand: AMQP's constructor and content, and the value in a captured file.
KINDS = {
    "int": (b"\x54\xfb", -5),
    "long": (b"\x81" + (1 << 40).to_bytes(8, "big"), 1 << 40),
    "ulong": (b"\x80" + b"\xff" * 8, str((1 << 64) - 1)),
    "double": (b"\x82" + pack(">d", 1.5), 1.5),
    "float": (b"\x72" + pack(">f", 0.25), 0.25),
    "text": (sized(0xA1, b"five"), "five"),
    "symbol": (sized(0xA3, b"s"), "s"),
    "char": (b"\x73\x00\x00\x00\x41", "A"),
    "uuid": (b"\x98" + bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    "bytes": (sized(0xA0, b"\x00\xff"), b"\x00\xff"),
    "yes": (b"\x41", "True"),
    "no": (b"\x56\x00", "False"),
    "time": (b"\x83" + (1_672_531_200_000).to_bytes(8, "big"), 1_672_531_200_000),
    # IEEE 754-2008, binary integer significand: 125 times 10 to the -2; one whose significand begins with 100.
    "decimal32": (b"\x74" + ((99 << 23) | 125).to_bytes(4, "big"), 1.25),
    "decimal64": (b"\x84" + ((1 << 63) | (396 << 53) | 125).to_bytes(8, "big"), -1.25),
    "long decimal": (b"\x74" + ((0b11 << 29) | (101 << 21) | 1).to_bytes(4, "big"), 8_388_609.0),
    "infinite": (b"\x74\x78\x00\x00\x00", float("inf")),
}


def test_every_kind_of_value_is_mapped_to_a_branch_of_the_union() -> None:
    """The union mapping of the reference (service 6), the null of a property included."""
    encoded = [(name, value) for name, (value, _) in KINDS.items()]
    message = (
        annotations(("x-opt-partition-key", text("k")))
        + section(0x73, compound(0xC0, [text("m-1")]))
        + application_properties(*encoded, ("nothing", b"\x40"))
        + data(b"body")
    )

    (found,) = events(a_file(stored(publication_from_amqp(message, 0).batch, 0)))

    assert found["Properties"] == {name: value for name, (_, value) in KINDS.items()} | {"nothing": None}
    assert of_the_service(found) == {"x-opt-partition-key": "k", "message-id": "m-1"}
    assert found["Body"] == b"body"


def test_kafka_headers_stay_bytes_and_the_last_of_a_name_counts() -> None:
    """AMQP readers see the same; a header without a value is null."""
    headers = (("a", b"1"), ("b", None), ("a", b"2"), ("c", b"\xff"))

    (found,) = events(a_file(kafka_batch([Record(0, NOW_MS, b"key", None, headers)])))

    assert found["Properties"] == {"a": b"2", "b": None, "c": b"\xff"}
    assert of_the_service(found) == {"x-opt-kafka-key": b"key"}
    assert found["Body"] is None


@pytest.mark.parametrize("deflates", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_file_of_many_blocks_is_read_by_both_libraries(deflates: bool, codec: Codec) -> None:
    """It is read by fastavro, and by Apache's DataFileReader as in Microsoft's published sample."""
    body = b"x" * 1000
    batches = [
        kafka_batch([Record(index, NOW_MS, None, body) for index in range(100)], base=number * 100, codec=codec)
        for number in range(10)
    ]

    content = a_file(*batches, deflates=deflates)
    sample = avro.datafile.DataFileReader(io.BytesIO(content), avro.io.DatumReader())
    rows: list[dict[str, Any]] = list(sample)

    assert len(batches) * 100_000 > BLOCK_BYTES * 3
    assert [row["SequenceNumber"] for row in rows] == list(range(1000))
    assert all(row["Body"] == body for row in rows)
    assert events(content) == rows
    assert read_about(io.BytesIO(content))[0] == SPAN


def test_file_without_events_is_valid() -> None:
    """Globs over captured files include them."""
    assert events(a_file()) == []


def test_same_events_give_the_same_bytes_for_any_split_of_the_responses() -> None:
    """A repeat may get the log in other responses; the file must be the same."""
    random = Random(5)
    batches = [
        kafka_batch([Record(index, NOW_MS, None, random.randbytes(900)) for index in range(40)], base=number * 40)
        for number in range(30)
    ]

    whole = a_file(*batches, start=15, end=1170, position=77)

    assert all(a_file(*batches, start=15, end=1170, position=77, pieces=pieces) == whole for pieces in (2, 7, 30))
    assert [event["SequenceNumber"] for event in events(whole)] == list(range(15, 1170))


@pytest.mark.parametrize(
    ("second", "shown"),
    [
        (0, "1/1/1970 12:00:00 AM"),
        (1_505_821_509, "9/19/2017 11:45:09 AM"),
        (1_505_822_400, "9/19/2017 12:00:00 PM"),
        (-1, "12/31/1969 11:59:59 PM"),
        (1 << 60, "12/31/9999 11:59:59 PM"),
        (-(1 << 60), "1/1/0001 12:00:00 AM"),
    ],
)
def test_times_are_written_as_the_service_does(second: int, shown: str) -> None:
    """The format is `M/d/yyyy h:mm:ss AM`; times outside of the calendar become the nearest valid one."""
    assert time_text(second).decode() == shown


@given(records=st.lists(st.tuples(BLOBS, BLOBS, HEADERS, st.integers(-9, 9)), min_size=1, max_size=6))
def test_any_kafka_record_gives_the_same_bytes(records: Sequence[tuple[Any, Any, Any, int]]) -> None:
    """Keys and headers may have any bytes, repeated names, and decreasing times."""
    batch = bytearray(
        kafka_batch(
            [
                Record(index, NOW_MS + seconds * 1000, key, value, headers)
                for index, (key, value, headers, seconds) in enumerate(records)
            ]
        )
    )
    batch[22] &= ~0x08  # the producers' own times
    seal(batch)

    assert len(events(a_file(bytes(batch)))) == len(records)


@given(
    rows=st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | TEXTS, PROPERTIES),
        min_size=1,
        max_size=6,
    )
)
def test_any_written_row_gives_the_same_bytes(
    rows: list[tuple[bytes | None, str | None, dict[str, str | None]]],
) -> None:
    """These are the usual events: keys, short strings and properties without a value."""
    batch = [record_of(index, body, key, properties.items()) for index, (body, key, properties) in enumerate(rows)]

    found = events(a_file(kafka_batch(batch)))

    assert [(event["Body"], event["Properties"]) for event in found] == [(body, names) for body, _, names in rows]


@given(seed=st.integers(0, 1 << 32))
def test_any_amqp_message_gives_the_same_bytes(seed: int) -> None:
    """This covers every section and every type of AMQP, including decimals and described values."""
    batch = publication_from_amqp(a_message(Random(seed)).payload, 0).batch

    assert len(events(a_file(stored(batch, 0)))) == 1


@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_batch_is_omitted_without_an_effect_on_others(seed: int) -> None:
    """A producer may write anything; other batches must not be affected."""
    random = Random(seed)
    records = [Record(index, NOW_MS, b"k", b"v", (("h", b"x"),)) for index in range(5)]
    damaged = bytearray(kafka_batch(records, base=5))
    for _ in range(random.randrange(1, 4)):
        damaged[random.randrange(61, len(damaged))] = random.randrange(256)
    seal(damaged)
    assert read_header(damaged).base_sequence_number == 5

    found = events(a_file(kafka_batch(records), bytes(damaged), kafka_batch(plain(1), base=10)))

    assert [event["SequenceNumber"] for event in found][:5] == list(range(5))
    assert found[-1]["SequenceNumber"] == 10
