"""Log settings of a topic are effective, described, and the same after a restart."""

from pathlib import Path
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_produce, only
from endpoints.kafka.test_admin import alter, configs_of, create
from hubmere.model.clock import SystemClock
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import CreatableTopic, TopicConfig
from hubmere.wire.kafka.messages.configs import ConfigOperation, ConfigSource

_MIB = 1024 * 1024
_SET, _RESET = ConfigOperation.SET, ConfigOperation.DELETE


class SetClock(SystemClock):
    """The machine's time plus an offset that the test sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def a_topic_with(entries: dict[str, str], name: str = "fresh") -> CreatableTopic:
    configs = tuple(TopicConfig(name=key, value=value) for key, value in entries.items())
    return CreatableTopic(name=name, num_partitions=1, replication_factor=-1, configs=configs)


def produce(client: RawClient, size_bytes: int = 100, topic: str = "fresh") -> Any:
    return only(client.call(a_produce(a_batch(bytes(size_bytes), key=b"k"), topic=topic), 9))


def segments(data: Path, node: KafkaNode, topic: str = "fresh") -> int:
    """The number of segment files of the first partition."""
    uid = node.hub(topic).entity.uid
    (folder,) = {path.parent for path in data.rglob("*.log") if uid in str(path) and path.parent.name.endswith("0")}
    return len(list(folder.glob("*.log")))


def test_max_message_bytes_of_the_topic_applies(client: RawClient) -> None:
    """It applies to every batch after the response."""
    create(client, a_topic_with({"max.message.bytes": "1000"}))

    before = [(answer := produce(client, size)).error_code for size in (500, 2000)]
    assert "the Kafka setting max.message.bytes of the event hub" in str(answer.error_message)
    alter(client, ("max.message.bytes", _SET, "3000"), name="fresh")
    after = [produce(client, size).error_code for size in (2000, 4000)]
    alter(client, ("max.message.bytes", _RESET, None), name="fresh")
    default = produce(client, 4000).error_code

    assert before == after == [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]
    assert default == ErrorCode.NONE


def test_max_message_bytes_applies_to_runs_of_small_requests(client: RawClient) -> None:
    """Many requests of one read are published together."""
    create(client, a_topic_with({"max.message.bytes": "1000"}))
    produce(client)

    for size in (100, 100, 2000, 100):
        client.engine.request(a_produce(a_batch(bytes(size), key=b"k"), topic="fresh"), 9)
    client.socket.sendall(b"".join(client.engine.data_to_send()))

    codes = [only(client.answer()).error_code for _ in range(4)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]


def test_max_message_bytes_above_the_limit_of_the_tier_is_refused(client: RawClient) -> None:
    """The error names the largest allowed value."""
    (made,) = create(client, a_topic_with({"max.message.bytes": str(_MIB + 1)}))

    assert made.error_code == ErrorCode.INVALID_CONFIG
    assert str(_MIB) in made.error_message


def test_defaults_of_kafka_are_accepted(client: RawClient) -> None:
    """MirrorMaker creates topics with all defaults of the source, also those of Kafka 3."""
    given = {"max.message.bytes": "1048588", "message.timestamp.after.max.ms": str(2**63 - 1)}

    (made,) = create(client, a_topic_with(given))

    shown = configs_of(client, "fresh")
    assert made.error_code == ErrorCode.NONE
    assert shown["max.message.bytes"].value == str(_MIB)
    assert shown["message.timestamp.after.max.ms"].value == "3600000"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "1000"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "999"),
        ("retention.bytes", "-2"),
        ("max.message.bytes", "-1"),
        ("max.compaction.lag.ms", "0"),
    ],
)
def test_value_out_of_range_is_refused(client: RawClient, name: str, value: str) -> None:
    """The current value does not change."""
    before = configs_of(client, "orders")[name].value

    answer = alter(client, (name, _SET, value))

    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert configs_of(client, "orders")[name].value == before


def test_oldest_segments_are_deleted_when_a_log_exceeds_retention_bytes(tmp_path: Path) -> None:
    """`retention.bytes` is for each partition, in whole segments."""
    entries = {"retention.bytes": str(2 * _MIB), "segment.bytes": str(_MIB)}
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        create(client.sign_in(), a_topic_with(entries))
        for _ in range(8):
            assert produce(client, 600_000).error_code == ErrorCode.NONE

        log = node.hub("fresh").log(0)
        dropped = node.call(lambda: log.apply_retention(SystemClock().now_ms()))
        state = node.call(lambda: log.state)

    assert dropped > 0
    assert 2 * _MIB <= state.size_bytes < 3 * _MIB
    assert (state.log_start > 0, state.committed) == (True, 8)


def test_segment_bytes_of_the_topic_applies(tmp_path: Path) -> None:
    """The node's default is much larger."""
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        create(client.sign_in(), a_topic_with({"segment.bytes": str(_MIB)}), a_topic_with({}, "plain"))
        for _ in range(3):
            produce(client, 600_000)
            produce(client, 600_000, topic="plain")

        assert (segments(tmp_path, node), segments(tmp_path, node, "plain")) == (3, 1)


def test_segment_ms_of_the_topic_applies(tmp_path: Path) -> None:
    """An older segment is closed by the next batch."""
    clock = SetClock()
    with KafkaNode(data=tmp_path, clock=clock) as node, RawClient(node) as client:
        create(client.sign_in(), a_topic_with({"segment.ms": "60000"}), a_topic_with({}, "plain"))
        for _ in range(3):
            produce(client)
            produce(client, topic="plain")
            clock.ahead_ms += 61_000

        assert (segments(tmp_path, node), segments(tmp_path, node, "plain")) == (3, 1)


def test_max_compaction_lag_closes_segments_of_compacted_topics(tmp_path: Path) -> None:
    """Only a closed segment can be compacted, so it must not stay open for longer than the lag."""
    clock = SetClock()
    entries = {"cleanup.policy": "compact", "max.compaction.lag.ms": "60000"}
    with KafkaNode(data=tmp_path, clock=clock) as node, RawClient(node) as client:
        create(client.sign_in(), a_topic_with(entries))
        produce(client)
        clock.ahead_ms += 61_000
        produce(client)

        assert segments(tmp_path, node) == 2
        assert configs_of(client, "fresh")["segment.ms"].value == str(24 * 3_600_000)


def test_log_settings_are_described_and_survive_a_restart(tmp_path: Path) -> None:
    """A change of another entry does not change them."""
    given = {
        "max.message.bytes": "1000",
        "retention.bytes": "5000000",
        "segment.bytes": str(_MIB),
        "segment.ms": "60000",
        "max.compaction.lag.ms": "120000",
    }
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        create(client.sign_in(), a_topic_with(given))
        alter(client, ("retention.ms", _SET, "7200000"), name="fresh")
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        shown = configs_of(client.sign_in(), "fresh")
        too_large = produce(client, 2000)

    assert {name: shown[name].value for name in given} == given
    assert {shown[name].config_source for name in given} == {ConfigSource.TOPIC}
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_larger_message_is_accepted_in_a_larger_tier() -> None:
    """The limit is that of the tier."""
    with KafkaNode(book=LimitsBook(profile=Profile.UNLIMITED)) as node, RawClient(node) as client:
        (made,) = create(client.sign_in(), a_topic_with({"max.message.bytes": str(20 * _MIB)}))

        assert made.error_code == ErrorCode.NONE
        assert configs_of(client, "fresh")["max.message.bytes"].value == str(20 * _MIB)
