"""Every message in every version, compared with PyPI kio, a codec generated from Kafka's definitions."""

import dataclasses
import importlib
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from hubmere.wire.kafka.codegen import reader_of, writer_of
from hubmere.wire.kafka.messages.fetch import PRIVATE_TAGS
from hubmere.wire.kafka.schema import Api, wire_fields
from wire.kafka.builders import any_message, every_message, message_id

# Values for each message and version; the builder mixes limits and nulls into each of them.
_CASES = 4

# kio has the versions of Kafka 4; older ones are compared with kafka-python (test_messages_of_kafka_1).
_DROPPED_BY_KAFKA_4 = {("DescribeAcls", 0), ("DescribeConfigs", 0), ("DescribeLogDirs", 0)}
_MESSAGES = [
    (api, version, cls) for api, version, cls in every_message() if (api.name, version) not in _DROPPED_BY_KAFKA_4
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Fields whose names differ from Kafka's: units are in the name, and the name of the struct is not repeated.
_OUR_NAMES = {
    "topic_data": "topics",
    "partition_data": "partitions",
    "partition_responses": "partitions",
    "batch_index_error_message": "message",
    "partition": "index",
    "partition_index": "index",
    "partition_max_bytes": "max_bytes",
    "forgotten_topics_data": "forgotten_topics",
    "topic": "name",
    "responses": "topics",
    "groups_names": "group_ids",
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_topics": "topics",
    "results_by_topic_v3_and_below": "topics",
    "results_by_partition": "partitions",
    "partition_error_code": "error_code",
    "partition_size": "size_bytes",
}


@cache
def _kio_type(api: Api, version: int, direction: str) -> Any:
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{direction}")
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and value.__module__ == module.__name__
        and getattr(value, "__type__", EntityType.nested) is not EntityType.nested
    )
    return found


def _assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Compare field by field in wire order, so that two neighbours of the same type cannot be swapped unnoticed."""
    our_fields = [
        spec
        for spec in wire_fields(type(ours))
        if spec.is_in(version) and (spec.tag is None or spec.tag < PRIVATE_TAGS)
    ]
    their_fields = dataclasses.fields(theirs)
    assert len(our_fields) == len(their_fields)
    for spec, their_field in zip(our_fields, their_fields, strict=True):
        assert _is_same_name(spec.name, their_field.name), (spec.name, their_field.name)
        _assert_same_value(getattr(ours, spec.name), getattr(theirs, their_field.name), version)


def _is_same_name(our_name: str, their_name: str) -> bool:
    plain = our_name.removesuffix("_ms")
    return plain in (their_name, their_name.removesuffix("_ms"), _OUR_NAMES.get(their_name))


def _assert_same_value(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            _assert_same_value(our_item, their_item, version)
    elif dataclasses.is_dataclass(ours):
        _assert_same(ours, theirs, version)
    elif ours is None and dataclasses.is_dataclass(theirs):
        assert all(getattr(theirs, field.name) == field.default for field in dataclasses.fields(theirs))
    else:
        assert _plain(ours) == _plain(theirs)


def _plain(value: Any) -> Any:
    """Normalizes values that the two codecs represent differently: times, the zero UUID, the absent time, views."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round((value - _EPOCH) / timedelta(milliseconds=1))
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, UUID):
        return value if value.int else None
    return value


@pytest.mark.parametrize(("api", "version", "cls"), _MESSAGES, ids=message_id)
@pytest.mark.parametrize("seed", range(_CASES))
def test_message_reads_and_writes_as_in_kio(api: Api, version: int, cls: type, seed: int) -> None:
    """Two independent codecs agree on every byte and on the meaning of every field."""
    ours = any_message(cls, version, Random(f"{cls.__name__} {version} {seed}"))
    theirs = _kio_type(api, version, "request" if cls is api.request else "response")
    flexible = api.is_flexible(version)

    wire = b"".join(writer_of(cls, version, flexible)(ours, bytearray()))
    their_value, their_size = entity_reader(theirs)(wire, 0)
    their_wire = BytesIO()
    entity_writer(theirs)(their_wire, their_value)
    our_value, our_end = reader_of(cls, version, flexible)(their_wire.getvalue(), 0)

    assert their_size == len(wire)
    _assert_same(ours, their_value, version)
    assert our_end == len(their_wire.getvalue())
    _assert_same(our_value, their_value, version)


@pytest.mark.parametrize(("api", "version", "cls"), _MESSAGES, ids=message_id)
def test_flexibility_and_headers_are_those_of_kio(api: Api, version: int, cls: type) -> None:
    """A header of the wrong version would shift all later fields."""
    theirs = _kio_type(api, version, "request" if cls is api.request else "response")

    header = 1 + api.is_flexible(version) if cls is api.request else api.response_header_version(version)

    assert theirs.__flexible__ is api.is_flexible(version)
    assert theirs.__header_schema__.__version__ == header
    assert theirs.__api_key__ == api.key
