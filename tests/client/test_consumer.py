"""Reading a hub of a real node: exact ranges, positions, and what happens when the node is restarted."""

import threading

import pytest

from client.hubs import Hubs, bodies
from hubmere.client.consumer import Bounds, Fetched
from hubmere.client.failures import RangeLost
from hubmere.model.offsets import spread_offset
from hubmere.records.header import read_header
from hubmere.translate import events


def the_bodies(fetched: list[Fetched], start: int, end: int) -> list[bytes | None]:
    """The bodies of events in a range, decoded by the codec of the Explorer."""
    found = [view for each in fetched for view in events(each.data, 0, start, 1_000_000)]
    return [view.body for view in found if view.sequence < end]


def test_range_is_read_exactly_across_batches(hubs: Hubs) -> None:
    """A range may begin and end inside batches, and needs many answers when those are small."""
    hub = hubs.new()
    all_bodies = bodies(90)
    hubs.publish(hub, 1, all_bodies[:30], all_bodies[30:60], all_bodies[60:])

    fetched = list(hubs.reader(hub).read_range(1, 5, 77, max_bytes=1))

    assert len(fetched) == 3
    assert the_bodies(fetched, 5, 77) == all_bodies[5:77]


def test_small_range_is_not_answered_with_all_later_events(hubs: Hubs) -> None:
    """A micro-batch reads a few events of a large backlog: the others are not sent."""
    hub = hubs.new()
    hubs.publish(hub, 0, *([b"%d" % number * 900] * 10 for number in range(100, 200)))

    fetched = list(hubs.reader(hub).read_range(0, 0, 5))
    rest = list(hubs.reader(hub).read_range(0, 5, 1000))

    assert sum(len(each.data) for each in fetched) < 100_000
    assert len(the_bodies(rest, 5, 1000)) == 995


def test_bounds_are_separate_for_each_partition(hubs: Hubs) -> None:
    """Partitions have different first and last events."""
    hub = hubs.new(partitions=3)
    hubs.publish(hub, 0, bodies(4))
    hubs.publish(hub, 2, bodies(9))
    hubs.trim(hub, 2, 3)

    bounds = hubs.reader(hub).bounds(range(3))

    assert bounds == {0: Bounds(0, 4), 1: Bounds(0, 0), 2: Bounds(3, 9)}


def test_range_before_the_first_event_is_reported_as_lost(hubs: Hubs) -> None:
    """Retention may delete events before a reader gets them; the error names the range."""
    hub = hubs.new()
    hubs.publish(hub, 0, bodies(20))
    hubs.trim(hub, 0, 12)

    with pytest.raises(RangeLost) as loss:
        list(hubs.reader(hub).read_range(0, 5, 20))

    assert (loss.value.wanted, loss.value.first, loss.value.end) == (5, 12, 20)


def test_reader_that_stops_early_leaves_a_usable_client(hubs: Hubs) -> None:
    """The response to a request that was sent ahead must not be used for another request."""
    hub = hubs.new()
    hubs.publish(hub, 0, bodies(10), bodies(10, "later"))
    reader = hubs.reader(hub)

    some = reader.read_range(0, 0, 20, max_bytes=1)
    next(some)
    some.close()

    assert reader.bounds([0]) == {0: Bounds(0, 20)}


def test_position_is_found_by_time_in_milliseconds(hubs: Hubs) -> None:
    """It is the first event at or after a time, or none."""
    hub = hubs.new()
    hubs.publish(hub, 0, bodies(5))
    (first,) = hubs.reader(hub).read_range(0, 0, 5)
    enqueued_ms = read_header(first.data).max_time_ms

    reader = hubs.reader(hub)

    assert reader.first_at({0: enqueued_ms}) == {0: 0}
    assert reader.first_at({0: enqueued_ms + 1}) == {0: None}


def test_every_event_is_found_by_its_amqp_offset(hubs: Hubs) -> None:
    """An offset from an AMQP receiver or a Spark row leads back to its event, whatever the size of batches."""
    hub = hubs.new()
    sizes = [1, 7, 1, 30, 2, 100, 3]
    hubs.publish(hub, 0, *([b"x" * (size * 3)] * size for size in sizes))
    reader = hubs.reader(hub)
    expected: dict[int, int] = {}
    for fetched in reader.read_range(0, 0, sum(sizes)):
        at = 0
        while at < len(fetched.data):
            header = read_header(fetched.data, at)
            for delta in range(header.record_count):
                address = spread_offset(fetched.position + at, header.size_bytes, header.record_count, delta)
                expected[address] = header.base_sequence_number + delta
            at += header.size_bytes

    found = {offset: reader.find_offset(0, offset, inclusive=True) for offset in expected}
    behind = {offset: reader.find_offset(0, offset, inclusive=False) for offset in expected}

    assert found == expected
    assert behind == {offset: sequence + 1 for offset, sequence in expected.items()}
    assert reader.find_offset(0, max(expected) + 10_000, inclusive=True) == sum(sizes)


def test_byte_limit_admits_whole_batches_and_at_least_one(hubs: Hubs) -> None:
    """A limit below the size of a batch must not stop a reader."""
    hub = hubs.new()
    hubs.publish(hub, 0, *([b"x" * 1000] * 10 for _ in range(10)))
    reader = hubs.reader(hub)

    ends = [reader.find_after_bytes(0, 0, 100, size_bytes) for size_bytes in (1, 25_000, 10_000_000)]

    assert ends == [10, 20, 100]


def test_reading_continues_after_a_restart_of_the_node(disk_hubs: Hubs) -> None:
    """A node that is killed and started again causes a pause, not a failure."""
    hub = disk_hubs.new()
    all_bodies = bodies(60)
    disk_hubs.publish(hub, 0, all_bodies[:20], all_bodies[20:40], all_bodies[40:])
    reading = disk_hubs.reader(hub).read_range(0, 0, 60, max_bytes=1)
    fetched = [next(reading)]

    disk_hubs.node.kill()
    again = threading.Timer(0.2, disk_hubs.node.start)
    again.start()
    fetched += reading
    again.join()

    assert the_bodies(fetched, 0, 60) == all_bodies
