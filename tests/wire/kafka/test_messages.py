"""Messages: round trips in every version, bytes written by hand, unknown tags, wrong lengths."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.kafka.codegen import encode_struct, holds_records, reader_of, writer_of
from hubmere.wire.kafka.errors import LocalProtocolError, RemoteProtocolError
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
)
from hubmere.wire.kafka.messages.groups import HeartbeatRequest, JoinGroupResponse
from hubmere.wire.kafka.messages.metadata import (
    METADATA,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from hubmere.wire.kafka.messages.offsets import OffsetFetchRequest
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from hubmere.wire.kafka.schema import STRING, Api, struct, wire
from wire.kafka.builders import any_message, every_message, message_id

_CASES = list(every_message())


def _encode(cls: type, version: int, flexible: bool, value: object) -> bytes:
    return b"".join(writer_of(cls, version, flexible)(value, bytearray()))


def _decode(cls: type, version: int, flexible: bool, data: bytes) -> Any:
    value, end = reader_of(cls, version, flexible)(data, 0)
    assert end == len(data)
    return value


# --- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "version", "cls"), _CASES, ids=message_id)
def test_message_survives_a_round_trip(api: Api, version: int, cls: type) -> None:
    """One side reads what the other side writes, in every served version."""
    message = any_message(cls, version, Random(f"{cls.__name__} {version}"))
    flexible = api.is_flexible(version)

    wire = _encode(cls, version, flexible, message)

    assert _decode(cls, version, flexible, wire) == message


@settings(deadline=None)
@given(case=st.sampled_from(_CASES), seed=st.integers(0, 2**32))
def test_any_message_survives_a_round_trip(case: tuple[Api, int, type], seed: int) -> None:
    """The same property for random values."""
    api, version, cls = case
    message = any_message(cls, version, Random(seed))
    flexible = api.is_flexible(version)

    wire = _encode(cls, version, flexible, message)

    assert _decode(cls, version, flexible, wire) == message


@pytest.mark.parametrize(("api", "version", "cls"), _CASES, ids=message_id)
def test_incomplete_message_is_refused(api: Api, version: int, cls: type) -> None:
    """A message that ends early is an error of the peer, and causes no other error."""
    flexible = api.is_flexible(version)
    wire = _encode(cls, version, flexible, any_message(cls, version, Random(f"{cls.__name__} {version}")))

    for end in range(0, len(wire), 1 + len(wire) // 50):
        with pytest.raises(RemoteProtocolError):
            reader_of(cls, version, flexible)(wire[:end], 0)


# --- bytes by hand ---------------------------------------------------------------------------------------------------


def test_api_versions_request_v3_has_the_bytes_of_the_specification() -> None:
    """Compact strings: length + 1, then the text; a tag section at the end."""
    request = ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2.16")

    wire = _encode(ApiVersionsRequest, 3, True, request)

    assert wire == bytes.fromhex("08 72646b61666b61 05 322e3136 00")


def test_api_versions_response_has_the_bytes_of_the_specification() -> None:
    """Version 0 counts with an int32, version 3 with a compact length and a tag section after each entry."""
    response = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))

    v0 = _encode(ApiVersionsResponse, 0, False, response)
    v3 = _encode(ApiVersionsResponse, 3, True, response)

    assert v0 == bytes.fromhex("0023 00000001 0012 0000 0004")
    assert v3 == bytes.fromhex("0023 02 0012 0000 0004 00 00000000 00")


def test_metadata_request_has_the_bytes_of_the_specification() -> None:
    """All topics is null from version 1 on; version 10 puts the topic id before the name."""
    everything = MetadataRequest(topics=None)
    one = MetadataRequest(topics=(MetadataRequestTopic(name="hub"),), allow_auto_topic_creation=False)

    assert _encode(MetadataRequest, 1, False, everything) == bytes.fromhex("ffffffff")
    assert _encode(MetadataRequest, 4, False, one) == bytes.fromhex("00000001 0003 687562 00")
    assert _encode(MetadataRequest, 12, True, one) == bytes.fromhex("02" + "00" * 16 + "04 687562 00 00 00 00")


def test_metadata_response_v9_has_the_bytes_of_the_specification() -> None:
    """Brokers, cluster, controller, topics with partitions, and the operations that were not requested."""
    partition = MetadataPartition(
        error_code=0, index=1, leader_id=7, leader_epoch=3, replica_nodes=(7,), isr_nodes=(7,), offline_replicas=()
    )
    response = MetadataResponse(
        brokers=(MetadataBroker(node_id=7, host="h", port=9093),),
        cluster_id="c",
        controller_id=7,
        topics=(MetadataTopic(error_code=0, name="t", partitions=(partition,)),),
    )

    wire = _encode(MetadataResponse, 9, True, response)

    assert wire == bytes.fromhex(
        "00000000"  # throttle time
        "02 00000007 02 68 00002385 00 00"  # one broker: id, host, port, no rack, no tags
        "02 63 00000007"  # cluster, controller
        "02 0000 02 74 00"  # one topic: no error, name, not internal
        "02 0000 00000001 00000007 00000003 02 00000007 02 00000007 01 00"  # one partition
        "80000000 00"  # operations of the topic, no tags
        "80000000 00"  # operations of the cluster, no tags
    )


def test_produce_request_has_the_bytes_of_the_specification() -> None:
    """The record batch is a length and bytes: int32 in version 7, compact in version 9."""
    partition = ProducePartition(index=2, records=b"BATCH")
    request = ProduceRequest(acks=-1, timeout_ms=30000, topics=(ProduceTopic(name="hub", partitions=(partition,)),))

    v7 = _encode(ProduceRequest, 7, False, request)
    v9 = _encode(ProduceRequest, 9, True, request)

    assert v7 == bytes.fromhex("ffff ffff 00007530 00000001 0003 687562 00000001 00000002 00000005 4241544348")
    assert v9 == bytes.fromhex("00 ffff 00007530 02 04 687562 02 00000002 06 4241544348 00 00 00")


def test_fetch_response_has_the_bytes_of_the_specification() -> None:
    """Version 4 is for old clients; version 12 is flexible, and tags with default values are omitted."""
    partition = FetchPartitionResponse(
        index=2,
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=1,
        aborted_transactions=(AbortedTransaction(producer_id=5, first_offset=6),),
        records=b"BATCH",
    )
    response = FetchResponse(topics=(FetchTopicResponse(name="hub", partitions=(partition,)),))

    v4 = _encode(FetchResponse, 4, False, response)
    v12 = _encode(FetchResponse, 12, True, response)

    assert v4 == bytes.fromhex(
        "00000000 00000001 0003 687562 00000001"
        "00000002 0000 0000000000000009 0000000000000008"
        "00000001 0000000000000005 0000000000000006"
        "00000005 4241544348"
    )
    assert v12 == bytes.fromhex(
        "00000000 0000 00000000 02 04 687562 02"
        "00000002 0000 0000000000000009 0000000000000008 0000000000000001"
        "02 0000000000000005 0000000000000006 00"
        "ffffffff 06 4241544348 00 00 00"
    )


# --- records are not copied ------------------------------------------------------------------------------------------


def test_produced_batch_is_a_view_of_the_input() -> None:
    """Between socket and disk a batch is copied once, and not by the codec."""
    batch = bytes(range(256)) * 64
    partition = ProducePartition(index=0, records=batch)
    topics = (ProduceTopic(name="hub", partitions=(partition,)),)
    wire = _encode(ProduceRequest, 9, True, ProduceRequest(acks=1, timeout_ms=1, topics=topics))

    request = _decode(ProduceRequest, 9, True, wire)

    records = request.topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is wire
    assert records == batch


@pytest.mark.parametrize(("version", "flexible"), [(11, False), (12, True)])
def test_fetched_batches_are_sent_as_the_given_buffers(version: int, flexible: bool) -> None:
    """A fetch response is a list of buffers; data from the disk is not copied."""
    one, two = b"1" * 5000, memoryview(b"2" * 6000)
    partitions = (
        FetchPartitionResponse(index=0, error_code=0, high_watermark=1, records=one),
        FetchPartitionResponse(index=1, error_code=0, high_watermark=1, records=[two, one]),
        FetchPartitionResponse(index=2, error_code=0, high_watermark=1, records=b"small"),
    )
    response = FetchResponse(topics=(FetchTopicResponse(name="hub", partitions=partitions),))

    chunks = writer_of(FetchResponse, version, flexible)(response, bytearray())

    assert [chunk for chunk in chunks if chunk is one or chunk is two] == [one, two, one]
    decoded = _decode(FetchResponse, version, flexible, b"".join(chunks))
    assert [partition.records for partition in decoded.topics[0].partitions] == [one, bytes(two) + one, b"small"]


def test_only_messages_with_records_are_read_as_views() -> None:
    """All other messages copy their values, so that the receive buffer can be used again."""
    names = {cls.__name__ for api in APIS.values() for cls in (api.request, api.response) if holds_records(cls)}

    assert names == {"ProduceRequest", "FetchResponse"}


# --- encoded before --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(METADATA.versions.low, METADATA.versions.high + 1))
def test_cached_topic_equals_an_encoded_one(version: int) -> None:
    """Large metadata is assembled from cached parts that seldom change."""
    flexible = METADATA.is_flexible(version)
    topic = any_message(MetadataTopic, version, Random(version))
    response = MetadataResponse(brokers=(), topics=(topic, topic))
    piece = encode_struct(MetadataTopic, version, flexible, topic)

    from_pieces = _encode(MetadataResponse, version, flexible, MetadataResponse(brokers=(), topics=(piece, topic)))

    assert from_pieces == _encode(MetadataResponse, version, flexible, response)


# --- tags ------------------------------------------------------------------------------------------------------------


def test_unknown_tag_in_a_body_is_ignored() -> None:
    """KIP-482: newer clients may send more fields."""
    known = _encode(HeartbeatRequest, 4, True, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    with_tag = known[:-1] + bytes.fromhex("01 2a 03 010203")

    request = _decode(HeartbeatRequest, 4, True, with_tag)

    assert request == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_unknown_tag_among_known_ones_is_ignored() -> None:
    """A struct with known tags skips unknown ones."""
    response = ApiVersionsResponse(error_code=0, api_keys=(), finalized_features_epoch=7)
    known = _encode(ApiVersionsResponse, 3, True, response)
    assert known.endswith(bytes.fromhex("01 01 08 0000000000000007"))

    with_tag = known.removesuffix(bytes.fromhex("01 01 08 0000000000000007")) + bytes.fromhex(
        "02 01 08 0000000000000007 63 01 ff"
    )

    assert _decode(ApiVersionsResponse, 3, True, with_tag) == response


@pytest.mark.parametrize("section", ["01 01 07 00000000000000", "01 01 09 000000000000000700", "01 01 ff"])
def test_tag_whose_size_is_not_that_of_its_field_is_refused(section: str) -> None:
    """A size that differs from the declared type would shift all later fields."""
    known = _encode(ApiVersionsResponse, 3, True, ApiVersionsResponse(error_code=0, api_keys=()))

    with pytest.raises(RemoteProtocolError):
        reader_of(ApiVersionsResponse, 3, True)(known[:-1] + bytes.fromhex(section), 0)


# --- lengths that lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["7fffffff", "00000100"])
def test_array_longer_than_its_message_is_refused_before_allocation(count: str) -> None:
    """A count is compared with the remaining bytes divided by the minimum size of an element."""
    wire = bytes.fromhex(count) + b"\x00\x01a" * 20

    with pytest.raises(RemoteProtocolError, match="topics"):
        reader_of(MetadataRequest, 1, False)(wire, 0)


def test_array_of_integers_longer_than_its_message_is_refused() -> None:
    """The same holds for arrays that are read at once."""
    wire = bytes.fromhex("0001 67 00000001 0001 74 7fffffff 00000000")

    with pytest.raises(RemoteProtocolError, match="array"):
        reader_of(OffsetFetchRequest, 1, False)(wire, 0)


def test_null_in_a_field_that_is_not_nullable_is_refused() -> None:
    """A member id is never null."""
    wire = bytes.fromhex("0001 67 00000001 ffff")

    with pytest.raises(RemoteProtocolError, match="member_id"):
        reader_of(HeartbeatRequest, 0, False)(wire, 0)


def test_text_that_is_not_utf8_is_refused() -> None:
    """Names are UTF-8."""
    wire = bytes.fromhex("0001 ff 00000001 0001 6d")

    with pytest.raises(RemoteProtocolError, match="HeartbeatRequest"):
        reader_of(HeartbeatRequest, 0, False)(wire, 0)


# --- our own mistakes ------------------------------------------------------------------------------------------------


def test_null_that_a_version_cannot_encode_is_an_error_of_ours() -> None:
    """JoinGroup can encode a missing protocol as null only from version 7 on."""
    response = JoinGroupResponse(error_code=25, protocol_name=None, leader="", member_id="", members=())

    with pytest.raises(LocalProtocolError, match="protocol_name"):
        _encode(JoinGroupResponse, 6, True, response)

    assert _encode(JoinGroupResponse, 7, True, response)


def test_number_that_does_not_fit_its_field_is_an_error_of_ours() -> None:
    """An int32 field refuses larger numbers."""
    request = HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m")

    with pytest.raises(LocalProtocolError, match="HeartbeatRequest"):
        _encode(HeartbeatRequest, 0, False, request)


# --- the classes themselves ------------------------------------------------------------------------------------------


def test_structs_compare_and_show_their_values() -> None:
    """Tests and logs need both."""
    topic = MetadataRequestTopic(name="hub", topic_id=UUID(int=5))
    something_else: object = MetadataTopic(error_code=0, name="hub", partitions=())

    assert topic == MetadataRequestTopic(name="hub", topic_id=UUID(int=5))
    assert topic != MetadataRequestTopic(name="hub")
    assert topic != something_else
    assert repr(topic) == f"MetadataRequestTopic(topic_id={UUID(int=5)!r}, name='hub')"


def test_field_of_a_later_version_needs_a_default() -> None:
    """Earlier versions need a value."""

    @struct
    class Late:
        name: str = wire(STRING)
        rack: str = wire(STRING, since=2)

    with pytest.raises(TypeError, match="rack"):
        reader_of(Late, 1, False)

    assert reader_of(Late, 2, False)(b"\x00\x01n\x00\x01r", 0)[0] == Late(name="n", rack="r")


def test_every_api_is_in_the_table_under_its_key() -> None:
    """The versions that librdkafka needs must be advertised (reference 2.3)."""
    must_contain = {
        0: (0, 3, 7),
        1: (4, 10),
        2: (1,),
        8: (2,),
        9: (1,),
        10: (0,),
        11: (0,),
        12: (0,),
        13: (0,),
        14: (0,),
    }

    assert all(api.key == key for key, api in APIS.items())
    for key, versions in must_contain.items():
        assert all(version in APIS[key].advertised for version in versions)
