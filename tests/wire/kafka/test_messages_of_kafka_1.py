"""Versions that Kafka 4 has removed and clients of Kafka 1.0 still send: bytes by hand, compared with kafka-python."""

import warnings
from typing import Any, cast

import pytest

from hubmere.wire.kafka.codegen import reader_of, writer_of
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.acls import (
    AclDescription,
    AclResource,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from hubmere.wire.kafka.messages.admin import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
    LogDirTopicResult,
)
from hubmere.wire.kafka.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.admin import DescribeLogDirsRequest as KafkaPythonLogDirs
    from kafka.protocol.old import admin as kafka_python

# The newest version that kafka-clients 1.0.0 sends of each API that it sends at all (KafkaConsumer, KafkaProducer,
# AdminClient); it asks for the highest that both sides know.
_SENT_BY_KAFKA_1_0 = {
    0: 5, 1: 6, 2: 2, 3: 5, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 17: 1, 18: 1, 19: 2, 20: 1,
    21: 0, 22: 0, 24: 0, 25: 0, 26: 0, 28: 0, 29: 0, 32: 0, 33: 0, 35: 0, 36: 0, 37: 0,
}  # fmt: skip

_CONFIGS = DescribeConfigsResponse(
    results=(
        DescribeConfigsResult(
            error_code=0,
            resource_type=2,
            resource_name="hub",
            configs=(DescribedConfig(name="a", value="1", read_only=True, is_default=True, is_sensitive=False),),
        ),
    )
)
_ACLS = DescribeAclsResponse(
    error_code=54,
    error_message="no",
    resources=(
        AclResource(
            resource_type=2,
            resource_name="hub",
            acls=(AclDescription(principal="p", host="*", operation=3, permission_type=3),),
        ),
    ),
)
_LOG_DIRS = DescribeLogDirsResponse(
    results=(
        LogDir(
            error_code=0,
            log_dir="d",
            topics=(LogDirTopicResult(name="hub", partitions=(LogDirPartition(index=1, size_bytes=9),)),),
        ),
    )
)
_MESSAGES: list[tuple[Any, Any, str]] = [
    (
        DescribeConfigsRequest(resources=(ConfigResource(resource_type=2, resource_name="hub"),)),
        kafka_python.DescribeConfigsRequest_v0,
        "00000001 02 0003 687562 ffffffff",
    ),
    (
        _CONFIGS,
        kafka_python.DescribeConfigsResponse_v0,
        "00000000 00000001 0000 ffff 02 0003 687562 00000001 0001 61 0001 31 01 01 00",
    ),
    (
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        kafka_python.DescribeAclsRequest_v0,
        "01 ffff ffff ffff 01 01",
    ),
    (
        _ACLS,
        kafka_python.DescribeAclsResponse_v0,
        "00000000 0036 0002 6e6f 00000001 02 0003 687562 00000001 0001 70 0001 2a 03 03",
    ),
    (
        _LOG_DIRS,
        kafka_python.DescribeLogDirsResponse_v0,
        "00000000 00000001 0000 0001 64 00000001 0003 687562 00000001 00000001 0000000000000009 0000000000000000 00",
    ),
]


@pytest.mark.parametrize(("message", "theirs", "wire"), _MESSAGES, ids=lambda value: type(value).__name__)
def test_version_0_has_the_bytes_of_the_specification(message: Any, theirs: Any, wire: str) -> None:
    """The bytes are written, read back, and read completely by another implementation."""
    expected, kind = bytes.fromhex(wire), cast("type", type(message))

    written = b"".join(writer_of(kind, 0, False)(message, bytearray()))
    read, end = reader_of(kind, 0, False)(expected, 0)

    assert written == expected
    assert (read, end) == (message, len(expected))
    assert theirs.decode(expected).encode() == expected


def test_version_0_of_describe_log_dirs_has_the_bytes_of_the_specification() -> None:
    """Another codec of kafka-python is used: its older one reads one partition instead of a list."""
    message = DescribeLogDirsRequest(topics=(LogDirTopic(name="hub", partitions=(1, 2)),))

    written = b"".join(writer_of(DescribeLogDirsRequest, 0, False)(message, bytearray()))

    assert written == bytes.fromhex("00000001 0003 687562 00000002 00000001 00000002")
    assert KafkaPythonLogDirs.decode(written, version=0).to_dict() == {
        "topics": [{"topic": "hub", "partitions": [1, 2]}]
    }


@pytest.mark.parametrize(("key", "version"), _SENT_BY_KAFKA_1_0.items())
def test_every_request_of_kafka_clients_1_0_is_served(key: int, version: int) -> None:
    """The highest version that it knows is one of ours, so there is one that both know."""
    served = APIS[key].versions

    assert served.low <= version <= served.high
