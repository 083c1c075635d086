"""Random and damaged bytes for the Kafka engines: the only error is RemoteProtocolError, and memory is proportional."""

import struct
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.endpoints.kafka.produce.check import check_produced
from hubmere.records.compression import Codec, decompress
from hubmere.records.faults import UnreadableRecords
from hubmere.records.header import is_intact, split_batches
from hubmere.records.records import Marker, decode_records, encode_batch, encode_marker, read_marker
from hubmere.wire.kafka.codegen import reader_of
from hubmere.wire.kafka.connection import ClientConnection, ServerConnection
from hubmere.wire.kafka.errors import ErrorCode, RemoteProtocolError
from hubmere.wire.kafka.messages.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    read_assignment,
    read_subscription,
)
from hubmere.wire.kafka.schema import Api
from records.builders import some_records
from wire.kafka.builders import any_message, every_message

_MESSAGES = list(every_message())
_REQUESTS = _MESSAGES[::2]

# The memory cost of decoding: the densest message turns 3 bytes into a struct with its fields (about 100 bytes).
_BYTES_PER_BYTE = 60
_BASE_BYTES = 256 * 1024


def _damaged(data: bytes, random: Random) -> bytes:
    """Flip, remove and insert some bytes, often in a length."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << random.randrange(8)
            case 1:
                del changed[at : at + random.randrange(4)]
            case 2:
                changed[at:at] = random.randbytes(random.randrange(4))
            case _:
                changed[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"))
    return bytes(changed)


def _feed_in_pieces(engine: Any, data: bytes, random: Random) -> int:
    """Feed until the engine refuses; returns the number of complete signals."""
    count = 0
    at = 0
    with suppress(RemoteProtocolError):
        while at < len(data):
            size = random.randint(1, 64)
            count += len(engine.receive_data(data[at : at + size]))
            at += size
    return count


@settings(deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 2**32))
def test_random_bytes_close_the_stream_and_cause_no_other_error(data: bytes, seed: int) -> None:
    """Both ends handle a peer with another protocol."""
    client = ClientConnection(client_id=None)
    _, version, cls = _REQUESTS[seed % len(_REQUESTS)]
    client.request(any_message(cls, version, Random(seed)), version)

    counts = [_feed_in_pieces(engine, data, Random(seed)) for engine in (ServerConnection(), client)]

    assert all(count <= len(data) // 4 for count in counts)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_requests_close_the_stream_and_cause_no_other_error(seed: int) -> None:
    """This covers every API in every version, with a few wrong bytes."""
    random = Random(seed)

    for _, version, cls in _REQUESTS:
        client = ClientConnection(client_id="fuzz")
        client.request(any_message(cls, version, random), version)
        frame = _damaged(b"".join(client.data_to_send())[4:], random)
        count = _feed_in_pieces(ServerConnection(), struct.pack(">i", len(frame)) + frame, random)
        assert count <= 1


@pytest.mark.parametrize("seed", range(4))
def test_damaged_responses_close_the_stream_and_cause_no_other_error(seed: int) -> None:
    """This is the same for the client."""
    random = Random(seed)

    for api, version, cls in _REQUESTS:
        client, server = ClientConnection(client_id="fuzz"), ServerConnection()
        client.request(any_message(cls, version, random), version)
        for request in server.receive_data(b"".join(client.data_to_send())):
            if request.expects_response:
                server.respond(request, any_message(api.response, version, random))
        frame = _damaged(b"".join(server.data_to_send())[4:], random)
        count = _feed_in_pieces(client, struct.pack(">i", len(frame)) + frame, random)
        assert count <= 1


@settings(max_examples=400, deadline=None)
@given(case=st.sampled_from(_MESSAGES), body=st.binary(max_size=600))
def test_random_bodies_are_decoded_or_refused(case: tuple[Api, int, type], body: bytes) -> None:
    """A random body is either a message or an error of the peer."""
    api, version, cls = case

    try:
        value, end = reader_of(cls, version, api.is_flexible(version))(body, 0)
    except RemoteProtocolError:
        return

    assert type(value) is cls
    assert end <= len(body)


@pytest.mark.parametrize("filler", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\x00\x00\x00\x01", b"\x01\x00\x02"])
def test_memory_is_proportional_to_the_message(filler: bytes) -> None:
    """Wrong counts and lengths do not allocate; dense messages cost a limited multiple of their size."""
    size = 5_000
    tail = filler * (size // len(filler))
    worst = 0
    # Generate every reader first: code generation is not measured.
    readers = [(cls, reader_of(cls, version, api.is_flexible(version))) for api, version, cls in _MESSAGES]

    for _, reader in readers:
        for count in (b"\x00\x00\x10\x00", b"\x80\x20", b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff"):
            tracemalloc.start()
            with suppress(RemoteProtocolError):
                reader(count + tail, 0)
            worst = max(worst, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    assert worst < _BASE_BYTES + _BYTES_PER_BYTE * size


@settings(max_examples=300, deadline=None)
@given(
    codec=st.sampled_from(Codec),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 5),
)
def test_damaged_batches_are_refused_or_read(codec: Codec, seed: int, count: int) -> None:
    """No content of a batch causes another error."""
    random = Random(seed)
    batch = _damaged(bytes(encode_batch(some_records(count), codec=codec)), random)

    with suppress(UnreadableRecords):
        for part in split_batches(batch):
            decode_records(part, max_bytes=1 << 20)

    verdict = check_produced(batch, produce_version=9, max_batch_bytes=1 << 20)
    assert verdict is not ErrorCode.NONE or is_intact(batch)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), codec=st.integers(0, 7))
def test_random_records_are_refused_or_read(data: bytes, codec: int) -> None:
    """Random bytes follow a valid header, in every codec and without one."""
    batch = bytearray(encode_batch(some_records(2))[:61]) + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)

    try:
        records = decode_records(batch, max_bytes=1 << 20)
    except UnreadableRecords:
        return

    assert len(records) == 2


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), codec=st.sampled_from(Codec))
def test_random_compressed_data_is_refused_or_decompressed_within_its_limit(data: bytes, codec: Codec) -> None:
    """No codec writes past the limit, for any input."""
    prefix = {Codec.SNAPPY: b"\x82SNAPPY\x00" + bytes(8), Codec.GZIP: b"\x1f\x8b\x08"}.get(codec, b"")

    try:
        opened = decompress(codec, prefix + data, max_bytes=4096)
    except UnreadableRecords:
        return

    assert len(opened) <= 4096


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=100), seed=st.integers(0, 2**32))
def test_random_group_metadata_and_markers_are_refused_or_read(data: bytes, seed: int) -> None:
    """Members may join with any bytes, and a log may contain any control record."""
    marker = _damaged(bytes(encode_marker(Marker(1, 0, True, 0), time_ms=0)), Random(seed))
    values: list[object] = []

    for read, wire in ((read_subscription, data), (read_assignment, data), (read_marker, marker)):
        with suppress(RemoteProtocolError, UnreadableRecords):
            values.append(read(wire))

    assert all(isinstance(value, ConsumerSubscription | ConsumerAssignment | Marker | None) for value in values)
