"""Requests that wait for a log: in order, bounded in number and in time, and without a trace when they are over."""

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from broker.gates import Gate, expire
from hubmere.broker import opening
from hubmere.broker.opening import LogOpening, Waiting
from hubmere.broker.publish import Publisher
from hubmere.broker.read import PartitionReader
from hubmere.model.errors import HubNotFound, PartitionOpening, StorageFull
from hubmere.model.receipt import Receipt
from hubmere.model.spec import HubSpec
from hubmere.records.records import decode_records


def publish(bench: Bench, partition: int | None, body: bytes = b"x") -> Receipt:
    """Publish one event, as an endpoint does it."""
    return Publisher(bench.hub).publish(
        a_batch(body=body), count=1, size_bytes=100, now=bench.now, now_ms=NOW_MS, partition=partition
    )


def bodies(bench: Bench, partition: int) -> list[bytes | None]:
    """The bodies of all events of a partition."""
    log, sequence, found = bench.hub.log(partition), 0, []
    while (chunk := log.read(sequence, 1)) is not None:
        found += [record.value for record in decode_records(chunk.data)]
        sequence = chunk.next_sequence
        if sequence == log.state.committed:
            break
    return found


def test_publications_wait_for_their_log_and_keep_their_order(bench: Bench) -> None:
    """A producer whose partition is being recovered loses nothing and notices only a delay."""
    gate = Gate(bench.hub, 0)
    receipts = [publish(bench, 0, body) for body in (b"first", b"second", b"third")]
    bench.turn.run()
    were_done = [receipt.is_done for receipt in receipts]

    gate.release()
    bench.turn.run()

    assert were_done == [False, False, False]
    assert [(receipt.sequence_number, receipt.error) for receipt in receipts] == [(0, None), (1, None), (2, None)]
    assert bodies(bench, 0) == [b"first", b"second", b"third"]
    assert (gate.waiting.count, gate.waiting.size_bytes) == (0, 0)


def test_other_partitions_go_on_while_one_is_opened(bench: Bench) -> None:
    """Only requests that need the log wait for it."""
    Gate(bench.hub, 0)
    waiting = publish(bench, 0)

    receipt = publish(bench, 1)
    bench.turn.run()

    assert (waiting.is_done, receipt.is_done, receipt.error) == (False, True, None)


def test_request_that_has_waited_too_long_is_refused(bench: Bench) -> None:
    """Its client retries; a wait without end would look like a node that hangs."""
    gate = Gate(bench.hub, 0)
    receipt = publish(bench, 0)
    bench.broker.upkeep.expire_openings(bench.now + 1.0)
    was_done = receipt.is_done

    expire(bench.broker.upkeep, bench.now)

    assert not was_done
    assert isinstance(receipt.error, PartitionOpening)
    assert "Partition 0 of 'orders' is still being opened" in str(receipt.error)
    assert gate.waiting.count == 0


def test_log_that_cannot_be_opened_refuses_those_who_waited(bench: Bench) -> None:
    """They get the reason, as a request that comes later does; a second later the log is tried again."""
    gate = Gate(bench.hub, 0)
    receipt = publish(bench, 0)
    gate.fail(StorageFull("no space"))

    with pytest.raises(StorageFull):
        publish(bench, 0)
    expire(bench.broker.upkeep, bench.now)
    again = publish(bench, 0)
    gate.release()
    bench.turn.run()

    assert isinstance(receipt.error, StorageFull)
    assert (again.error, again.sequence_number) == (None, 0)


@pytest.mark.parametrize(("limit", "value"), [("MAX_WAITING", 2), ("MAX_WAITING_BYTES", 200)])
def test_requests_beyond_the_bound_are_refused_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Waiting requests take memory, in number and in bytes."""
    monkeypatch.setattr(opening, limit, value)
    gate = Gate(bench.hub, 0, 1)
    publish(bench, 0)
    publish(bench, 1)

    with pytest.raises(PartitionOpening):
        publish(bench, 0, b"x" * 100)

    assert gate.waiting.count == 2


def test_events_without_a_key_avoid_a_log_that_is_being_recovered(bench: Bench) -> None:
    """A new log is worth waiting for: partitions stay equally full. A recovery may take long, and others are open."""
    gate = Gate(bench.hub, 0)
    first = publish(bench, None)
    bench.broker.upkeep.expire_openings(bench.now + 1.0)

    others = [publish(bench, None) for _ in range(8)]
    bench.turn.run()

    assert not first.is_done
    assert all(receipt.is_done for receipt in others)
    gate.release()
    bench.turn.run()
    assert bench.hub.log(0).state.committed == 1


def test_events_without_a_key_wait_when_all_logs_are_being_recovered(bench: Bench) -> None:
    """Then there is nothing better than to wait."""
    gate = Gate(bench.hub, 0, 1, 2, 3)
    for partition in range(4):
        bench.hub.open_ahead(partition)
    expire(bench.broker.upkeep, bench.now)
    receipt = publish(bench, None)

    gate.release()
    bench.turn.run()

    assert receipt.error is None
    assert receipt.is_done


def test_kafka_reader_sees_nothing_until_the_log_is_open(bench: Bench) -> None:
    """A fetch stays parked: it is woken like by an append."""
    publish(bench, 1)
    gate, moves = Gate(bench.hub, 0), []
    reader = PartitionReader(bench.hub, 0, lambda: moves.append(1))
    before = reader.read(7, max_bytes=100, space_bytes=100)

    gate.release()
    after = reader.read(0, max_bytes=100, space_bytes=100)

    assert (before.chunk, before.refusal, before.state.committed, reader.state.committed) == (None, None, -1, 0)
    assert (after.state.committed, moves) == (0, [1])
    publish(bench, 0)
    bench.turn.run()
    assert moves == [1, 1]


def test_kafka_reader_reports_why_a_log_cannot_be_opened(bench: Bench) -> None:
    """The same refusal as if the log had been opened at once."""
    gate = Gate(bench.hub, 0)
    reader = PartitionReader(bench.hub, 0, lambda: None)
    gate.fail(StorageFull("no space"))

    with pytest.raises(StorageFull):
        reader.read(0, max_bytes=100, space_bytes=100)


def test_reader_that_is_closed_leaves_nothing_behind(bench: Bench) -> None:
    """A client may go while it waits."""
    gate, moves = Gate(bench.hub, 0), []
    reader = PartitionReader(bench.hub, 0, lambda: moves.append(1))
    waited = gate.waiting.count

    reader.close()
    reader.close()
    gate.release()

    assert (waited, gate.waiting.count, moves) == (1, 0, [])


def test_deleted_hub_ends_every_wait(bench: Bench) -> None:
    """Its log will never be there."""
    gate = Gate(bench.hub, 0)
    hub, receipt = bench.hub, publish(bench, 0)

    bench.do(lambda done: bench.manager.delete_hub("hubmere", "orders", bench.actor(), done))

    assert isinstance(receipt.error, HubNotFound)
    assert gate.waiting.count == 0
    with pytest.raises(HubNotFound):
        hub.log(1)
    gate.release()


def test_settings_that_change_while_a_log_is_opened_are_in_force_when_it_is_open(bench: Bench) -> None:
    """The opening began with the old ones."""
    gate = Gate(bench.hub, 0)
    publish(bench, 0)
    spec = HubSpec(retention_hours=2)
    bench.do(lambda done: bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), done))

    gate.release()

    assert bench.hub.config.retention_ms == 2 * 3600 * 1000
    assert bench.hub.log(0)._config == bench.hub.config  # type: ignore[attr-defined]


@pytest.mark.parametrize("ends", ["opened", "expired"])
def test_failing_callback_does_not_keep_others_waiting(
    bench: Bench, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    """One client's error is its own."""
    gate, called = Gate(bench.hub, 0), []

    def fail() -> None:
        raise ValueError

    for on_done in (fail, lambda: called.append(1)):
        with pytest.raises(LogOpening) as refusal:
            bench.hub.log(0)
        assert isinstance(refusal.value.wait(on_done, bench.now), Waiting)
    if ends == "opened":
        gate.release()
        assert "the callback of its opening failed" in caplog.text
    else:
        with pytest.raises(ValueError, match=r"^$"):
            expire(bench.broker.upkeep, bench.now)

    assert called == [1]
