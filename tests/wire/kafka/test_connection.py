"""The engines: both ends connected in memory, with whole input and byte by byte; order, limits and versions."""

import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.kafka.connection import (
    BARE_TOKEN_VERSION,
    MAX_PLAIN_REQUEST_BYTES,
    BrokenStream,
    ClientConnection,
    Request,
    Response,
    ServerConnection,
    frame_response,
)
from hubmere.wire.kafka.errors import ErrorCode, LocalProtocolError
from hubmere.wire.kafka.framing import JOIN_BELOW_BYTES, join_small
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from hubmere.wire.kafka.messages.groups import (
    HEARTBEAT,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
)
from hubmere.wire.kafka.messages.metadata import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from hubmere.wire.kafka.messages.sasl import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from hubmere.wire.kafka.primitives import Buffer
from hubmere.wire.kafka.schema import Api, VersionRange
from hubmere.wire.kafka.served_apis import ServedApis
from wire.kafka.builders import any_message, every_message, message_id

Feed = Callable[[Any, bytes], list[Any]]


def _whole(engine: Any, data: bytes) -> list[Any]:
    return list(engine.receive_data(data))


def _byte_by_byte(engine: Any, data: bytes) -> list[Any]:
    return [signal for at in range(len(data)) for signal in engine.receive_data(data[at : at + 1])]


def _into_its_buffer(engine: Any, data: bytes) -> list[Any]:
    """Receive directly into the engine's buffer whenever it offers one, at most three bytes at a time."""
    signals: list[Any] = []
    at = 0
    while at < len(data):
        buffer = engine.receive_buffer()
        taken = min(3, len(data) - at, 3 if buffer is None else len(buffer))
        piece = data[at : at + taken]
        if buffer is None:
            signals += engine.receive_data(piece)
        else:
            buffer[:taken] = piece
            signals += engine.read_buffer(taken)
        at += taken
    return signals


_FEEDS = pytest.mark.parametrize("feed", [_whole, _byte_by_byte, _into_its_buffer])


def _sent(engine: ServerConnection | ClientConnection) -> bytes:
    return b"".join(engine.data_to_send())


def _client_bytes(*requests: tuple[Any, int]) -> bytes:
    client = ClientConnection(client_id="test")
    for body, version in requests:
        client.request(body, version)
    return _sent(client)


def a_produce(*, acks: int = -1, records: bytes = b"BATCH") -> ProduceRequest:
    """A produce request for one partition."""
    partition = ProducePartition(index=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topics=(ProduceTopic(name="hub", partitions=(partition,)),))


def a_heartbeat(member: str = "m") -> HeartbeatRequest:
    """A heartbeat of one member."""
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


# --- both ends -------------------------------------------------------------------------------------------------------


@_FEEDS
@pytest.mark.parametrize(("api", "version", "cls"), list(every_message())[::2], ids=message_id)
def test_request_and_response_are_decoded_at_the_other_end(api: Api, version: int, cls: type, feed: Feed) -> None:
    """This covers every API in every version, whole, byte by byte, and in the engine's own buffer."""
    random = Random(f"{api.name} {version}")
    asked, answer = any_message(api.request, version, random), any_message(api.response, version, random)
    if isinstance(asked, ProduceRequest):
        asked = a_produce()
    if isinstance(answer, ApiVersionsResponse):
        answer = ApiVersionsResponse(error_code=0, api_keys=answer.api_keys)
    client, server = ClientConnection(client_id="téster"), ServerConnection()

    number = client.request(asked, version)
    (request,) = feed(server, _sent(client))
    server.respond(request, answer)
    (response,) = feed(client, _sent(server))

    assert (request.api, request.version, request.client_id) == (api, version, "téster")
    assert request.body == asked
    assert response == Response(api, version, number, answer)
    assert (client.in_flight, server.in_flight) == (0, 0)


def test_request_has_the_bytes_of_the_specification() -> None:
    """Header version 1 and 2; the client id is a classic string in both."""
    v3 = _client_bytes((a_heartbeat(), 3))
    v4 = _client_bytes((a_heartbeat(), 4))

    assert v3 == bytes.fromhex("0000001a 000c 0003 00000000 0004 74657374 0001 67 00000001 0001 6d ffff")
    assert v4 == bytes.fromhex("00000019 000c 0004 00000000 0004 74657374 00 02 67 00000001 02 6d 00 00")


def test_response_has_the_bytes_of_the_specification() -> None:
    """Header version 0 for classic versions, 1 with a tag section for flexible ones, always 0 for ApiVersions."""
    server = ServerConnection()
    data = _client_bytes((a_heartbeat(), 1), (a_heartbeat(), 4), (ApiVersionsRequest(), 3))

    classic, flexible, versions = server.receive_data(data)
    server.respond(classic, HeartbeatResponse(error_code=27))
    server.respond(flexible, HeartbeatResponse(error_code=27))
    server.respond(versions, ApiVersionsResponse(error_code=0, api_keys=()))

    assert _sent(server) == bytes.fromhex(
        "0000000a 00000000 00000000 001b0000000c 00000001 00 00000000 001b 000000000c 00000002 0000 01 00000000 00"
    )


@_FEEDS
@settings(deadline=None)
@given(seeds=st.lists(st.integers(0, 2**16), min_size=1, max_size=5))
def test_any_split_of_the_input_gives_the_same_requests(feed: Feed, seeds: list[int]) -> None:
    """Many requests in one read, or one read for each byte."""
    cases = list(every_message())[::2]
    chosen = [(*cases[seed % len(cases)], Random(seed)) for seed in seeds]
    bodies = [(any_message(cls, version, random), version) for _, version, cls, random in chosen]
    data = _client_bytes(*bodies)

    requests = feed(ServerConnection(), data)

    assert [(request.body, request.version) for request in requests] == bodies
    assert [request.correlation_id for request in requests] == list(range(len(bodies)))


# --- order -----------------------------------------------------------------------------------------------------------


def test_responses_are_sent_in_the_order_of_the_requests() -> None:
    """Clients match answers by order and number; a waiting fetch holds back later answers."""
    server = ServerConnection()
    first, second, third = server.receive_data(_client_bytes(*[(a_heartbeat(), 1)] * 3))

    server.respond(third, HeartbeatResponse(error_code=3))
    server.respond(second, HeartbeatResponse(error_code=2))
    held_back = server.data_to_send()
    waiting = server.in_flight
    server.respond(first, HeartbeatResponse(error_code=1))

    assert held_back == []
    assert waiting == 3
    released = _sent(server)
    assert [released[at + 13] for at in range(0, len(released), 14)] == [1, 2, 3]
    assert server.in_flight == 0


def test_produce_without_acks_gets_no_response() -> None:
    """acks=0: nothing is sent, and later answers do not wait."""
    server = ServerConnection()
    client = ClientConnection(client_id=None)
    client.request(a_produce(acks=0), 9)
    client.request(a_heartbeat(), 1)

    produce, heartbeat = server.receive_data(_sent(client))
    server.respond(heartbeat, HeartbeatResponse(error_code=0))
    responses = client.receive_data(_sent(server))

    assert not produce.expects_response
    assert [response.body for response in responses] == [HeartbeatResponse(error_code=0)]
    with pytest.raises(LocalProtocolError):
        server.respond(produce, ProduceResponse(topics=()))


def test_second_answer_or_answer_of_another_api_is_an_error_of_ours() -> None:
    """A refused command changes nothing."""
    server = ServerConnection()
    (request,) = server.receive_data(_client_bytes((a_heartbeat(), 1)))

    with pytest.raises(LocalProtocolError, match="MetadataResponse"):
        server.respond(request, MetadataResponse(brokers=(), topics=()))
    with pytest.raises(LocalProtocolError):
        server.respond(request, HeartbeatResponse(error_code=1 << 20))
    server.respond(request, HeartbeatResponse(error_code=0))
    with pytest.raises(LocalProtocolError, match="does not wait for a response"):
        server.respond(request, HeartbeatResponse(error_code=0))

    assert len(_sent(server)) == 14


def test_cached_response_equals_an_encoded_one() -> None:
    """Frequent responses that seldom change are encoded once."""
    server = ServerConnection()
    answer = ApiVersionsResponse(error_code=0, api_keys=(ApiVersion(api_key=0, min_version=0, max_version=9),))
    requests = server.receive_data(_client_bytes((ApiVersionsRequest(), 3), (ApiVersionsRequest(), 3)))

    server.respond(requests[0], answer)
    plain = _sent(server)
    server.respond_frames(requests[1], frame_response(API_VERSIONS, 3, requests[1].correlation_id, answer))
    encoded = _sent(server)

    assert encoded[:4] + encoded[8:] == plain[:4] + plain[8:]
    with pytest.raises(LocalProtocolError):
        server.respond_frames(requests[1], b"")


def test_caller_answers_the_only_request_in_flight_itself() -> None:
    """It cannot be answered again, and the connection goes on with the next request."""
    server = ServerConnection()
    (request,) = server.receive_data(_client_bytes((a_heartbeat(), 4)))

    assert server.complete(request)

    assert (server.in_flight, server.data_to_send()) == (0, [])
    with pytest.raises(LocalProtocolError):
        server.respond(request, HeartbeatResponse(error_code=0))
    assert not server.complete(request)
    (following,) = server.receive_data(_client_bytes((a_heartbeat(), 4)))
    server.respond(following, HeartbeatResponse(error_code=0))
    assert _sent(server)


def test_caller_does_not_answer_before_earlier_requests() -> None:
    """While another request is in flight, or a response is queued, the engine keeps the order."""
    server = ServerConnection()
    first, second = server.receive_data(_client_bytes((a_heartbeat(), 4), (a_heartbeat(), 4)))

    assert not server.complete(first)
    assert not server.complete(second)
    server.respond(first, HeartbeatResponse(error_code=0))
    assert not server.complete(second)
    _sent(server)

    assert server.complete(second)
    assert server.in_flight == 0


def test_cached_flexible_response_has_its_header() -> None:
    """The tag section of the header is in the frame."""
    client, server = ClientConnection(client_id=None), ServerConnection()
    client.request(a_heartbeat(), 4)
    (request,) = server.receive_data(_sent(client))

    answer = HeartbeatResponse(error_code=27)
    server.respond_frames(request, frame_response(HEARTBEAT, 4, request.correlation_id, answer))

    (response,) = client.receive_data(_sent(server))
    assert response.body == HeartbeatResponse(error_code=27)


# --- buffers ---------------------------------------------------------------------------------------------------------


def test_small_responses_are_sent_as_one_buffer() -> None:
    """Half of the cost of a small request is the system call that sends the answer."""
    server = ServerConnection()
    requests = server.receive_data(_client_bytes(*[(a_heartbeat(), 1)] * 5))

    for request in requests:
        server.respond(request, HeartbeatResponse(error_code=0))

    assert [len(buffer) for buffer in server.data_to_send()] == [5 * 14]
    assert server.data_to_send() == []


@pytest.mark.parametrize(
    ("sizes", "joined_sizes"),
    [
        ([], []),
        ([1], [1]),
        ([1, 2, 3], [6]),
        ([JOIN_BELOW_BYTES, 1, 2], [JOIN_BELOW_BYTES, 3]),
        ([1, 2, JOIN_BELOW_BYTES], [3, JOIN_BELOW_BYTES]),
        ([JOIN_BELOW_BYTES, JOIN_BELOW_BYTES], [JOIN_BELOW_BYTES, JOIN_BELOW_BYTES]),
    ],
)
def test_only_small_adjacent_buffers_are_joined(sizes: list[int], joined_sizes: list[int]) -> None:
    """Copying is useful only if it saves a system call."""
    buffers: list[Buffer] = [bytes([index]) * size for index, size in enumerate(sizes)]

    result = join_small(list(buffers))

    assert [len(buffer) for buffer in result] == joined_sizes
    assert b"".join(result) == b"".join(buffers)


def test_large_records_are_sent_without_a_copy() -> None:
    """A megabyte from the disk is not copied."""
    server = ServerConnection()
    data = _client_bytes((FetchRequest(max_wait_ms=0, min_bytes=1, topics=()), 12), (a_heartbeat(), 1))
    fetch, heartbeat = server.receive_data(data)
    records = memoryview(bytes(JOIN_BELOW_BYTES))
    partition = FetchPartitionResponse(index=0, error_code=0, high_watermark=1, records=records)

    server.respond(fetch, FetchResponse(topics=(FetchTopicResponse(name="hub", partitions=(partition,)),)))
    server.respond(heartbeat, HeartbeatResponse(error_code=0))

    buffers = server.data_to_send()
    assert len(buffers) == 3
    assert buffers[1] is records
    (length,) = struct.unpack_from(">i", buffers[0])
    assert length == sum(map(len, buffers)) - 4 - 14


def test_produced_batch_in_one_read_is_a_view_of_the_input() -> None:
    """A frame that arrives completely is not copied."""
    data = _client_bytes((a_produce(records=b"x" * 100_000), 9))

    (request,) = ServerConnection().receive_data(memoryview(data))

    records = request.body.topics[0].partitions[0].records
    assert records.obj is data


def test_incomplete_frame_uses_exactly_its_length() -> None:
    """A connection uses memory only while a frame is incomplete."""
    data = _client_bytes((a_produce(records=b"x" * 100_000), 9))
    server = ServerConnection()

    server.receive_data(data[:50])
    missing = server.receive_buffer()
    (request,) = server.receive_data(data[50:])

    assert missing is not None
    assert len(missing) == len(data) - 50
    assert server.receive_buffer() is None
    assert request.body == a_produce(records=b"x" * 100_000)


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_in_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    """KIP-511: the answer has error 35 and the supported range, so that the client can try again; the connection stays
    open.
    """
    server = ServerConnection()
    unknown = struct.pack(">ihhih", 10 + 5, 18, version, 77, -1) + b"whats"
    known = _client_bytes((a_heartbeat(), 1))

    requests = server.receive_data(unknown + known)

    assert [request.api for request in requests] == [HEARTBEAT]
    assert _sent(server) == bytes.fromhex("00000010 0000004d 0023 00000001 0012 0000 0004")


def test_client_reads_the_answer_to_an_unsupported_api_versions_request() -> None:
    """The answer has version 0, whatever the request had."""
    client = ClientConnection(client_id=None)
    server = ServerConnection(served=ServedApis({18: VersionRange(0, 2)}))
    client.request(ApiVersionsRequest(), 4)

    server.receive_data(_sent(client))
    (response,) = client.receive_data(_sent(server))

    assert response.body == ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=2),),
    )


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 13), (1, 3), (4, 0), (999, 0), (-1, 0), (3, -1)])
@_FEEDS
def test_other_unknown_request_closes_the_connection(key: int, version: int, feed: Feed) -> None:
    """Its body cannot be decoded."""
    frame = struct.pack(">ihhih", 10, key, version, 1, -1)

    with pytest.raises(BrokenStream, match=f"version {version} of API {key}"):
        feed(ServerConnection(), frame)


def test_api_that_is_not_served_closes_the_connection() -> None:
    """The caller decides which APIs are served, ApiVersions included."""
    heartbeat = _client_bytes((a_heartbeat(), 1))
    versions = _client_bytes((ApiVersionsRequest(), 0))

    with pytest.raises(BrokenStream):
        ServerConnection(served=ServedApis({18: VersionRange(0, 4)})).receive_data(heartbeat)
    with pytest.raises(BrokenStream):
        ServerConnection(served=ServedApis({12: VersionRange(0, 4)})).receive_data(versions)


@pytest.mark.parametrize(("key", "low", "high"), [(0, 0, 9), (0, 3, 13), (4, 0, 1)])
def test_only_declared_versions_can_be_offered(key: int, low: int, high: int) -> None:
    """Versions that are advertised only for old clients (Produce 0 to 2) are not decoded."""
    with pytest.raises(LocalProtocolError, match=f"API {key}"):
        ServedApis({key: VersionRange(low, high)})


def test_every_declared_version_can_be_served() -> None:
    """Every advertised version works; clients use the highest one."""
    for api in APIS.values():
        for version in range(api.versions.low, api.versions.high + 1):
            body = any_message(api.request, version, Random(version))
            (request,) = ServerConnection().receive_data(_client_bytes((body, version)))
            assert request.version == version


def test_client_does_not_send_what_it_cannot_decode() -> None:
    """This covers versions outside of the declared range, and objects that are not requests."""
    client = ClientConnection(client_id=None)

    with pytest.raises(LocalProtocolError):
        ClientConnection(client_id="x" * 32768)
    with pytest.raises(LocalProtocolError):
        client.request(a_produce(), 2)
    with pytest.raises(LocalProtocolError):
        client.request(HeartbeatResponse(error_code=0), 1)

    assert client.data_to_send() == []
    assert client.request(a_heartbeat(), 1) == 0


# --- broken streams --------------------------------------------------------------------------------------------------


@_FEEDS
@pytest.mark.parametrize("length", [0, -1, 1 + (1 << 20), 2**31 - 1])
def test_frame_with_an_invalid_size_closes_the_connection(length: int, feed: Feed) -> None:
    """The size is zero, negative or beyond the limit; nothing is allocated for it."""
    server = ServerConnection(max_request_bytes=1 << 20)

    with pytest.raises(BrokenStream, match=str(length)):
        feed(server, struct.pack(">i", length) + b"abcdef")

    assert server.receive_buffer() is None


@_FEEDS
def test_tls_on_a_port_without_tls_is_named(feed: Feed) -> None:
    """Otherwise the log would only say that a frame of 369 MB is too large."""
    server = ServerConnection(max_request_bytes=1 << 20)

    with pytest.raises(BrokenStream, match="a TLS handshake on a port without TLS"):
        feed(server, bytes.fromhex("16030102000100"))


def test_size_limit_can_grow_after_authentication() -> None:
    """An unauthenticated client has a low limit; a change applies to the next frame."""
    data = _client_bytes((a_produce(records=b"x" * 1000), 9))
    server = ServerConnection(max_request_bytes=100)

    server.max_request_bytes = 2000
    requests = server.receive_data(data)

    assert (len(requests), server.max_request_bytes) == (1, 2000)
    with pytest.raises(BrokenStream):
        ServerConnection(max_request_bytes=100).receive_data(data)


def test_requests_before_a_violation_are_not_lost() -> None:
    """A complete Produce with acks=0 counts, whatever follows it in the same read."""
    good = _client_bytes((a_produce(acks=0), 9), (a_heartbeat(), 1))
    server = ServerConnection()

    with pytest.raises(BrokenStream) as broken:
        server.receive_data(good + struct.pack(">ihhi", 8, 999, 0, 1) + good)

    assert [request.body for request in broken.value.complete] == [a_produce(acks=0), a_heartbeat()]
    with pytest.raises(BrokenStream) as again:
        server.receive_data(good)
    assert again.value.complete == ()


@pytest.mark.parametrize(
    "body", ["00", "000c00010000", "000c0001 00000001", "000c0001 00000001 0005 61", "000c0001 00000001 ffff 0001"]
)
def test_incomplete_request_closes_the_connection(body: str) -> None:
    """It ends in the header, in the client id or in the body."""
    frame = bytes.fromhex(body)

    with pytest.raises(BrokenStream):
        ServerConnection().receive_data(struct.pack(">i", len(frame)) + frame)


def test_unknown_tag_in_a_request_header_is_ignored() -> None:
    """KIP-482 also applies to headers."""
    data = _client_bytes((a_heartbeat(), 4))
    with_tag = data[:18] + bytes.fromhex("01 07 02 abcd") + data[19:]

    (request,) = ServerConnection().receive_data(struct.pack(">i", len(with_tag) - 4) + with_tag[4:])

    assert request.body == a_heartbeat()


def test_bytes_after_a_body_are_ignored() -> None:
    """Kafka's own server does the same; the frame length says where the next request starts."""
    data = _client_bytes((a_heartbeat(), 1))
    longer = struct.pack(">i", len(data) - 4 + 3) + data[4:] + b"???"

    requests = ServerConnection().receive_data(longer + data)

    assert [request.body for request in requests] == [a_heartbeat(), a_heartbeat()]


@pytest.mark.parametrize("frame", ["00000005", "0000", "00000000 00", "00000000 00000000"])
def test_unexpected_or_incomplete_response_closes_the_connection(frame: str) -> None:
    """A client checks order, numbers and lengths like a server."""
    client = ClientConnection(client_id=None)
    client.request(a_heartbeat(), 4)
    data = bytes.fromhex(frame)

    with pytest.raises(BrokenStream):
        client.receive_data(struct.pack(">i", len(data)) + data)


def test_response_without_a_request_closes_the_connection() -> None:
    """A server does not send first."""
    with pytest.raises(BrokenStream, match="not the next"):
        ClientConnection(client_id=None).receive_data(struct.pack(">ii", 4, 0))


def test_correlation_ids_start_again_after_the_last() -> None:
    """They are int32 and only have to differ among requests in flight."""
    client = ClientConnection(client_id=None)
    client._next_id = 2**31 - 1

    numbers = [client.request(a_heartbeat(), 1) for _ in range(2)]

    assert numbers == [2**31 - 1, 0]


# --- SASL ------------------------------------------------------------------------------------------------------------


def test_raw_sasl_tokens_are_reported_as_sasl_authenticate() -> None:
    """After a handshake of version 0, tokens have no Kafka headers, and neither have the answers."""
    server = ServerConnection()
    handshake: Request
    (handshake,) = server.receive_data(_client_bytes((SaslHandshakeRequest(mechanism="PLAIN"), 0)))
    server.respond(handshake, SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
    server.expects_bare_tokens = True
    server.data_to_send()

    (token,) = server.receive_data(struct.pack(">i", 5) + b"\x00u\x00pw")
    server.respond(token, SaslAuthenticateResponse(error_code=0, auth_bytes=b""))
    server.expects_bare_tokens = False
    after = server.receive_data(_client_bytes((MetadataRequest(topics=None), 1)))

    assert (token.api, token.version) == (SASL_AUTHENTICATE, BARE_TOKEN_VERSION)
    assert token.body == SaslAuthenticateRequest(auth_bytes=b"\x00u\x00pw")
    assert _sent(server) == bytes(4)
    assert [request.body for request in after] == [MetadataRequest(topics=None)]


def test_repr_of_requests_and_responses_has_no_content() -> None:
    """Logs get name, version and number, never the contents."""
    (request,) = ServerConnection().receive_data(_client_bytes((a_heartbeat("secret"), 1)))

    assert repr(request) == "<Heartbeat v1 #0>"


@pytest.mark.parametrize(("body", "is_taken"), [(MetadataRequest, False), (JoinGroupRequest, True)])
def test_size_limit_of_a_request_without_a_payload_is_smaller(body: type, is_taken: bool) -> None:
    """A list of names takes more time to decode than its bytes suggest; records and assignments are opaque bytes."""
    client = ClientConnection(client_id="c")
    if body is MetadataRequest:
        client.request(MetadataRequest(topics=(MetadataRequestTopic(name="n" * 30_000),) * 40), 12)
    else:
        protocol = JoinGroupProtocol(name="range", metadata=bytes(MAX_PLAIN_REQUEST_BYTES))
        client.request(
            JoinGroupRequest(
                group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=(protocol,)
            ),
            5,
        )
    data = b"".join(client.data_to_send())
    server = ServerConnection()

    if is_taken:
        assert len(server.receive_data(data)) == 1
    else:
        with pytest.raises(BrokenStream, match="1048576 is the most"):
            server.receive_data(data)


def test_a_repeated_fetch_is_decoded_once() -> None:
    """An idle consumer sends the same request twice a second; only its correlation id differs."""
    server = ServerConnection()
    part = FetchPartition(index=0, fetch_offset=7, max_bytes=1)
    body = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        topics=(FetchTopic(name="t", partitions=(part,)),),
    )
    other = replace(body, min_bytes=2)

    data = _client_bytes((body, 11), (body, 11), (other, 11), (body, 12), (body, 11))
    requests = server.receive_data(data)

    assert [request.body for request in requests] == [body, body, other, body, body]
    assert [request.correlation_id for request in requests] == [0, 1, 2, 3, 4]
    assert requests[0].body is requests[1].body
    assert [request.version for request in requests] == [11, 11, 11, 12, 11]
    assert {request.client_id for request in requests} == {requests[0].client_id}


def test_a_fetch_of_another_connection_is_decoded_once() -> None:
    """The readers of one tail ask alike; what is kept of them for all connections is bounded."""
    served = ServedApis({FETCH.key: FETCH.versions})
    first, second = ServerConnection(served=served), ServerConnection(served=served)
    part = FetchPartition(index=0, fetch_offset=7, max_bytes=1)
    body = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(FetchTopic(name="t", partitions=(part,)),))
    later = [
        replace(body, topics=(FetchTopic(name="t", partitions=(replace(part, fetch_offset=offset),)),))
        for offset in range(1000)
    ]

    [request] = first.receive_data(_client_bytes((body, 11)))
    [_, same, other] = second.receive_data(_client_bytes((later[0], 11), (body, 11), (body, 12)))
    decoded = [first.receive_data(_client_bytes((each, 11)))[0].body for each in later]

    assert same.body is request.body
    assert (same.correlation_id, same.client_id) == (1, request.client_id)
    assert (other.version, other.body) == (12, body)
    assert decoded == later
    assert len(served.fetches) <= 256
