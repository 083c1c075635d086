"""Recovery after a crash in the background: a few logs at a time, named until they are open."""

from collections.abc import Callable, Sequence

from broker.builders import NOW_MS, Bench
from broker.gates import Gate
from hubmere.broker.recovery import MAX_AT_ONCE, Recovery
from hubmere.model.errors import StorageFull
from hubmere.store.engine import LogId, log_id


class Crashed:
    """An engine that names the logs which a crash has left; the gate opens them."""

    def __init__(self, *logs: LogId) -> None:
        self._logs = logs

    def find_unrecovered(self, on_found: Callable[[Sequence[LogId]], None]) -> None:
        on_found(self._logs)


def recover(bench: Bench, *partitions: int) -> None:
    """Recover partitions of `orders`, and a log of a hub that was deleted."""
    logs = [log_id(bench.hub.entity.uid, partition) for partition in partitions]
    engine = Crashed(*logs, log_id("deleted", 0), log_id(bench.hub.entity.uid, 99))
    Recovery(engine, bench.broker._namespaces).start()  # type: ignore[arg-type]


def test_logs_are_recovered_a_few_at_a_time_without_being_asked_for(bench: Bench) -> None:
    """A log that a client waits for must not wait for a thousand others."""
    gate = Gate(bench.hub, 0, 1, 2, 3)

    recover(bench, 0, 1, 2, 3)
    before = bench.hub.view.recovering_partitions, bench.hub.view.opening_partitions
    gate.release()

    assert before == ([0, 1, 2, 3], list(range(MAX_AT_ONCE)))
    assert (bench.hub.view.recovering_partitions, bench.hub.view.open_partition_count) == ([], 4)


def test_partition_that_a_client_needs_is_recovered_at_once(bench: Bench) -> None:
    """It is opened before its turn, and not twice."""
    gate = Gate(bench.hub, 0, 1, 2, 3)
    recover(bench, 0, 1, 2, 3)

    bench.hub.open_ahead(3)
    opening = bench.hub.view.opening_partitions
    gate.release()

    assert opening == [0, 1, 3]
    assert bench.hub.view.recovering_partitions == []


def test_log_that_cannot_be_recovered_does_not_stop_the_others(bench: Bench) -> None:
    """Its clients get the reason when they use it."""
    gate = Gate(bench.hub, 0)
    recover(bench, 0, 1, 2, 3)

    gate.fail(StorageFull("no space"))

    assert bench.hub.view.recovering_partitions == []
    assert bench.hub.view.open_partition_count == 3


def test_open_logs_need_no_recovery(bench: Bench) -> None:
    """A client may have been faster."""
    bench.hub.log(0)

    recover(bench, 0)

    assert bench.hub.view.recovering_partitions == []


def test_retention_visits_only_partitions_that_were_used(bench: Bench) -> None:
    """An unused partition has no log; retention must not create one."""
    bench.hub.log(2)

    visited = bench.broker.upkeep.partitions()
    bench.broker.upkeep.apply_retention(*visited[0], NOW_MS)

    assert [(hub.name, partition) for hub, partition in visited] == [("orders", 2)]
    assert bench.hub.view.open_partition_count == 1
