"""Rights: rules of the namespace and of a hub decide about each request."""

from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from endpoints.kafka.test_admin import a_topic, create, grow
from endpoints.kafka.test_groups import a_commit, a_join
from endpoints.kafka.test_transactions import an_init
from hubmere.broker.management.manager import Actor
from hubmere.endpoints.refusal_log import RefusalLog
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import DeletableTopic, DeleteTopicsRequest
from hubmere.wire.kafka.messages.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from hubmere.wire.kafka.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from hubmere.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from log_records import records_of

_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_OK = ErrorCode.NONE


def codes_of(client: RawClient, topic: str = "orders") -> dict[str, int]:
    """The error codes of a client for several requests."""
    place = (ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(index=0, timestamp_ms=-1),)),)
    deletion = DeleteTopicsRequest(topics=(DeletableTopic(name=topic),), timeout_ms=1000)
    named = (MetadataRequestTopic(name=topic),)
    return {
        "metadata": client.call(MetadataRequest(topics=named), 12).topics[0].error_code,
        "produce": only(client.call(a_produce(a_batch(b"x"), topic=topic), 9)).error_code,
        "producer id": client.call(an_init(None), 4).error_code,
        "transaction": client.call(an_init("t"), 4).error_code,
        "fetch": only(client.call(a_fetch(topic=topic), 11)).error_code,
        "list offsets": only(client.call(ListOffsetsRequest(topics=place), 7)).error_code,
        "join": client.call(a_join(group_id=f"of-{topic}"), 3).error_code,
        "commit": only(client.call(a_commit(1, topic=topic), 8)).error_code,
        "create": create(client, a_topic(f"made-beside-{topic}"))[0].error_code,
        "grow": grow(client, 2, name=topic).error_code,
        "delete group": client.call(DeleteGroupsRequest(group_ids=("g",)), 2).results[0].error_code,
        "delete": client.call(deletion, 6).responses[0].error_code,
    }


def test_refusals_are_logged_with_namespace_hub_and_client(
    node: KafkaNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator finds the reason of a failing client in the log, for every kind of request on a hub."""
    monkeypatch.setattr("hubmere.endpoints.kafka.client.REFUSALS", RefusalLog())
    caplog.set_level("INFO", logger="hubmere.kafka")

    # The log is limited by kind of refusal, hub and client, so the requests are distributed over several clients.
    with RawClient(node, node.add_rule("sender", "Send")) as client:
        codes_of(client.sign_in())
    with RawClient(node, node.add_rule("reader", "Listen")) as client:
        client.sign_in().call(MetadataRequest(topics=(MetadataRequestTopic(name="missing"),)), 12)
        only(client.call(a_fetch(topic="orders", offset=99), 11))

    records = [record for record in records_of(caplog, "hubmere.kafka") if record.getMessage().startswith("refused ")]
    assert {(record.args[0], record.args[1]) for record in records if isinstance(record.args, tuple)} >= {
        ("a Kafka fetch request", "hubmere/orders"),
        ("a Kafka request for offsets", "hubmere/orders"),
        ("the creation of a Kafka topic", "hubmere/made-beside-orders"),
        ("more partitions of a Kafka topic", "hubmere/orders"),
        ("the deletion of a Kafka topic", "hubmere/orders"),
        ("a Kafka metadata request", "hubmere/missing"),
    }
    assert all("127.0.0.1" in record.getMessage() for record in records)


def test_sender_may_only_send(node: KafkaNode) -> None:
    """Reference 1.1: Send allows producing, and the producer ids that it needs."""
    with RawClient(node, node.add_rule("sender", "Send")) as client:
        codes = codes_of(client.sign_in())

    assert codes == {
        "metadata": _OK,
        "produce": _OK,
        "producer id": _OK,
        "transaction": _OK,
        "fetch": _NO_TOPIC,
        "list offsets": _NO_TOPIC,
        "join": _NO_GROUP,
        "commit": _NO_GROUP,
        "create": _NO_TOPIC,
        "grow": _NO_TOPIC,
        "delete group": _NO_GROUP,
        "delete": _NO_TOPIC,
    }


def test_listener_may_only_read(node: KafkaNode) -> None:
    """Reference 1.1: Listen allows fetching, groups and offsets."""
    with RawClient(node, node.add_rule("listener", "Listen")) as client:
        codes = codes_of(client.sign_in())

    assert codes == {
        "metadata": _OK,
        "produce": _NO_TOPIC,
        "producer id": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "transaction": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "fetch": _OK,
        "list offsets": _OK,
        "join": _OK,
        "commit": _OK,
        "create": _NO_TOPIC,
        "grow": _NO_TOPIC,
        "delete group": _NO_GROUP,
        "delete": _NO_TOPIC,
    }


def test_manager_may_do_everything(node: KafkaNode, client: RawClient) -> None:
    """Adding partitions is refused because of the tier, not of rights."""
    codes = codes_of(client)

    assert {name for name, code in codes.items() if code} == {"grow"}
    assert codes["grow"] == ErrorCode.INVALID_PARTITIONS


def test_client_of_one_hub_sees_only_that_hub() -> None:
    """Reference 1.1: the connection string of a hub is limited to it, and other hubs look like missing ones."""
    with KafkaNode({"orders": 1, "secrets": 1}) as node:
        own = node.add_rule("own", "Manage", "Send", "Listen", hub="orders")
        with RawClient(node, own) as client:
            client.sign_in()
            seen = [topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics]
            other = codes_of(client, "secrets")
            missing = codes_of(client, "nothing")
            mine = codes_of(client)

    assert seen == ["orders"]
    assert [other[name] for name in ("metadata", "produce", "fetch", "list offsets", "commit", "delete")] == [
        _NO_TOPIC
    ] * 6
    assert {**missing, "join": 0} == {**other, "join": 0}
    assert (mine["produce"], mine["fetch"], mine["delete"]) == (_OK, _OK, _OK)
    assert mine["create"] == _NO_TOPIC


def test_client_of_one_hub_sees_only_groups_that_read_it() -> None:
    """Group ids of others may be confidential."""
    with KafkaNode({"orders": 1, "secrets": 1}) as node, RawClient(node) as root:
        root.sign_in()
        root.call(a_commit(1, group_id="of-orders"), 8)
        root.call(a_commit(1, group_id="of-secrets", topic="secrets"), 8)
        with RawClient(node, node.add_rule("own", "Listen", hub="orders")) as client:
            listed = client.sign_in().call(ListGroupsRequest(), 4).groups

    assert [group.group_id for group in listed] == ["of-orders"]


@pytest.mark.parametrize("request_", [DescribeGroupsRequest(groups=("g",)), ListGroupsRequest()])
def test_senders_do_not_see_groups(node: KafkaNode, request_: Any) -> None:
    """They do not use groups."""
    with RawClient(node, node.add_rule("sender", "Send")) as client:
        groups = client.sign_in().call(request_, 4).groups

    assert [group for group in groups if group.error_code == ErrorCode.NONE] == []


def test_deleting_a_namespace_closes_its_connections(node: KafkaNode, client: RawClient) -> None:
    """Nothing may be written to a deleted namespace."""
    done: list[Any] = []
    manager = node.broker.manager
    node.call(lambda: manager.delete_namespace("hubmere", Actor(name="test", now_ms=0, now=0.0), done.append))
    while not node.call(lambda: list(done)):
        pass

    client.send(a_produce(a_batch(b"x")), 9)

    assert client.is_closed_by_peer()
