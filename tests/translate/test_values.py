"""Which bytes are a valid AMQP value: examples written by hand from AMQP 1.0 part 1, valid and damaged."""

import pytest

from hubmere.model.errors import UndecodableMessage
from hubmere.records import kernels
from hubmere.translate import publication_from_amqp
from hubmere.wire.amqp.codec.decode import decode_value
from translate.builders import compound, data, deliveries, emit, pairs, section, stored, symbol, text

WHOLE = {
    "null": "40",
    "list0": "45",
    "boolean": "5601",
    "uuid": "98" + "00" * 16,
    "decimal128": "94" + "00" * 16,
    "vbin32": "b000000001ff",
    "empty list8": "c00100",
    "list32": "d0000000050000000140",
    "map32 in list8": "c00a01d10000000400000000",
    "array of ints": "e00402540102",
    "array of strings": "e00602a1" + "0161" + "0162",
    "array of lists": "e00501c0020140",
    "array of nulls": "e0020540",
    "array32 of described": "f00000000b00000002" + "00a30175" + "54" + "01" + "02",
    "described": "00a3017540",
    "described twice": "005301" + "005302" + "40",
}

DAMAGED = {
    "nothing": "",
    "unknown constructor": "57",
    "half an int": "7100",
    "string without length": "a1",
    "string too short": "a10261",
    "long string without length": "b10000",
    "long string too short": "b10000000261",
    "list without count": "c001",
    "list with size 0": "c00000",
    "list longer than its size": "c0020240",
    "list shorter than its size": "c003014040",
    "list past the end": "c0050140",
    "list32 with size below its count field": "d00000000300000000",
    "map with a lone key": "c1020140",
    "array without constructor": "e00102",
    "array too short": "e004025401",
    "array with too much": "e005025401020340",
    "array of unknown": "e0020157",
    "array of long nulls": "f000000005ffffffff40",
    "array of described without constructor": "e00501" + "00a30175",
    "array of strings without length": "e00202a1",
    "described without value": "00a30175",
    "described without descriptor": "00",
}


@pytest.mark.parametrize("digits", WHOLE.values(), ids=WHOLE.keys())
def test_valid_value_ends_where_its_encoding_says(digits: str) -> None:
    """The generic codec gives the same result."""
    value = bytes.fromhex(digits)

    assert kernels.value_end(value + b"\x40", 0, len(value) + 1, 0) == len(value)
    assert decode_value(value + b"\x40")[1] == len(value)


@pytest.mark.parametrize("digits", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_value_is_refused(digits: str) -> None:
    """It is refused as a body, as a property, and as an annotation."""
    value = bytes.fromhex(digits)

    with pytest.raises(kernels.Malformed):
        kernels.value_end(value, 0, len(value), 0)
    for message in (
        section(0x77, value),
        section(0x74, compound(0xC1, [text("p"), value])) + data(b""),
        section(0x72, compound(0xC1, [symbol("a"), value])) + data(b""),
        section(0x73, compound(0xC0, [value])) + data(b""),
    ):
        with pytest.raises(UndecodableMessage):
            publication_from_amqp(message, 0)


@pytest.mark.parametrize("digits", WHOLE.values(), ids=WHOLE.keys())
def test_any_value_may_be_a_body(digits: str) -> None:
    """A body of one value is returned unchanged."""
    body = section(0x77, bytes.fromhex(digits))

    (got,) = deliveries(emit(stored(publication_from_amqp(body, 0).batch)).frames)

    assert [bytes(raw.raw) for raw in got.sections.body] == [body]


@pytest.mark.parametrize("depth", [30, 31, 32, 33])
def test_nesting_limit_is_that_of_the_generic_codec(depth: int) -> None:
    """A stored value must be readable by every reader with the same limit."""
    value = b"\x40"
    for _ in range(depth):
        value = compound(0xC0, [value])

    if depth <= kernels.MAX_DEPTH:
        assert kernels.value_end(value, 0, len(value), 0) == len(value)
        assert decode_value(value)[1] == len(value)
    else:
        with pytest.raises(kernels.Malformed):
            kernels.value_end(value, 0, len(value), 0)


@pytest.mark.parametrize(
    "descriptor", [b"\x80" + bytes(7) + b"\x75", symbol("amqp:data:binary")], ids=["ulong", "symbol"]
)
def test_sections_may_be_described_in_any_legal_form(descriptor: bytes) -> None:
    """They are delivered in the encoding that every client reads."""
    message = b"\x00" + descriptor + b"\xa0\x02hi"

    (got,) = deliveries(emit(stored(publication_from_amqp(message, 0).batch)).frames)

    assert [bytes(raw.raw) for raw in got.sections.body] == [data(b"hi")]


def test_many_properties_and_long_names_are_read_back() -> None:
    """Counts and lengths need more than one byte."""
    entries = [(text(f"name {n}" * (40 if n == 7 else 1)), text("v" * n)) for n in range(300)]
    message = section(0x74, compound(0xC1, [part for pair in entries for part in pair])) + data(b"")

    (got,) = deliveries(emit(stored(publication_from_amqp(message, 0).batch)).frames)

    assert got.sections.application_properties is not None
    assert pairs(bytes(got.sections.application_properties.value_bytes)) == entries


def test_properties_whose_names_are_not_strings_are_read_back() -> None:
    """This is not legal AMQP, but some clients write symbols; the section is then stored whole, not as headers."""
    value = compound(0xC1, [symbol("s"), b"\x41", text("t"), b"\x42"])

    (got,) = deliveries(emit(stored(publication_from_amqp(section(0x74, value) + data(b""), 0).batch)).frames)

    assert got.sections.application_properties is not None
    assert bytes(got.sections.application_properties.value_bytes) == value


def test_batches_of_many_events_are_numbered_correctly() -> None:
    """The numbers exceed the tables of small numbers, in both directions."""
    count = kernels.TABLE_SIZE + 10
    payload = b"".join(data(data(b"%d" % n)) for n in range(count))

    got = deliveries(emit(stored(publication_from_amqp(payload, 0x8001_3700).batch)).frames)

    assert [bytes(delivered.sections.body[0].raw) for delivered in got] == [data(b"%d" % n) for n in range(count)]


@pytest.mark.parametrize("size", [0, 63, 64, 250, 251, 255, 256, 8_191, 8_192, 300_000])
def test_bodies_of_every_size_are_read_back(size: int) -> None:
    """The sizes are around each change of an encoding's width."""
    messages = [data(bytes(size)), section(0x70, b"\x45") + data(bytes(size))]
    payload = b"".join(data(message) for message in messages)

    got = deliveries(emit(stored(publication_from_amqp(payload, 0x8001_3700).batch)).frames)

    assert [bytes(delivered.sections.body[0].raw) for delivered in got] == [data(bytes(size))] * 2
