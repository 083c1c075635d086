"""Recovery after a crash in the background: a few logs at a time; `recovering` lists those that are not open yet."""

from collections.abc import Callable, Sequence

from broker.builders import NOW_MS, BrokerHarness
from broker.gates import Gate
from hubmere.broker.hubs.recovery import MAX_AT_ONCE, Recovery
from hubmere.model.errors import StorageFull
from hubmere.store.engine import LogId, log_id


class Crashed:
    """An engine with logs that need recovery; the gate decides when they open."""

    def __init__(self, *logs: LogId) -> None:
        self._logs = logs

    def find_unrecovered(self, on_found: Callable[[Sequence[LogId]], None]) -> None:
        on_found(self._logs)


def recover(harness: BrokerHarness, *partitions: int) -> None:
    """Start the recovery of partitions of `orders` and of a log of a deleted hub."""
    logs = [log_id(harness.hub.entity.uid, partition) for partition in partitions]
    engine = Crashed(*logs, log_id("deleted", 0), log_id(harness.hub.entity.uid, 99))
    Recovery(engine, harness.broker._namespaces).start()  # type: ignore[arg-type]


def test_logs_are_recovered_a_few_at_a_time_without_a_request(harness: BrokerHarness) -> None:
    """A log that a client needs must not wait for a thousand others."""
    gate = Gate(harness.hub, 0, 1, 2, 3)

    recover(harness, 0, 1, 2, 3)
    before = harness.hub.view.recovering_partitions, harness.hub.view.opening_partitions
    gate.release()

    assert before == ([0, 1, 2, 3], list(range(MAX_AT_ONCE)))
    assert (harness.hub.view.recovering_partitions, harness.hub.view.open_partition_count) == ([], 4)


def test_partition_that_a_client_needs_is_recovered_at_once(harness: BrokerHarness) -> None:
    """It is opened before the others, and only once."""
    gate = Gate(harness.hub, 0, 1, 2, 3)
    recover(harness, 0, 1, 2, 3)

    harness.hub.open_ahead(3)
    opening = harness.hub.view.opening_partitions
    gate.release()

    assert opening == [0, 1, 3]
    assert harness.hub.view.recovering_partitions == []


def test_log_that_cannot_be_recovered_does_not_stop_the_others(harness: BrokerHarness) -> None:
    """Its clients get the reason when they use it."""
    gate = Gate(harness.hub, 0)
    recover(harness, 0, 1, 2, 3)

    gate.fail(StorageFull("no space"))

    assert harness.hub.view.recovering_partitions == []
    assert harness.hub.view.open_partition_count == 3


def test_logs_that_are_already_open_need_no_recovery(harness: BrokerHarness) -> None:
    """A client may have used the log before its turn."""
    harness.hub.log(0)

    recover(harness, 0)

    assert harness.hub.view.recovering_partitions == []


def test_retention_visits_only_partitions_that_were_used(harness: BrokerHarness) -> None:
    """An unused partition has no log; retention must not create one."""
    harness.hub.log(2)

    visited = harness.broker.upkeep.partitions()
    harness.broker.upkeep.apply_retention(*visited[0], NOW_MS)

    assert [(hub.name, partition) for hub, partition in visited] == [("orders", 2)]
    assert harness.hub.view.open_partition_count == 1
