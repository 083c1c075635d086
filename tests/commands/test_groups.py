"""Kafka groups by command: lag, members, resets with a preview, deletion; against groups of a real consumer."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


@pytest.fixture
def group(node: Node, hub: str) -> Iterator[str]:
    """A group that has read two of five events in partition 0 and nothing elsewhere."""
    assert at(node, "send", hub, "x", "--count", "5", "--partition-id", "0").code == Exit.OK
    name = f"readers-of-{hub}"
    consumer = a_consumer(node, name)
    consumer.commit(offsets=[TopicPartition(hub, 0, 2)], asynchronous=False)
    consumer.close()
    yield name
    assert at(node, "group", "delete", name).code == Exit.OK


def a_consumer(node: Node, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": node.connection_string,
            "group.id": group,
            "client.id": "till-7",
        }
    )


def committed(node: Node, group: str, hub: str) -> int:
    consumer = a_consumer(node, group)
    [found] = consumer.committed([TopicPartition(hub, 0)], timeout=600)
    consumer.close()
    return int(found.offset)


def test_groups_are_listed_with_their_lag(node: Node, hub: str, group: str) -> None:
    """The output has one line for each group, for people and for scripts."""
    table = at(node, "group", "list", "-o", "table").lines
    lag = at(node, "group", "list", "--query", f"[?name=='{group}'].lag | [0]", "-o", "tsv").out

    assert table[0].split() == ["Group", "State", "Members", "EventHubs", "Partitions", "Lag"]
    assert [group, "Empty", "0", hub, "1", "3"] in [line.split() for line in table]
    assert lag == "3\n"


def test_group_is_described_with_members_and_positions(node: Node, hub: str, group: str) -> None:
    """It shows who reads which partition, and the position."""
    consumer = a_consumer(node, group)
    consumer.subscribe([hub])
    message = consumer.poll(60)
    described = at(node, "group", "describe", group).json
    table = at(node, "group", "describe", group, "-o", "table").lines
    refused = at(node, "group", "reset", group, "--to", "earliest")
    consumer.close()

    assert message is not None
    assert (described["state"], [member["clientId"] for member in described["members"]]) == ("Stable", ["till-7"])
    [position] = [each for each in described["positions"] if each["partition"] == 0]
    assert (position["committedOffset"], position["endOffset"], position["lag"]) == (2, 5, 3)
    assert position["clientId"] == "till-7"
    assert any(line.split()[:5] == [hub, "0", "2", "5", "3"] for line in table)
    assert (refused.code, refused.err.splitlines()[0]) == (
        Exit.FAILED, f"hubmere: The group '{group}' still has members."
    )  # fmt: skip


def test_lag_without_a_committed_offset_is_unknown(node: Node, hub: str, group: str) -> None:
    """0 would say that everything was read; the client decides where it begins."""
    assert at(node, "send", hub, "x", "--count", "3", "--partition-id", "1").code == Exit.OK
    consumer = a_consumer(node, group)
    consumer.subscribe([hub])
    assert consumer.poll(60) is not None
    positions = at(node, "group", "describe", group).json["positions"]
    consumer.close()

    [unread] = [each for each in positions if each["partition"] == 1]
    assert (unread["committedOffset"], unread["endOffset"], unread["lag"]) == (None, 3, None)


@pytest.mark.parametrize(
    ("target", "offset"),
    [("earliest", 0), ("latest", 5), ("offset:3", 3), ("offset:99", 5), ("shift:-1", 1), ("2020-01-01T00:00:00Z", 0)],
)
def test_group_is_reset_after_a_preview(node: Node, hub: str, group: str, target: str, offset: int) -> None:
    """The preview shows the same offsets and changes nothing; a target outside of the log is moved to its bounds."""
    preview = at(node, "group", "reset", group, "--to", target, "--dry-run").json
    before = committed(node, group, hub)
    done = at(node, "group", "reset", group, "--to", target).json

    assert preview == done
    assert [(each["currentOffset"], each["newOffset"]) for each in done] == [(2, offset)]
    assert (before, committed(node, group, hub)) == (2, offset)


def test_partitions_to_reset_can_be_selected(node: Node, hub: str, group: str) -> None:
    """This includes a partition in which the group has never committed."""
    done = at(
        node, "group", "reset", group, "--to", "latest", "--eventhub-name", hub, "--partitions", "1", "-o", "json"
    ).json

    assert [(each["partition"], each["currentOffset"], each["newOffset"]) for each in done] == [(1, None, 0)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("describe", "nobody"), Exit.NOT_FOUND, "there is no Kafka group 'nobody'"),
        (("reset", "nobody", "--to", "earliest"), Exit.NOT_FOUND, "there is no Kafka group 'nobody'"),
        (("reset", "nobody", "--to", "yesterday"), Exit.USAGE, "--to yesterday is none of earliest, latest"),
        (("reset", "nobody", "--to", "shift:much"), Exit.USAGE, "--to shift:much is none of earliest, latest"),
        (("reset", "x", "--to", "2026-99-99"), Exit.FAILED, "'2026-99-99' is not a valid value: a time such as"),
        (("reset", "x", "--to", "latest", "--partitions", "0"), Exit.FAILED, "'without eventHub' is not a valid part"),
    ],
)
def test_invalid_group_commands_are_reported(node: Node, arguments: tuple[str, ...], code: Exit, message: str) -> None:
    """Unknown things are named, and wrong values are reported with the expected ones."""
    run = at(node, "group", *arguments)

    assert run.code == code
    assert run.err.startswith(f"hubmere: {message}")


def test_deleting_an_unknown_group_is_no_failure(node: Node) -> None:
    """The same holds for every other resource."""
    run = at(node, "group", "delete", "nobody")

    assert run.code == Exit.OK
    assert "there is no Kafka group 'nobody'" in run.err
