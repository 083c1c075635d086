"""Requests that wait for a log to open: they keep their order, are limited in number and time, and leave no state."""

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from broker.gates import Gate, expire
from hubmere.broker.hubs import opening
from hubmere.broker.hubs.opening import LogOpening, Waiting
from hubmere.broker.partition_reader import PartitionReader
from hubmere.broker.publish import Publisher
from hubmere.model.errors import HubNotFound, PartitionOpening, StorageFull
from hubmere.model.receipt import Receipt
from hubmere.model.spec import HubSpec
from hubmere.records.records import decode_records


def publish(harness: BrokerHarness, partition: int | None, body: bytes = b"x") -> Receipt:
    """Publish one event as an endpoint does."""
    return Publisher(harness.hub).publish(
        a_batch(body=body), count=1, size_bytes=100, now=harness.now, now_ms=NOW_MS, partition=partition
    )


def bodies(harness: BrokerHarness, partition: int) -> list[bytes | None]:
    """The bodies of all events of a partition."""
    log, sequence, found = harness.hub.log(partition), 0, []
    while (chunk := log.read(sequence, 1)) is not None:
        found += [record.value for record in decode_records(chunk.data)]
        sequence = chunk.next_sequence
        if sequence == log.state.committed:
            break
    return found


def test_publications_wait_for_their_log_and_keep_their_order(harness: BrokerHarness) -> None:
    """A producer whose partition is being recovered loses no event; it only sees a delay."""
    gate = Gate(harness.hub, 0)
    receipts = [publish(harness, 0, body) for body in (b"first", b"second", b"third")]
    harness.turn.run()
    were_done = [receipt.is_done for receipt in receipts]

    gate.release()
    harness.turn.run()

    assert were_done == [False, False, False]
    assert [(receipt.sequence_number, receipt.error) for receipt in receipts] == [(0, None), (1, None), (2, None)]
    assert bodies(harness, 0) == [b"first", b"second", b"third"]
    assert (gate.waiting.count, gate.waiting.size_bytes) == (0, 0)


def test_other_partitions_are_served_while_one_is_opened(harness: BrokerHarness) -> None:
    """Only requests that need the log wait for it."""
    Gate(harness.hub, 0)
    waiting = publish(harness, 0)

    receipt = publish(harness, 1)
    harness.turn.run()

    assert (waiting.is_done, receipt.is_done, receipt.error) == (False, True, None)


def test_request_that_has_waited_too_long_is_refused(harness: BrokerHarness) -> None:
    """Its client retries; an endless wait would look like a node that hangs."""
    gate = Gate(harness.hub, 0)
    receipt = publish(harness, 0)
    harness.broker.upkeep.expire_openings(harness.now + 1.0)
    was_done = receipt.is_done

    expire(harness.broker.upkeep, harness.now)

    assert not was_done
    assert isinstance(receipt.error, PartitionOpening)
    assert "Partition 0 of 'orders' is still being opened" in str(receipt.error)
    assert gate.waiting.count == 0


def test_requests_that_wait_for_a_log_that_cannot_be_opened_are_refused(harness: BrokerHarness) -> None:
    """They get the same reason as later requests; a second later the log is tried again."""
    gate = Gate(harness.hub, 0)
    receipt = publish(harness, 0)
    gate.fail(StorageFull("no space"))

    with pytest.raises(StorageFull):
        publish(harness, 0)
    expire(harness.broker.upkeep, harness.now)
    again = publish(harness, 0)
    gate.release()
    harness.turn.run()

    assert isinstance(receipt.error, StorageFull)
    assert (again.error, again.sequence_number) == (None, 0)


@pytest.mark.parametrize(("limit", "value"), [("MAX_WAITING", 2), ("MAX_WAITING_BYTES", 200)])
def test_requests_beyond_the_bound_are_refused_at_once(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Waiting requests take memory, in number and in bytes."""
    monkeypatch.setattr(opening, limit, value)
    gate = Gate(harness.hub, 0, 1)
    publish(harness, 0)
    publish(harness, 1)

    with pytest.raises(PartitionOpening):
        publish(harness, 0, b"x" * 100)

    assert gate.waiting.count == 2


def test_events_without_a_key_are_not_sent_to_a_log_that_is_being_recovered(harness: BrokerHarness) -> None:
    """They wait for a new log, so that partitions stay equally full, but not for a recovery, which may take long."""
    gate = Gate(harness.hub, 0)
    first = publish(harness, None)
    harness.broker.upkeep.expire_openings(harness.now + 1.0)

    others = [publish(harness, None) for _ in range(8)]
    harness.turn.run()

    assert not first.is_done
    assert all(receipt.is_done for receipt in others)
    gate.release()
    harness.turn.run()
    assert harness.hub.log(0).state.committed == 1


def test_events_without_a_key_wait_when_all_logs_are_being_recovered(harness: BrokerHarness) -> None:
    """No other partition is available."""
    gate = Gate(harness.hub, 0, 1, 2, 3)
    for partition in range(4):
        harness.hub.open_ahead(partition)
    expire(harness.broker.upkeep, harness.now)
    receipt = publish(harness, None)

    gate.release()
    harness.turn.run()

    assert receipt.error is None
    assert receipt.is_done


def test_kafka_reader_gets_no_events_until_the_log_is_open(harness: BrokerHarness) -> None:
    """A fetch waits, and is woken as by an append."""
    publish(harness, 1)
    gate, moves = Gate(harness.hub, 0), []
    reader = PartitionReader(harness.hub, 0, lambda: moves.append(1))
    before = reader.read(7, max_bytes=100, space_bytes=100)

    gate.release()
    after = reader.read(0, max_bytes=100, space_bytes=100)

    assert (before.chunk, before.refusal, before.state.committed, reader.state.committed) == (None, None, -1, 0)
    assert (after.state.committed, moves) == (0, [1])
    publish(harness, 0)
    harness.turn.run()
    assert moves == [1, 1]


def test_kafka_reader_gets_the_reason_why_a_log_cannot_be_opened(harness: BrokerHarness) -> None:
    """The refusal is the same as if the log had been opened at once."""
    gate = Gate(harness.hub, 0)
    reader = PartitionReader(harness.hub, 0, lambda: None)
    gate.fail(StorageFull("no space"))

    with pytest.raises(StorageFull):
        reader.read(0, max_bytes=100, space_bytes=100)


def test_closed_reader_leaves_no_waiting_request(harness: BrokerHarness) -> None:
    """A client may disconnect while it waits."""
    gate, moves = Gate(harness.hub, 0), []
    reader = PartitionReader(harness.hub, 0, lambda: moves.append(1))
    waited = gate.waiting.count

    reader.close()
    reader.close()
    gate.release()

    assert (waited, gate.waiting.count, moves) == (1, 0, [])


def test_deleting_a_hub_ends_every_wait(harness: BrokerHarness) -> None:
    """Its log will never be opened."""
    gate = Gate(harness.hub, 0)
    hub, receipt = harness.hub, publish(harness, 0)

    harness.do(lambda done: harness.manager.delete_hub("hubmere", "orders", harness.actor(), done))

    assert isinstance(receipt.error, HubNotFound)
    assert gate.waiting.count == 0
    with pytest.raises(HubNotFound):
        hub.log(1)
    gate.release()


def test_settings_that_change_during_the_opening_apply_when_the_log_is_open(harness: BrokerHarness) -> None:
    """The opening began with the old settings."""
    gate = Gate(harness.hub, 0)
    publish(harness, 0)
    spec = HubSpec(retention_hours=2)
    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))

    gate.release()

    assert harness.hub.config.retention_ms == 2 * 3600 * 1000
    assert harness.hub.log(0)._config == harness.hub.config  # type: ignore[attr-defined]


@pytest.mark.parametrize("ends", ["opened", "expired"])
def test_failing_callback_does_not_delay_others(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    """An error of one client must not affect the others."""
    gate, called = Gate(harness.hub, 0), []

    def fail() -> None:
        raise ValueError

    for on_done in (fail, lambda: called.append(1)):
        with pytest.raises(LogOpening) as refusal:
            harness.hub.log(0)
        assert isinstance(refusal.value.wait(on_done, harness.now), Waiting)
    if ends == "opened":
        gate.release()
        assert "the callback of its opening failed" in caplog.text
    else:
        with pytest.raises(ValueError, match=r"^$"):
            expire(harness.broker.upkeep, harness.now)

    assert called == [1]
