"""Which entries of a topic's configuration are accepted, and which are refused."""

from dataclasses import replace

import pytest

from hubmere.endpoints.kafka.admin.configs import INERT, TOPIC_ENTRIES, Defaults, apply_entry, topic_configs
from hubmere.model.entity import Hub, Retention
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import hub_name, namespace_name
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Limits
from hubmere.wire.kafka.messages.configs import ConfigSource

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


def test_every_entry_of_kafka_is_known() -> None:
    """MirrorMaker resets entries that have their default at the source; an unknown one would fail the others."""
    assert not set(_OF_KAFKA) - TOPIC_ENTRIES.keys() - INERT.keys()


@pytest.mark.parametrize("name", sorted(INERT))
def test_entry_without_a_meaning_here_is_accepted_and_ignored(name: str) -> None:
    """No client can notice a difference."""
    apply_entries = HubSpec(partition_count=2)

    assert apply_entry(apply_entries, name, "1", Limits()) == apply_entries


def test_unknown_entry_is_refused() -> None:
    """A misspelt entry must not look effective."""
    with pytest.raises(InvalidArgument, match=r"retention\.weeks"):
        apply_entry(HubSpec(), "retention.weeks", "1", Limits())


@pytest.mark.parametrize("name", sorted(TOPIC_ENTRIES))
def test_reset_of_an_entry_is_accepted(name: str) -> None:
    """This holds for every entry: null means the default."""
    assert apply_entry(HubSpec(), name, None, Limits()).retention_hours is None


@pytest.mark.parametrize("name", [entry.name for entry in TOPIC_ENTRIES.values() if entry.change is None])
def test_fixed_entry_is_accepted_only_with_its_own_value(name: str) -> None:
    """An accepted entry is in effect."""
    defaults = Defaults(limits=Limits(), segment_bytes=1 << 28)
    (shown,) = topic_configs(a_hub(), defaults, [name])

    assert apply_entry(HubSpec(), name, shown.value, Limits()) == HubSpec()
    with pytest.raises(InvalidArgument, match="fixed here"):
        apply_entry(HubSpec(), name, "12345", Limits())


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("max.message.bytes", "1000", "max_message_bytes", 1000),
        ("retention.bytes", "5000000", "retention_bytes", 5_000_000),
        ("retention.bytes", "-1", "retention_bytes", None),
        ("segment.bytes", "1048576", "segment_bytes", 1_048_576),
        ("segment.ms", "60000", "segment_ms", 60_000),
        ("max.compaction.lag.ms", "60000", "max_compaction_lag_ms", 60_000),
        ("max.compaction.lag.ms", str(2**63 - 1), "max_compaction_lag_ms", None),
    ],
)
def test_entry_becomes_a_setting_and_is_shown(name: str, text: str, field: str, value: int | None) -> None:
    """It is described as given, and marked as set on the topic unless it equals the default."""
    apply_entries = apply_entry(HubSpec(), name, text, Limits())
    assert apply_entries.log_settings is not None

    hub = replace(a_hub(), log_settings=apply_entries.log_settings)
    (shown,) = topic_configs(hub, Defaults(limits=Limits(), segment_bytes=1 << 28), [name])

    assert getattr(apply_entries.log_settings, field) == value
    assert (shown.value, shown.source is ConfigSource.TOPIC) == (text, value is not None)


@pytest.mark.parametrize("name", ["max.message.bytes", "retention.bytes", "segment.bytes", "segment.ms"])
def test_entry_that_is_not_a_number_is_refused(name: str) -> None:
    """The error names the expected value."""
    with pytest.raises(InvalidArgument, match="a whole number"):
        apply_entry(HubSpec(), name, "many", Limits())


def test_default_segment_age_is_described() -> None:
    """It is a tenth of the retention, so that events are deleted in time, and at most a day."""
    defaults = Defaults(limits=Limits(), segment_bytes=1 << 28)
    ages = [
        topic_configs(replace(a_hub(), retention=Retention(hours=hours)), defaults, ["segment.ms"])[0].value
        for hours in (10, 1000)
    ]

    assert ages == ["3600000", "86400000"]


def a_hub() -> Hub:
    return Hub(namespace=namespace_name("hubmere"), name=hub_name("orders"), uid="u", topic_id="t")
