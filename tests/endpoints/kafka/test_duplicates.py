"""Requests that name the same thing twice: they are refused for it with Kafka's error, and nothing is changed."""

from typing import Any
from uuid import UUID

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from endpoints.kafka.test_admin import a_topic, configs_of, create
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    CreatePartitionsRequest,
    DeletableTopic,
    DeleteTopicsRequest,
    GrowingTopic,
)
from hubmere.wire.kafka.messages.configs import (
    AlterConfigsRequest,
    ChangedConfig,
    ChangedResource,
    IncrementalAlterConfigsRequest,
    ReplacedConfig,
    ReplacedResource,
    ResourceType,
)
from hubmere.wire.kafka.messages.groups import DeleteGroupsRequest
from hubmere.wire.kafka.messages.metadata import MetadataRequest

_TWICE = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


def error_of(result: Any) -> tuple[int, str | None]:
    return result.error_code, result.error_message


def names_of(client: RawClient) -> list[str]:
    return [topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics]


def test_topic_that_is_named_twice_is_not_created(client: RawClient) -> None:
    """The two may differ, so neither is created; other topics of the request are."""
    topics = [a_topic("twice", partitions=1), a_topic("other"), a_topic("twice", partitions=2)]

    made = create(client, *topics)

    assert {topic.name: topic.error_code for topic in made} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "other": ErrorCode.NONE,
    }
    assert [error_of(topic) for topic in made if topic.name == "twice"] == [_TWICE]
    assert names_of(client) == ["orders", "other"]


def test_topic_that_is_named_twice_is_not_deleted(node: KafkaNode, client: RawClient) -> None:
    """It is named by name or by id."""
    known = UUID(node.hub().entity.topic_id)
    by_id = DeletableTopic(name=None, topic_id=known)

    old = client.call(DeleteTopicsRequest(topic_names=("orders", "orders"), timeout_ms=1000), 5)
    new = client.call(DeleteTopicsRequest(topics=(by_id, by_id), timeout_ms=1000), 6)

    assert [error_of(result) for result in old.responses] == [_TWICE]
    assert [error_of(result) for result in new.responses] == [(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")]
    assert names_of(client) == ["orders"]


def test_topic_to_delete_must_have_either_a_name_or_an_id(node: KafkaNode, client: RawClient) -> None:
    """With neither or both it is ambiguous."""
    both = DeletableTopic(name="orders", topic_id=UUID(node.hub().entity.topic_id))
    neither = DeletableTopic(name=None)

    results = client.call(DeleteTopicsRequest(topics=(both, neither), timeout_ms=1000), 6).responses

    assert [error_of(result) for result in results] == [
        (ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
    ]
    assert names_of(client) == ["orders"]


def test_topic_that_is_named_twice_gets_no_partitions() -> None:
    """It is unclear which count is meant."""
    with KafkaNode(book=LimitsBook(profile=Profile.PREMIUM)) as node, RawClient(node) as client:
        topics = (GrowingTopic(name="orders", count=3), GrowingTopic(name="orders", count=4))

        answer = client.sign_in().call(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False), 3)

        assert [error_of(result) for result in answer.results] == [_TWICE]
        assert node.hub().entity.partition_count == 2


def test_resource_that_is_named_twice_is_not_altered(client: RawClient) -> None:
    """This holds for AlterConfigs and IncrementalAlterConfigs."""
    hours = [str(number * 3_600_000) for number in (2, 3)]
    whole = tuple(
        ReplacedResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=(ReplacedConfig(name="retention.ms", value=value),),
        )
        for value in hours
    )
    single = tuple(
        ChangedResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=(ChangedConfig(name="retention.ms", config_operation=0, value=value),),
        )
        for value in hours
    )

    results = [
        *client.call(AlterConfigsRequest(resources=whole, validate_only=False), 2).responses,
        *client.call(IncrementalAlterConfigsRequest(resources=single, validate_only=False), 1).responses,
    ]

    assert [error_of(result) for result in results] == [(ErrorCode.INVALID_REQUEST, "Duplicate resource.")] * 2
    assert configs_of(client, "orders")["retention.ms"].value == str(7 * 24 * 3_600_000)


def test_entry_that_is_named_twice_is_not_altered(client: RawClient) -> None:
    """Setting and deleting it in one request contradict each other."""
    entries = tuple(ChangedConfig(name="retention.ms", config_operation=how, value="7200000") for how in (0, 1))
    resource = ChangedResource(resource_type=ResourceType.TOPIC, resource_name="orders", configs=entries)

    answer = client.call(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False), 1)

    assert error_of(answer.responses[0]) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    assert configs_of(client, "orders")["retention.ms"].value == str(7 * 24 * 3_600_000)


def test_group_that_is_named_twice_is_deleted_and_answered_once(client: RawClient) -> None:
    """Kafka deletes it once."""
    answer = client.call(DeleteGroupsRequest(group_ids=("g", "g")), 2)

    assert [(result.group_id, result.error_code) for result in answer.results] == [("g", ErrorCode.GROUP_ID_NOT_FOUND)]
