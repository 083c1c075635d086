"""The handler of DescribeLogDirs on a cluster: all brokers are asked for the sizes of their copies.

A client sees one node, as everywhere. The size of a partition is that of its largest copy: a copy that is catching up
is smaller.
"""

from collections.abc import Mapping
from typing import Final

from hubmere.endpoints.kafka.admin.inspection import managed_hubs, wanted_partitions
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.forward.forwarded import ForwardedRequest, forwarded_handler
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
    LogDirTopicResult,
)


async def _describe(forwarded: ForwardedRequest) -> object:
    session = forwarded.session
    hubs = managed_hubs(session)
    wanted = {
        name: tuple(index for index in indexes if 0 <= index < hubs[name].entity.partition_count)
        for name, indexes in wanted_partitions(forwarded.body, hubs).items()
    }
    names = {name: forwarded.port.topic_of(hubs[name].uid) for name in wanted}
    sizes = await _sizes(forwarded, {names[name]: indexes for name, indexes in wanted.items()})
    topics = tuple(
        LogDirTopicResult(
            name=name,
            partitions=tuple(
                LogDirPartition(index=index, size_bytes=sizes.get((names[name], index), 0)) for index in indexes
            ),
        )
        for name, indexes in wanted.items()
    )
    folder = LogDir(error_code=ErrorCode.NONE, log_dir=session.namespace.entity.name, topics=topics)
    return DescribeLogDirsResponse(results=(folder,))


async def _sizes(forwarded: ForwardedRequest, wanted: Mapping[str, tuple[int, ...]]) -> dict[tuple[str, int], int]:
    """The size of each partition's largest copy; none for a topic that is not created yet."""
    sizes: dict[tuple[str, int], int] = {}
    if not wanted:
        return sizes
    asked = tuple(LogDirTopic(name=topic, partitions=indexes) for topic, indexes in wanted.items())
    for answer in await forwarded.port.ask_all(DescribeLogDirsRequest(topics=asked), forwarded.version):
        for topic in (topic for folder in answer.results for topic in folder.topics):
            for part in topic.partitions:
                place = (topic.name, part.index)
                sizes[place] = max(sizes.get(place, 0), part.size_bytes)
    return sizes


HANDLERS: Final[Mapping[int, Handler]] = {
    DESCRIBE_LOG_DIRS.key: forwarded_handler(
        _describe, lambda _, code: DescribeLogDirsResponse(error_code=code, results=()), needs=None
    ),
}
