"""Administration of topics and their configuration over Kafka, mapped to hubs and the limits of the tier."""

from typing import Any
from uuid import UUID

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from hubmere.endpoints.kafka.admin.configs import INERT, TOPIC_ENTRIES
from hubmere.model.entity import CleanupPolicy, TimestampType
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletableTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    GrowingTopic,
    ReplicaAssignment,
    TopicConfig,
)
from hubmere.wire.kafka.messages.configs import (
    AlterConfigsRequest,
    ChangedConfig,
    ChangedResource,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ReplacedConfig,
    ReplacedResource,
    ResourceType,
)
from hubmere.wire.kafka.messages.metadata import MetadataRequest

_DAY_MS = 24 * 3_600_000


def a_topic(name: str = "fresh", *, partitions: int = 3, **configs: str) -> CreatableTopic:
    entries = tuple(TopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items())
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=entries)


def create(client: RawClient, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    return client.call(CreateTopicsRequest(topics=topics, validate_only=validate_only), version).topics


def configs_of(client: RawClient, name: str, *keys: str, kind: int = ResourceType.TOPIC) -> dict[str, Any]:
    resource = ConfigResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    result = client.call(DescribeConfigsRequest(resources=(resource,)), 4).results[0]
    assert result.error_code == ErrorCode.NONE
    return {entry.name: entry for entry in result.configs}


# --- CreateTopics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create_topics_creates_a_topic(node: KafkaNode, client: RawClient, version: int) -> None:
    """It can be written as soon as the request is answered."""
    made = create(client, a_topic(), version=version)[0]

    assert (made.error_code, made.name) == (ErrorCode.NONE, "fresh")
    assert made.num_partitions == (3 if version >= 5 else -1)
    assert node.hub("fresh").entity.partition_count == 3
    assert only(client.call(a_produce(a_batch(b"x"), topic="fresh", partition=2), 9)).error_code == ErrorCode.NONE
    if version >= 7:
        assert made.topic_id == UUID(node.hub("fresh").entity.topic_id)


def test_configuration_becomes_settings_of_the_hub(node: KafkaNode, client: RawClient) -> None:
    """Reference 1.7: these are the settings that Kafka Streams uses for its windowed stores."""
    create(
        client,
        a_topic(
            cleanup_policy="compact,delete",
            retention_ms=str(2 * _DAY_MS + 1),
            delete_retention_ms="7200000",
            min_compaction_lag_ms="60001",
            message_timestamp_type="CreateTime",
            segment_bytes="2000000",
        ),
    )

    entity = node.hub("fresh").entity
    assert entity.retention.policy is CleanupPolicy.DELETE_OR_COMPACT
    assert (entity.retention.hours, entity.retention.tombstone_hours) == (49, 2)
    assert entity.retention.min_compaction_lag_minutes == 2
    assert entity.timestamp_type is TimestampType.CREATE


@pytest.mark.parametrize(("retention_ms", "hours"), [("-1", 7 * 24), ("1", 1), ("0", 1), (str(3 * _DAY_MS), 72)])
def test_retention_is_rounded_up_to_whole_hours(
    node: KafkaNode, client: RawClient, retention_ms: str, hours: int
) -> None:
    """Nothing is deleted early; an unlimited retention becomes the longest of the tier."""
    made = create(client, a_topic(retention_ms=retention_ms))[0]

    assert made.error_code == ErrorCode.NONE
    assert node.hub("fresh").entity.retention.hours == hours


def test_topics_of_connect_have_exactly_the_compact_policy(client: RawClient) -> None:
    """Reference 2.4: a distributed worker aborts its start unless the policy is exactly this."""
    create(client, a_topic("connect-offsets", partitions=25, cleanup_policy="compact", retention_ms="604800000"))

    shown = configs_of(client, "connect-offsets")

    assert shown["cleanup.policy"].value == "compact"
    assert shown["retention.ms"].value == "-1"


def test_topic_with_one_partition_is_refused_in_a_tier_with_a_minimum_of_two() -> None:
    """`--as standard` has the service's limits of 2 to 32 partitions; a node has no minimum by default."""
    with KafkaNode(book=LimitsBook(profile=Profile.STANDARD)) as node, RawClient(node) as client:
        client.sign_in()

        one, two = (create(client, a_topic(f"new-{count}", partitions=count))[0] for count in (1, 2))

    assert one.error_code == ErrorCode.INVALID_PARTITIONS
    assert "at least 2" in one.error_message
    assert two.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (a_topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (a_topic("ORDERS"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (a_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (a_topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (a_topic(partitions=33), ErrorCode.POLICY_VIOLATION),
        (a_topic(made_up="1"), ErrorCode.INVALID_CONFIG),
        (a_topic(retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (a_topic(retention_ms=str(100 * _DAY_MS)), ErrorCode.INVALID_CONFIG),
        (a_topic(cleanup_policy="shred"), ErrorCode.INVALID_CONFIG),
        (a_topic(message_timestamp_type="Never"), ErrorCode.INVALID_CONFIG),
        (a_topic(delete_retention_ms="-5"), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_topic_is_refused_with_its_code(
    client: RawClient, topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    """Reference 1.7: the result is the same with and without validate_only; the text names the valid values."""
    made = create(client, topic, validate_only=validate_only)[0]

    assert made.error_code == code
    assert made.error_message


def test_validate_only_creates_nothing(client: RawClient) -> None:
    """The answer describes the topic that would be created."""
    made = create(client, a_topic(), validate_only=True)[0]

    assert (made.error_code, made.num_partitions) == (ErrorCode.NONE, 3)
    assert [topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics] == ["orders"]


def test_replica_assignment_only_sets_the_number_of_partitions(node: KafkaNode, client: RawClient) -> None:
    """Some tools assign every replica explicitly."""
    assignments = tuple(ReplicaAssignment(partition_index=index, broker_ids=(0,)) for index in range(5))
    topic = CreatableTopic(name="placed", num_partitions=-1, replication_factor=-1, assignments=assignments)

    create(client, topic)

    assert node.hub("placed").entity.partition_count == 5


def test_number_of_partitions_may_be_the_default_of_the_node(node: KafkaNode, client: RawClient) -> None:
    """KIP-464."""
    assert create(client, a_topic(partitions=-1))[0].num_partitions == 2


# --- DeleteTopics, CreatePartitions, DeleteRecords -------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_of_delete_topics_deletes_a_topic(client: RawClient, version: int) -> None:
    """Its events are deleted: a new topic with the name is empty."""
    client.call(a_produce(a_batch(b"old")), 9)
    request = DeleteTopicsRequest(
        topics=(DeletableTopic(name="orders"), DeletableTopic(name="missing")),
        topic_names=("orders", "missing"),
        timeout_ms=1000,
    )

    results = client.call(request, version).responses
    create(client, a_topic("orders", partitions=1))

    assert [(one.name, one.error_code) for one in results] == [
        ("orders", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert only(client.call(a_fetch(), 11)).high_watermark == 0


def test_topic_is_deleted_by_its_id(node: KafkaNode, client: RawClient) -> None:
    """KIP-516: a topic that was created again cannot be deleted by mistake."""
    ids = (UUID(node.hub().entity.topic_id), UUID(int=5))
    topics = tuple(DeletableTopic(name=None, topic_id=topic_id) for topic_id in ids)

    results = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses

    assert [one.error_code for one in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def grow(client: RawClient, count: int, *, name: str = "orders", validate_only: bool = False) -> Any:
    topics = (GrowingTopic(name=name, count=count),)
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    return client.call(request, 3).results[0]


def test_partitions_can_be_added_if_the_tier_allows_it() -> None:
    """Reference 1.3: Premium and higher tiers allow it."""
    with KafkaNode(book=LimitsBook(profile=Profile.PREMIUM)) as node, RawClient(node) as client:
        client.sign_in()

        codes = [grow(client, count).error_code for count in (1, 2, 5, 101)]
        rehearsed = grow(client, 9, validate_only=True)

        assert codes == [
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.NONE,
            ErrorCode.POLICY_VIOLATION,
        ]
        assert rehearsed.error_code == ErrorCode.NONE
        assert node.hub().entity.partition_count == 5
        assert only(client.call(a_produce(a_batch(b"x"), partition=4), 9)).error_code == ErrorCode.NONE


def test_partitions_cannot_be_added_in_the_standard_tier(client: RawClient) -> None:
    """The rule is that of the service, the error code that of Kafka."""
    assert grow(client, 5).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(client, 5, name="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("offset", "start", "code"),
    [
        (2, 2, ErrorCode.NONE),
        (-1, 3, ErrorCode.NONE),
        (9, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-(2**63), -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_delete_records_moves_the_log_start_offset(client: RawClient, offset: int, start: int, code: ErrorCode) -> None:
    """Kafka Streams deletes records that it has repartitioned."""
    client.call(a_produce(a_batch(b"a", b"b", b"c")), 9)

    result = trim(client, offset)

    assert (result.low_watermark, result.error_code) == (start, code)
    assert only(client.call(a_fetch(3), 11)).log_start_offset == max(start, 0)


def trim(client: RawClient, offset: int, *, topic: str = "orders") -> Any:
    wanted = DeleteRecordsTopic(name=topic, partitions=(DeleteRecordsPartition(index=0, offset=offset),))
    return only(client.call(DeleteRecordsRequest(topics=(wanted,), timeout_ms=1000), 2))


@pytest.mark.parametrize(
    ("profile", "policy", "code"),
    [
        (Profile.STANDARD, CleanupPolicy.DELETE, ErrorCode.UNSUPPORTED_VERSION),
        (Profile.STANDARD, CleanupPolicy.DELETE_OR_COMPACT, ErrorCode.NONE),
        (Profile.PREMIUM, CleanupPolicy.DELETE, ErrorCode.NONE),
        (Profile.UNLIMITED, CleanupPolicy.DELETE, ErrorCode.NONE),
        (Profile.DEVELOPER, CleanupPolicy.DELETE, ErrorCode.NONE),
        (Profile.DEVELOPER, CleanupPolicy.COMPACT, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_records_can_be_deleted_if_tier_and_policy_allow_it(
    profile: Profile, policy: CleanupPolicy, code: ErrorCode
) -> None:
    """The standard service has no DeleteRecords, and Kafka refuses it for topics that are only compacted."""
    spec = HubSpec(partition_count=2, cleanup_policy=policy)
    with KafkaNode({"orders": spec}, book=LimitsBook(profile=profile)) as node, RawClient(node) as client:
        client.sign_in().call(a_produce(a_batch(b"a", b"b", key=b"k")), 9)

        result = trim(client, 1)

        assert (result.error_code, result.low_watermark) == (code, -1 if code else 1)
        assert only(client.call(a_fetch(2), 11)).log_start_offset == (0 if code else 1)


# --- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_describe_configs_returns_every_entry(client: RawClient, version: int) -> None:
    """Reference pitfall 20: null and an empty list both mean all entries."""
    for keys in (None, ()):
        resource = ConfigResource(resource_type=2, resource_name="orders", configuration_keys=keys)
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
        shown = client.call(request, version).results[0].configs

        assert {entry.name for entry in shown} == set(TOPIC_ENTRIES)
        assert all(entry.synonyms for entry in shown) is (version >= 1)
        assert all(entry.is_default for entry in shown) is (version == 0)


def test_values_that_differ_from_the_default_are_marked_as_set_on_the_topic(client: RawClient) -> None:
    """MirrorMaker copies only those."""
    create(client, a_topic(retention_ms=str(_DAY_MS)))

    shown = configs_of(client, "fresh", "retention.ms", "cleanup.policy")

    assert {name: (entry.value, entry.config_source) for name, entry in shown.items()} == {
        "retention.ms": (str(_DAY_MS), ConfigSource.TOPIC),
        "cleanup.policy": ("delete", ConfigSource.DEFAULT),
    }


def test_configuration_of_the_broker_has_the_entries_that_tools_need(client: RawClient) -> None:
    """Reference 2.14."""
    shown = configs_of(client, "0", kind=ResourceType.BROKER)

    assert shown["num.partitions"].value == "2"
    assert shown["auto.create.topics.enable"].value == "true"
    assert all(entry.read_only for entry in shown.values())


@pytest.mark.parametrize(("kind", "name"), [(2, "missing"), (4, "7"), (8, "0")])
def test_configuration_of_an_unknown_resource_is_refused(client: RawClient, kind: int, name: str) -> None:
    """The error applies to that resource only."""
    resource = ConfigResource(resource_type=kind, resource_name=name)

    result = client.call(DescribeConfigsRequest(resources=(resource,)), 4).results[0]

    assert result.error_code != ErrorCode.NONE
    assert result.configs == ()


def alter(client: RawClient, *entries: tuple[str, int, str | None], kind: int = 2, name: str = "orders") -> Any:
    changes = tuple(ChangedConfig(name=key, config_operation=how, value=value) for key, how, value in entries)
    resource = ChangedResource(resource_type=kind, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return client.call(request, 1).responses[0]


_SET, _RESET = ConfigOperation.SET, ConfigOperation.DELETE


def test_single_entries_can_be_changed_and_reset(node: KafkaNode, client: RawClient) -> None:
    """KIP-339: other entries do not change."""
    alter(client, ("retention.ms", _SET, str(_DAY_MS)), ("delete.retention.ms", _SET, "3600000"))
    first = node.hub().entity.retention
    alter(client, ("retention.ms", _RESET, None), ("flush.ms", _SET, "1"))
    second = node.hub().entity.retention

    assert (first.hours, first.tombstone_hours) == (24, 1)
    assert (second.hours, second.tombstone_hours) == (7 * 24, 1)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (("made.up", _SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", ConfigOperation.APPEND, "compact"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", ConfigOperation.APPEND, "delete"), ErrorCode.NONE),
        (("cleanup.policy", ConfigOperation.SUBTRACT, "compact"), ErrorCode.NONE),
        (("cleanup.policy", 9, "compact"), ErrorCode.INVALID_CONFIG),
        (("segment.bytes", _SET, "12345678"), ErrorCode.NONE),
        (("flush.messages", _SET, "1"), ErrorCode.NONE),
        (("compression.type", _SET, "producer"), ErrorCode.NONE),
        (("compression.type", _SET, "zstd"), ErrorCode.INVALID_CONFIG),
        (("compression.type", _RESET, None), ErrorCode.NONE),
        (("min.insync.replicas", _SET, "2"), ErrorCode.INVALID_CONFIG),
        (("remote.storage.enable", _SET, "true"), ErrorCode.INVALID_CONFIG),
        (("message.timestamp.after.max.ms", _SET, "3600000"), ErrorCode.NONE),
        (("message.timestamp.after.max.ms", _SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_only_changeable_entries_are_changed(
    client: RawClient, entry: tuple[str, int, str | None], code: ErrorCode
) -> None:
    """The policy of a hub is fixed at its creation; fixed entries are accepted with their current value."""
    assert alter(client, entry).error_code == code


def test_configuration_of_the_broker_cannot_be_changed(client: RawClient) -> None:
    """The node has its own settings."""
    assert alter(client, ("num.partitions", _SET, "9"), kind=4, name="0").error_code == ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_the_whole_configuration(node: KafkaNode, client: RawClient) -> None:
    """In this older request, entries that are not named get their defaults."""
    alter(client, ("delete.retention.ms", _SET, "3600000"))
    entries = (ReplacedConfig(name="retention.ms", value=str(_DAY_MS)),)
    resource = ReplacedResource(resource_type=2, resource_name="orders", configs=entries)

    result = client.call(AlterConfigsRequest(resources=(resource,), validate_only=False), 2).responses[0]

    retention = node.hub().entity.retention
    assert result.error_code == ErrorCode.NONE
    assert (retention.hours, retention.tombstone_hours) == (24, 24)


def test_no_entry_is_both_supported_and_ignored() -> None:
    """Each entry has one meaning."""
    assert not INERT.keys() & TOPIC_ENTRIES.keys()
