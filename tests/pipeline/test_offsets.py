"""Offsets in the checkpoint, the limits of a trigger, and how ranges become tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.client.consumer import Bounds
from hubmere.pipeline.offsets import (
    DEFAULT_TASKS,
    MAX_EVENTS_PER_TASK,
    MIN_EVENTS_PER_TASK,
    CheckpointMismatch,
    DataLost,
    HubOffset,
    Lost,
    Range,
    admit,
    plan_tasks,
    resume,
)

BACKLOGS = st.dictionaries(st.integers(0, 31), st.integers(0, 5_000_000), min_size=1, max_size=32)


def test_checkpoint_has_the_format_of_the_connector() -> None:
    """A query that used Microsoft's connector continues from its checkpoint, which has no id of the hub."""
    offset = HubOffset(hub="orders", id=None, next={1: 20, 0: 10})

    assert offset.to_json() == {"orders": {"0": 10, "1": 20}}
    assert HubOffset.from_json("orders", offset.to_json()) == offset
    assert offset.is_of("any")


def test_checkpoint_contains_the_id_of_its_hub() -> None:
    """A hub that was created again has the same name."""
    offset = HubOffset(hub="orders", id="one", next={0: 10})

    assert offset.to_json() == {"orders": {"0": 10}, "$hubId": "one"}
    assert HubOffset.from_json("orders", offset.to_json()) == offset
    assert offset.is_of("one")
    assert offset.is_of(None)
    assert not offset.is_of("two")


def test_checkpoint_of_another_hub_is_refused() -> None:
    """Reading a hub from the numbers of another one would skip or repeat events."""
    with pytest.raises(CheckpointMismatch, match="'invoices'"):
        HubOffset.from_json("orders", {"invoices": {"0": 1}, "$hubId": "one"})


@given(backlogs=BACKLOGS, limit=st.integers(1, 1_000_000))
def test_limit_is_divided_in_proportion_to_the_backlogs(backlogs: dict[int, int], limit: int) -> None:
    """It is exact if there are enough events, never exceeds the backlog, and gives every waiting partition a share."""
    start = dict.fromkeys(backlogs, 100)
    end = {partition: 100 + waiting for partition, waiting in backlogs.items()}
    waiting = [partition for partition, count in backlogs.items() if count]

    admitted = admit(start, end, limit)
    taken = {partition: admitted[partition] - 100 for partition in backlogs}

    assert all(0 <= taken[partition] <= backlogs[partition] for partition in backlogs)
    assert all(taken[partition] >= 1 for partition in waiting)
    assert sum(taken.values()) <= max(limit, 0) + len(waiting)
    if limit >= len(waiting) * len(waiting):
        least = min(limit, sum(backlogs.values()))
        assert least <= sum(taken.values()) <= limit + len(waiting)


def test_limit_is_exact_for_even_backlogs() -> None:
    """The sum of a micro-batch is the number in the option."""
    admitted = admit({0: 0, 1: 0, 2: 0}, {0: 1000, 1: 1000, 2: 1000}, 100)

    assert sum(admitted.values()) == 100


def test_query_continues_where_it_stopped_and_reads_new_partitions_from_their_beginning() -> None:
    """A partition that was added while the query ran is read completely."""
    starts, lost = resume({0: 5}, {0: Bounds(0, 10), 1: Bounds(3, 8)})

    assert (starts, lost) == ({0: 5, 1: 3}, [])


def test_lost_ranges_are_reported() -> None:
    """They are events that retention deleted, and those of a hub that was created again."""
    starts, lost = resume({0: 5, 1: 50}, {0: Bounds(8, 10), 1: Bounds(0, 4)})

    assert starts == {0: 8, 1: 0}
    assert lost == [Lost(0, 5, 8), Lost(1, 50, 4)]
    text = str(DataLost("orders", lost))
    assert "partition 0: 5 to 7" in text
    assert "partition 1: it ends at 4, the query is at 50" in text


@given(sizes=st.lists(st.integers(0, 3_000_000), max_size=32), parallelism=st.integers(1, 64))
def test_tasks_contain_every_event_once_and_in_order(sizes: list[int], parallelism: int) -> None:
    """Splitting and merging neither loses nor repeats events."""
    ranges = [Range(partition, 7, 7 + size) for partition, size in enumerate(sizes) if size]

    tasks = plan_tasks(ranges, parallelism)

    joined: list[Range] = []
    for piece in (piece for task in tasks for piece in task):
        if joined and joined[-1].partition == piece.partition:
            assert joined[-1].end == piece.start
            joined[-1] = Range(piece.partition, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == ranges
    assert all(0 < sum(map(len, task)) <= MAX_EVENTS_PER_TASK for task in tasks)


@pytest.mark.parametrize(
    ("events", "count"),
    [(0, 0), (1, 1), (MIN_EVENTS_PER_TASK, 1), (MIN_EVENTS_PER_TASK * 3, 3), (2_000_000, 8), (20_000_000, 20)],
)
def test_number_of_tasks_depends_on_the_backlog(events: int, count: int) -> None:
    """32 partitions with ten events each are one task; a long backlog is split into many."""
    tasks = plan_tasks([Range(0, 0, events)] if events else [], DEFAULT_TASKS)

    assert len(tasks) == count
