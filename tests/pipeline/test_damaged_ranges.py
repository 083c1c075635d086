"""Events that are damaged on disk: a query fails and names them, or skips them, and Capture counts them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from client.hubs import PATIENCE_S, Hubs, an_account, bodies
from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.pipeline.capture.writing import write_file
from hubmere.pipeline.decode import SCHEMA
from hubmere.pipeline.offsets import DataLost, Range
from hubmere.pipeline.ranges import read_ranges
from hubmere.records.header import read_header
from hubmere.settings import HubSetting
from hubmere.store.log.segments.segment import LOG, stem
from hubmere.testing import Node
from log_records import messages_of
from pipeline.capture.plans import a_hub, read
from pipeline.capture.runs import micro_batches

EVENTS_PER_BATCH = 3
BATCHES = 8
END = EVENTS_PER_BATCH * BATCHES
# The damaged batches: one with sequence numbers 9 to 11, and the last one.
MIDDLE, LAST = 3, BATCHES - 1


def _damage(data: Path, number: int) -> None:
    """Flip a bit in one batch of the only log."""
    (path,) = data.glob(f"log/*/{stem(0)}{LOG}")
    content = bytearray(path.read_bytes())
    at = 0
    for _ in range(number):
        at += read_header(content, at).size_bytes
    content[at + 65] ^= 1
    path.write_bytes(content)


@contextmanager
def _a_damaged_hub(data: Path, *batches: int) -> Iterator[Hubs]:
    """A node with a hub `orders` that was killed, had these batches damaged, and was started again."""
    with Node(hubs=[HubSetting(name="orders", partition_count=1)], data=data) as node:
        hubs = Hubs(node)
        hubs.publish("orders", 0, *(bodies(EVENTS_PER_BATCH, f"batch {number}") for number in range(BATCHES)))
        node.kill()
        for number in batches:
            _damage(data, number)
        node.start()
        try:
            yield hubs
        finally:
            hubs.client.close()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hubs]:
    """A hub with damage in the middle and at the end."""
    with _a_damaged_hub(tmp_path_factory.mktemp("damaged") / "data", MIDDLE, LAST) as hubs:
        yield hubs


def _sequences(hubs: Hubs, *ranges: tuple[int, int], hub: str = "orders", fails: bool = True) -> list[int]:
    """The sequence numbers that a task of a query reads."""
    wanted = [Range(0, start, end) for start, end in ranges]
    account = an_account(hubs.node)
    found = read_ranges(account, hub, wanted, SCHEMA, hub_id=None, fails_on_data_loss=fails)
    return [number for batch in found for number in batch["sequenceNumber"].to_pylist()]


def _without(lost: Sequence[int], end: int = END) -> list[int]:
    return [number for number in range(end) if number not in lost]


@pytest.mark.parametrize(
    ("start", "end", "named"),
    [
        (0, 21, "partition 0: 9 to 11)"),
        (10, 21, "partition 0: 10 to 11)"),
        (0, 11, "partition 0: 9 to 10)"),
        (10, 11, "partition 0: 10 to 10)"),
        (12, END, "partition 0: 21 to 23)"),
        (12, 23, "partition 0: 21 to 22)"),
    ],
)
def test_query_over_damaged_events_fails_and_names_them(damaged: Hubs, start: int, end: int, named: str) -> None:
    """Before, it skipped them silently, although `failOnDataLoss` is true by default."""
    with pytest.raises(DataLost) as raised:
        _sequences(damaged, (start, end))

    assert named in str(raised.value)
    assert "set failOnDataLoss to false" in str(raised.value)


def test_ranges_without_damage_are_read(damaged: Hubs) -> None:
    """Only tasks with damaged events fail; a response may reach beyond its range."""
    assert _sequences(damaged, (0, 9), (12, 21)) == [*range(9), *range(12, 21)]


def test_query_that_accepts_loss_skips_it_and_reports_it(damaged: Hubs, caplog: pytest.LogCaptureFixture) -> None:
    """There is one warning for each range."""
    with caplog.at_level(logging.WARNING, "hubmere.spark"):
        found = _sequences(damaged, (0, END), fails=False)

    assert found == _without([9, 10, 11, 21, 22, 23])
    named = [text for text in messages_of(caplog, "hubmere.spark") if "are lost" in text]
    assert [("9 to 11" in text, "21 to 23" in text) for text in named] == [(True, False), (False, True)]


def test_capture_counts_damaged_events_as_lost(damaged: Hubs, tmp_path: Path) -> None:
    """The other events are captured, and the job reports how many are missing."""
    plan = read(damaged, a_hub(damaged, "orders", tmp_path, partitions=1, size_limit_bytes=10_485_760))
    ((_, files),) = list(micro_batches(plan))

    written = [write_file(plan, file, "0-0") for file in files]

    assert sum(each.lost for each in written) == 2 * EVENTS_PER_BATCH
    assert sum(each.events for each in written) == END - 2 * EVENTS_PER_BATCH


def test_markers_and_aborted_transactions_are_no_loss(tmp_path: Path) -> None:
    """They have sequence numbers without events."""
    with Node(hubs=[HubSetting(name="orders", partition_count=1)], data=tmp_path / "data") as node:
        hubs = Hubs(node)
        producer = Producer(_kafka(node) | {"transactional.id": "t"})
        producer.init_transactions(PATIENCE_S)
        for commit in (True, False, True):
            producer.begin_transaction()
            for body in bodies(3):
                producer.produce("orders", body, partition=0)
            assert producer.flush(PATIENCE_S) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
        end = hubs.reader("orders").bounds([0])[0].end

        found = _sequences(hubs, (0, end))
        hubs.client.close()

    assert found == [0, 1, 2, 8, 9, 10]
    assert end == 12


def test_sequence_numbers_that_compaction_removed_are_no_loss(tmp_path: Path) -> None:
    """On a compacted hub they cannot be distinguished from damage, so every query would fail."""
    data = tmp_path / "data"
    with Node(data=data) as node:
        _create_compacted(node)
        producer = Producer(_kafka(node))
        for number in range(4):
            producer.produce("orders", b"%d" % number, key=b"%d" % number, partition=0)
            assert producer.flush(PATIENCE_S) == 0
        node.kill()
        _damage(data, 2)
        node.start()
        with Client(an_account(node)) as client:
            (*_, last) = HubReader(client, "orders").read_range(0, 0, 4)
        hubs = Hubs(node)

        found = _sequences(hubs, (0, 4))
        hubs.client.close()

    assert found == [0, 1, 3]
    assert last.missing == ()


def _create_compacted(node: Node) -> None:
    topic = NewTopic("orders", num_partitions=1, replication_factor=1, config={"cleanup.policy": "compact"})
    admin = AdminClient(_kafka(node))
    admin.create_topics([topic])["orders"].result(240)


def _kafka(node: Node) -> dict[str, str]:
    return {
        "bootstrap.servers": node.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": node.connection_string,
    }
