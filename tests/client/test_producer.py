"""Writing to a real node: each batch is stored once, even if it is repeated."""

import threading

import pytest

from client.hubs import Hubs, a_batch, bodies
from hubmere.client.consumer import Bounds
from hubmere.client.failures import Refused
from hubmere.client.producer import HubProducer, producer_id_of
from hubmere.translate import events
from hubmere.wire.kafka.errors import ErrorCode


def write(hubs: Hubs, hub: str, producer_id: int, batches: list[list[bytes]]) -> None:
    producer = HubProducer(hubs.client, hub, producer_id)
    for batch in batches:
        producer.send(0, a_batch(batch))
    producer.flush()


def read(hubs: Hubs, hub: str, end: int, partition: int = 0) -> list[bytes | None]:
    fetched = hubs.reader(hub).read_range(partition, 0, end)
    return [view.body for each in fetched for view in events(each.data, 0, 0, 1_000_000)]


@pytest.mark.parametrize("done_before", [1, 4, 5, 6, 20], ids=lambda count: f"{count} batches done before")
def test_series_that_is_started_again_is_completed_once(hubs: Hubs, done_before: int) -> None:
    """A task that died after some batches writes all of them again; the log remembers the last five."""
    hub = hubs.new()
    batches = [bodies(3, f"batch {number}") for number in range(20)]
    producer_id = producer_id_of([hub.encode()])
    write(hubs, hub, producer_id, batches[:done_before])

    write(hubs, hub, producer_id, batches)

    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 60)}
    assert read(hubs, hub, 60) == [body for batch in batches for body in batch]


def test_another_series_is_not_treated_as_a_duplicate(hubs: Hubs) -> None:
    """Only the same id means the same batches."""
    hub = hubs.new()
    write(hubs, hub, producer_id_of([hub.encode(), b"a"]), [bodies(3)])

    write(hubs, hub, producer_id_of([hub.encode(), b"b"]), [bodies(3)])

    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 6)}


def test_ids_depend_on_the_separation_of_their_parts() -> None:
    """Two lists of parts that join to the same bytes are different series."""
    assert producer_id_of([b"ab", b"c"]) != producer_id_of([b"a", b"bc"])


def test_writing_continues_after_a_restart_of_the_node(disk_hubs: Hubs) -> None:
    """Batches in flight when the node was killed are written again, and are stored once."""
    hub = disk_hubs.new()
    batches = [bodies(10, f"batch {number}") for number in range(12)]
    producer = HubProducer(disk_hubs.client, hub, producer_id_of([hub.encode()]))
    for batch in batches[:6]:
        producer.send(0, a_batch(batch))

    disk_hubs.node.kill()
    again = threading.Timer(0.2, disk_hubs.node.start)
    again.start()
    for batch in batches[6:]:
        producer.send(0, a_batch(batch))
    producer.flush()
    again.join()

    assert read(disk_hubs, hub, 120) == [body for batch in batches for body in batch]


def test_batches_for_several_partitions_are_stored_once_each(hubs: Hubs) -> None:
    """They share requests; a repeat of all of them adds nothing."""
    hub = hubs.new(partitions=3)
    series = [(number * 2 % 3 if number < 8 else 1, bodies(3, f"batch {number}")) for number in range(12)]

    for _ in range(2):
        producer = HubProducer(hubs.client, hub, producer_id_of([hub.encode()]))
        producer.send_all([(partition, a_batch(batch)) for partition, batch in series])
        producer.flush()

    for partition in range(3):
        expected = [body for wanted, batch in series if wanted == partition for body in batch]
        assert read(hubs, hub, len(expected), partition) == expected
        assert hubs.reader(hub).bounds([partition]) == {partition: Bounds(0, len(expected))}


def test_refusal_names_the_partition_of_its_batch(hubs: Hubs) -> None:
    """Other batches of the same request are stored."""
    hub = hubs.new(partitions=2)
    producer = HubProducer(hubs.client, hub, 7)
    producer.send_all([(0, a_batch(bodies(2))), (1, bytearray(100))])

    with pytest.raises(Refused, match=f"0 events to partition 1 of '{hub}'"):
        producer.flush()

    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 2)}


def test_batch_that_is_too_large_is_refused_with_its_partition(hubs: Hubs) -> None:
    """A retry would not help: the failure comes at once and names the partition."""
    hub = hubs.new()
    producer = HubProducer(hubs.client, hub, 7)
    producer.send(0, a_batch([bytes(1_100_000)]))

    with pytest.raises(Refused, match=f"1 events to partition 0 of '{hub}'") as refusal:
        producer.flush()

    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_batch_that_the_node_does_not_even_read_is_refused_at_once(hubs: Hubs) -> None:
    """The node closes the connection; without the limit of the hub, the batch would be written again and again."""
    hub = hubs.new()
    producer = HubProducer(hubs.client, hub, 7)
    producer.send(0, a_batch(bodies(2)))

    with pytest.raises(Refused, match=f"1 events to partition 1 of '{hub}'.* the hub takes at most 1048576") as refusal:
        producer.send_all([(0, a_batch(bodies(1))), (1, a_batch([bytes(5_000_000)]))])

    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 2)}
