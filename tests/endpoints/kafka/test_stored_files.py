"""The node names files with committed events to clients on its machine, and to no others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient, a_batch, a_fetch, a_produce, only
from endpoints.kafka.test_application_groups import govern
from endpoints.kafka.test_transactions import an_end, an_enlisting, start, write
from hubmere.model.entity import CleanupPolicy, ThrottlingMetric
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.store.files import Files
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

VERSION = 7


@pytest.fixture
def disk_node(tmp_path: Path) -> Iterator[KafkaNode]:
    with KafkaNode(data=tmp_path) as node:
        yield node


@pytest.fixture
def disk_client(disk_node: KafkaNode) -> Iterator[RawClient]:
    with RawClient(disk_node) as client:
        yield client.sign_in()


def ask(client: RawClient, first: int, end: int, *, boot_id: str | None = None) -> Any:
    """The answer about files for a range of the first partition, as a client of this machine asks for it."""
    part = ListOffsetsPartition(index=0, timestamp_ms=LATEST_TIMESTAMP, start_offset=first, files_end=end)
    topics = (ListOffsetsTopic(name="orders", partitions=(part,)),)
    own = Files().boot_id() if boot_id is None else boot_id
    return only(client.call(ListOffsetsRequest(isolation_level=1, topics=topics, boot_id=own), VERSION))


def publish(client: RawClient, *sizes: int) -> None:
    """Batches with these numbers of events."""
    for size in sizes:
        assert not only(client.call(a_produce(a_batch(*[b"x" * 100] * size)), 9)).error_code


@pytest.mark.parametrize(
    ("first", "end", "named", "counted"),
    [(0, 9, (0, 9), 9), (3, 5, (2, 5), 2), (0, 1, (0, 2), 1), (5, 9, (5, 9), 4), (4, 100, (2, 9), 5)],
)
def test_named_bytes_are_the_batches_of_a_fetch(
    disk_node: KafkaNode, disk_client: RawClient, first: int, end: int, named: tuple[int, int], counted: int
) -> None:
    """Whole batches from the one with the first event to the one with the last; their events count as delivered."""
    publish(disk_client, 2, 3, 4)

    (found,) = ask(disk_client, first, end).files

    before = disk_node.hub().counters.outgoing_messages
    fetched = bytes(only(disk_client.call(a_fetch(first), 11)).records)
    content = Path(found.path).read_bytes()[found.position : found.end_position]
    assert (found.first_offset, found.end_offset) == named
    assert content
    assert fetched.startswith(content)
    assert found.log_position == found.position
    assert before == counted


@pytest.mark.parametrize("boot_id", ["", "another machine"])
def test_client_on_another_machine_gets_no_names(disk_client: RawClient, boot_id: str) -> None:
    """It could not open them, and need not know the paths of the node."""
    publish(disk_client, 2)

    answer = ask(disk_client, 0, 2, boot_id=boot_id)

    assert (answer.error_code, answer.offset, answer.files) == (ErrorCode.NONE, 2, ())


def test_client_without_the_right_to_listen_gets_no_names(disk_node: KafkaNode, disk_client: RawClient) -> None:
    """The request needs the same right as a fetch."""
    publish(disk_client, 2)
    with RawClient(disk_node, disk_node.add_rule("sender", "Send")) as sender:
        answer = ask(sender.sign_in(), 0, 2)

    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer.files == ()


@pytest.mark.parametrize(("first", "end"), [(-1, 2), (2, 2), (3, 9)])
def test_events_that_the_log_does_not_have_are_in_no_file(disk_client: RawClient, first: int, end: int) -> None:
    """The client fetches them, and the answer says what is wrong."""
    publish(disk_client, 2)

    assert ask(disk_client, first, end).files == ()


def test_open_transaction_ends_the_named_bytes(disk_client: RawClient) -> None:
    """As for a fetch, nothing beyond the last stable offset."""
    publish(disk_client, 2)
    producer = start(disk_client)
    disk_client.call(an_enlisting(producer), 3)
    write(disk_client, producer, 0, b"open")

    (before,) = ask(disk_client, 0, 3).files
    assert not disk_client.call(an_end(producer), 3).error_code
    publish(disk_client, 1)
    (after,) = ask(disk_client, 0, 5).files

    assert before.end_offset == 2
    assert after.end_offset == 5


def test_range_with_an_aborted_transaction_has_to_be_fetched(disk_client: RawClient) -> None:
    """Only the answer to a fetch lists the transactions that a reader must skip."""
    publish(disk_client, 2)
    producer = start(disk_client)
    disk_client.call(an_enlisting(producer), 3)
    write(disk_client, producer, 0, b"aborted")
    assert not disk_client.call(an_end(producer, commit=False), 3).error_code
    publish(disk_client, 2)

    assert ask(disk_client, 0, 6).files == ()
    assert len(ask(disk_client, 0, 2).files) == len(ask(disk_client, 4, 6).files) == 1


def test_hub_in_memory_has_no_files(client: RawClient) -> None:
    """There is nothing that another process can open."""
    publish(client, 2)

    assert ask(client, 0, 2).files == ()


def test_compacted_hub_has_to_be_fetched(tmp_path: Path) -> None:
    """Compaction replaces files, and gaps between sequence numbers are normal there."""
    compacted = HubSpec(partition_count=1, cleanup_policy=CleanupPolicy.COMPACT)
    with KafkaNode({"orders": compacted}, data=tmp_path) as node, RawClient(node) as client:
        client.sign_in().call(a_produce(a_batch(b"x", key=b"k")), 9)

        answer = ask(client, 0, 1)

    assert (answer.offset, answer.files) == (1, ())


def test_limited_egress_has_to_be_fetched(tmp_path: Path) -> None:
    """A quota could not delay a client that reads files."""
    book = LimitsBook(profile=Profile.STANDARD)
    with KafkaNode(book=book, data=tmp_path) as node, RawClient(node) as client:
        publish(client.sign_in(), 2)

        assert ask(client, 0, 2).files == ()


def test_limited_application_group_has_to_fetch(tmp_path: Path) -> None:
    """The same for the limits of an application group; others are not affected."""
    book = LimitsBook(profile=Profile.UNLIMITED)
    with KafkaNode(book=book, data=tmp_path) as node, RawClient(node) as client:
        govern(node, "slow", (ThrottlingMetric.OUTGOING_BYTES, 100_000))
        publish(client.sign_in(), 2)
        with RawClient(node, node.add_rule("slow", "Listen")) as slow:
            limited = ask(slow.sign_in(), 0, 2)

        assert limited.files == ()
        assert len(ask(client, 0, 2).files) == 1


def test_range_over_several_segments_names_a_file_each(tmp_path: Path) -> None:
    """In order, and each begins where the one before ends."""
    with KafkaNode(data=tmp_path) as node, RawClient(node) as client:
        publish(client.sign_in(), 2)
        roll(node)
        publish(client, 3)
        roll(node)
        publish(client, 4)

        files = ask(client, 1, 9).files

    assert [(each.first_offset, each.end_offset, each.position) for each in files] == [(0, 2, 0), (2, 5, 0), (5, 9, 0)]
    assert len({each.path for each in files}) == len({each.file_id for each in files}) == 3
    assert [each.log_position for each in files] == [
        0,
        files[0].end_position,
        files[0].end_position + files[1].end_position,
    ]


def roll(node: KafkaNode) -> None:
    """Start another segment with the next batch."""

    def act() -> None:
        log: Any = node.hub().log(0)
        log.reconfigure(replace(log._config, segment_bytes=1))

    node.call(act)
