"""Which entries of a topic's configuration are taken, and which are a mistake."""

import pytest

from hubmere.endpoints.kafka.configs import IGNORED, TOPIC_ENTRIES, changed
from hubmere.model.errors import InvalidArgument
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Limits

# Every entry that DescribeConfigs of Apache Kafka 4.3 shows of a topic.
_OF_KAFKA = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.downconversion.enable",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


def test_every_entry_of_kafka_is_taken() -> None:
    """MirrorMaker copies a topic with all its entries; one that is refused would keep the others from being copied."""
    assert not set(_OF_KAFKA) - TOPIC_ENTRIES.keys() - IGNORED


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_entry_without_a_meaning_here_changes_nothing(name: str) -> None:
    """It is no mistake either."""
    wish = HubSpec(partition_count=2)

    assert changed(wish, name, "1", Limits()) == wish


def test_unknown_entry_is_refused() -> None:
    """A misspelt entry must not look as if it had an effect."""
    with pytest.raises(InvalidArgument, match=r"retention\.weeks"):
        changed(HubSpec(), "retention.weeks", "1", Limits())
