"""Writing to a real node: each batch once, whatever is repeated."""

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


def read(hubs: Hubs, hub: str, end: int) -> list[bytes | None]:
    fetched = hubs.reader(hub).read_range(0, 0, end)
    return [view.body for each in fetched for view in events(each.data, 0, 0, 1_000_000)]


@pytest.mark.parametrize("done_before", [1, 4, 5, 6, 20], ids=lambda count: f"{count} batches done before")
def test_series_that_is_begun_again_is_completed_once(hubs: Hubs, done_before: int) -> None:
    """A task that died after some batches writes all of them again; the log remembers the last five."""
    hub = hubs.new()
    batches = [bodies(3, f"batch {number}") for number in range(20)]
    producer_id = producer_id_of([hub.encode()])
    write(hubs, hub, producer_id, batches[:done_before])

    write(hubs, hub, producer_id, batches)

    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 60)}
    assert read(hubs, hub, 60) == [body for batch in batches for body in batch]


def test_other_series_is_not_taken_for_a_repeat(hubs: Hubs) -> None:
    """Only the same id means the same batches."""
    hub = hubs.new()
    write(hubs, hub, producer_id_of([hub.encode(), b"a"]), [bodies(3)])

    write(hubs, hub, producer_id_of([hub.encode(), b"b"]), [bodies(3)])

    assert hubs.reader(hub).bounds([0]) == {0: Bounds(0, 6)}


def test_ids_differ_by_where_parts_are_cut() -> None:
    """Two lists of parts that join to the same bytes are two series."""
    assert producer_id_of([b"ab", b"c"]) != producer_id_of([b"a", b"bc"])


def test_writing_goes_on_when_the_node_comes_back(disk_hubs: Hubs) -> None:
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


def test_batch_that_is_too_large_is_refused_with_its_partition(hubs: Hubs) -> None:
    """No repeat makes it smaller: the failure comes at once and says which batch."""
    hub = hubs.new()
    producer = HubProducer(hubs.client, hub, 7)
    producer.send(0, a_batch([bytes(1_100_000)]))

    with pytest.raises(Refused, match=f"1 events to partition 0 of '{hub}'") as refusal:
        producer.flush()

    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
