"""Idempotent and transactional producers: duplicates, fencing, gaps, markers, and the state after a restart."""

from pathlib import Path

import pytest

from hubmere.model.errors import ProducerFenced, SequenceGap, TransactionRefused
from hubmere.store.log import producers
from hubmere.store.log.log import LocalLog
from hubmere.store.log.producers import EXPIRY_MS, MAX_PRODUCERS, ProducerTable
from hubmere.store.log.segments.segment import SNAPSHOT
from store.builders import LOG_0, Owner, a_batch, an_engine, batches_of, open_log, small_segments

TRANSACTIONAL = 0x10


def a_log(root: Path, owner: Owner) -> LocalLog:
    return open_log(an_engine(root, owner), LOG_0, small_segments())


def test_a_duplicate_of_the_last_five_batches_gets_its_position(tmp_path: Path) -> None:
    """A producer that did not get the answer sends its batch again, and it must not be stored twice."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    receipts = [log.append(a_batch([b"a", b"b"], producer=(9, 0, 2 * step)), 1_000 + step) for step in range(7)]
    owner.run()

    repeat = log.append(a_batch([b"a", b"b"], producer=(9, 0, 8)), 2_000)
    owner.run()

    original = receipts[4]
    assert repeat.is_duplicate
    assert repeat.is_done
    assert (repeat.sequence_number, repeat.offset) == (original.sequence_number, original.offset)
    assert repeat.enqueued_at_ms == original.enqueued_at_ms
    assert log.state.committed == 14


def test_duplicate_completes_only_with_its_original(tmp_path: Path) -> None:
    """Acknowledging the duplicate before the original is durable would acknowledge the original."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch(producer=(9, 0, 0)), 1_000)
    repeat = log.append(a_batch(producer=(9, 0, 0)), 1_000)

    before = repeat.is_done
    owner.run()

    assert (before, repeat.is_done) == (False, True)


def test_older_duplicate_is_out_of_order_for_kafka_and_a_duplicate_for_amqp(tmp_path: Path) -> None:
    """Kafka remembers five batches; for AMQP every batch that is not newer is a duplicate."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    for step in range(7):
        log.append(a_batch(producer=(9, 0, step)), 1_000)

    with pytest.raises(SequenceGap):
        log.append(a_batch(producer=(9, 0, 0)), 1_000)
    lenient = log.append(a_batch(producer=(9, 0, 0)), 1_000, lenient_producer=True)
    owner.run()

    assert (lenient.is_duplicate, lenient.is_done, lenient.sequence_number) == (True, True, -1)
    assert log.state.committed == 7


@pytest.mark.parametrize("lenient", [False, True])
def test_gap_is_refused_without_a_change(tmp_path: Path, lenient: bool) -> None:
    """A lost batch must not be hidden by the next one."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch(producer=(9, 0, 0)), 1_000)

    with pytest.raises(SequenceGap) as refusal:
        log.append(a_batch(producer=(9, 0, 2)), 1_000, lenient_producer=lenient)
    log.append(a_batch(producer=(9, 0, 1)), 1_000)

    assert (refusal.value.got, refusal.value.last) == (2, 0)
    assert log.producer_last_sequence(9) == (0, 1)


def test_higher_epoch_takes_over_and_fences_the_lower(tmp_path: Path) -> None:
    """Of two instances of a producer, the newer one wins."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch(producer=(9, 1, 5)), 1_000)

    with pytest.raises(SequenceGap):
        log.append(a_batch(producer=(9, 2, 6)), 1_000)
    log.append(a_batch(producer=(9, 2, 0)), 1_000)

    with pytest.raises(ProducerFenced) as fenced:
        log.append(a_batch(producer=(9, 1, 6)), 1_000)
    assert (fenced.value.epoch, fenced.value.current_epoch) == (1, 2)


def test_unknown_producer_may_start_at_any_sequence_number(tmp_path: Path) -> None:
    """Its state may have expired while the client continued."""
    owner = Owner()
    log = a_log(tmp_path, owner)

    log.append(a_batch(producer=(9, 3, 1_000)), 1_000)

    assert log.producer_last_sequence(9) == (3, 1_000)
    assert log.producer_last_sequence(8) is None


def test_all_remembered_producers_are_listed(tmp_path: Path) -> None:
    """Administration tools list the producers; none of these has an open transaction."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch([b"a", b"b"], producer=(9, 0, 0)), 1_000)
    log.append(a_batch(producer=(8, 3, 7)), 2_000)
    log.append(a_batch(), 3_000)

    assert list(log.producers()) == [(9, 0, 1, 1_000, -1), (8, 3, 7, 2_000, -1)]


def test_sequence_numbers_of_a_producer_wrap_around(tmp_path: Path) -> None:
    """Kafka: 2147483647 is followed by 0."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch([b"a", b"b"], producer=(9, 0, 2**31 - 2)), 1_000)

    log.append(a_batch([b"c"], producer=(9, 0, 0)), 1_000)

    assert log.producer_last_sequence(9) == (0, 0)


@pytest.mark.parametrize("is_clean", [True, False])
def test_duplicates_are_recognised_after_a_restart(tmp_path: Path, is_clean: bool) -> None:
    """The state survives a clean stop in the snapshot, and a crash by the scan of the log."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    log = open_log(engine, LOG_0, small_segments())
    receipts = [log.append(a_batch([b"x" * 90], producer=(9, 0, step)), 1_000) for step in range(20)]
    owner.run()
    if is_clean:
        engine.close()

    again = a_log(tmp_path, owner)
    repeats = [again.append(a_batch([b"x" * 90], producer=(9, 0, step)), 1_000) for step in range(15, 20)]
    owner.run()

    assert [repeat.sequence_number for repeat in repeats] == [receipt.sequence_number for receipt in receipts[15:]]
    assert [repeat.offset for repeat in repeats] == [receipt.offset for receipt in receipts[15:]]
    assert again.state.committed == 20


def test_damaged_snapshot_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    """A snapshot only saves time; the log has all the information."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    open_log(engine, LOG_0, small_segments()).append(a_batch(producer=(9, 0, 0)), 1_000)
    owner.run()
    engine.close()
    snapshot = next((tmp_path / "log" / LOG_0).glob("*" + SNAPSHOT))
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"?")

    again = a_log(tmp_path, owner)

    assert again.producer_last_sequence(9) == (0, 0)


def test_idle_producers_expire_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short-lived producers must not fill the memory; producers with an open transaction are kept."""
    monkeypatch.setattr(producers, "MAX_PRODUCERS", 100)
    table = ProducerTable()
    table.record(1, 0, 0, 0, 0, 5, transactional=True)
    for producer_id in range(2, 301):
        table.record(producer_id, 0, 0, 0, producer_id, producer_id, transactional=False)

    bounded = len(table)
    table.expire(EXPIRY_MS + 400)

    assert bounded <= 100 < MAX_PRODUCERS
    assert (len(table), table.find(1) is not None) == (1, True)


# --- transactions ---


def test_open_transaction_holds_back_the_last_stable_offset(tmp_path: Path) -> None:
    """read_committed readers stop before the first event of an open transaction."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch([b"before"]), 1_000)
    log.append(a_batch([b"in"], producer=(9, 0, 0), attributes=TRANSACTIONAL), 1_000)
    log.append(a_batch([b"beside"]), 1_000)
    owner.run()

    held = log.state
    stable = log.read(0, 10_000, stable_only=True)
    log.append_marker(9, 0, 2_000, commit=True)
    uncommitted_marker = log.state.last_stable
    owner.run()

    assert (held.committed, held.last_stable) == (3, 1)
    assert [header.base_sequence_number for header, _ in batches_of(stable)] == [0]
    assert log.read(1, 10_000, stable_only=True) is not None
    assert uncommitted_marker == 1
    assert log.state.last_stable == 4
    assert list(log.aborted_transactions(0, 4)) == []


def test_aborted_transaction_is_listed_for_every_range_that_it_touches(tmp_path: Path) -> None:
    """The Fetch response names the events to skip."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch([b"before"]), 1_000)
    log.append(a_batch([b"x", b"y"], producer=(9, 0, 0), attributes=TRANSACTIONAL), 1_000)
    log.append_marker(9, 0, 1_000, commit=False)
    log.append(a_batch([b"after"]), 1_000)
    owner.run()

    found = log.aborted_transactions(2, 3)

    assert list(found) == [(9, 1, 3)]
    assert list(log.aborted_transactions(4, 5)) == []
    assert list(log.aborted_transactions(0, 1)) == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_transactions_survive_a_restart(tmp_path: Path, is_clean: bool) -> None:
    """Open transactions stay open and aborted ones aborted, across segments."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    log = open_log(engine, LOG_0, small_segments())
    log.append(a_batch([b"x" * 300], producer=(9, 0, 0), attributes=TRANSACTIONAL), 1_000)
    log.append(a_batch([b"y" * 300], producer=(8, 0, 0), attributes=TRANSACTIONAL), 1_000)
    log.append(a_batch([b"z" * 300], producer=(9, 0, 1), attributes=TRANSACTIONAL), 1_000)
    log.append_marker(9, 0, 1_000, commit=False)
    log.append(a_batch([b"x" * 300]), 1_000)
    owner.run()
    if is_clean:
        engine.close()

    again = a_log(tmp_path, owner)

    assert again.state.last_stable == 1
    assert list(again.aborted_transactions(0, 1)) == [(9, 0, 3)]
    again.append_marker(8, 0, 2_000, commit=True)
    owner.run()
    assert again.state.last_stable == again.state.committed == 6


def test_batch_outside_of_the_open_transaction_of_its_producer_is_refused(tmp_path: Path) -> None:
    """Kafka: while a producer has a transaction, all its batches belong to it."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch(producer=(9, 0, 0), attributes=TRANSACTIONAL), 1_000)

    with pytest.raises(TransactionRefused):
        log.append(a_batch(producer=(9, 0, 1)), 1_000)


def test_marker_with_an_old_epoch_is_fenced(tmp_path: Path) -> None:
    """An outdated coordinator must not end a newer transaction."""
    owner = Owner()
    log = a_log(tmp_path, owner)
    log.append(a_batch(producer=(9, 3, 0), attributes=TRANSACTIONAL), 1_000)

    with pytest.raises(ProducerFenced):
        log.append_marker(9, 2, 1_000, commit=True)
