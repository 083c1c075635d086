"""Flipped bits, truncated and missing files of a log: only the damaged events are missing, and they are reported."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from client.hubs import an_account
from conformance.amqp.azure_clients import a_consumer, receive
from hubmere.client.connection import Client
from hubmere.client.consumer import HubReader
from hubmere.model.clock import SystemClock
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.pipeline.decode import decode
from hubmere.records.header import HEADER_BYTES, read_header
from hubmere.settings import HubSetting
from hubmere.store.doctor import Kind, check, repair
from hubmere.store.engine import LogConfig
from hubmere.store.local import LocalEngine
from hubmere.store.log.committed_file import COMMITTED
from hubmere.store.log.log import LocalLog
from hubmere.store.log.segments.segment import INDEX, LOG, TIME_INDEX, stem
from hubmere.store.recovery.manifest import DAMAGE
from hubmere.testing import Node
from store.builders import LOG_0, Owner, a_batch, an_engine, everything, open_log
from store.faulty_files import FaultyFiles, Loss

ROOT = Path("/data")
FOLDER = ROOT / "log" / LOG_0
ACTIVE = FOLDER / (stem(0) + LOG)
CONFIG = LogConfig(segment_bytes=1 << 20)
COUNT = 60


class Crashed:
    """A disk whose node was killed after it had acknowledged `count` batches of one or two events."""

    def __init__(self, *, count: int = COUNT, maintained: int = 0, config: LogConfig = CONFIG, size: int = 100) -> None:
        files, owner = FaultyFiles(), Owner()
        files.make_directory(ROOT)
        files.sync_directory(Path("/"))
        engine = an_engine(ROOT, owner, files)
        log = open_log(engine, LOG_0, config)
        self.config = config
        self.bodies: dict[int, bytes] = {}
        self.receipts: list[Receipt] = []
        for number in range(count):
            values = [b"%d" % number + b"x" * size] * (1 + number % 2)
            batch = a_batch(values, producer=(5, 0, sum(receipt.count for receipt in self.receipts)))
            self.receipts.append(log.append(batch, 1_000 + number))
            owner.run()
            self.bodies[self.receipts[-1].sequence_number] = bytes(batch[HEADER_BYTES:])
            if number + 1 == maintained:
                engine.maintain(2_000)
                owner.run()
        self.end = log.state.committed
        self.files = files.after_cut(Loss.NONE)

    def reopen(self) -> tuple[LocalEngine, LocalLog, Owner]:
        owner = Owner()
        engine = an_engine(ROOT, owner, self.files)
        return engine, open_log(engine, LOG_0, self.config), owner


def served(log: LocalLog) -> dict[int, bytes]:
    """Events that readers get, by the sequence number of their batch; an empty batch covers damage at the end."""
    return {header.base_sequence_number: body for header, body in everything(log) if header.record_count}


def missing_numbers(engine: LocalEngine) -> set[int]:
    ranges = engine.damage.ranges(LOG_0)
    return {number for each in ranges for number in range(each.first_sequence, each.next_sequence)}


def assert_only_reported_events_are_missing(crashed: Crashed, engine: LocalEngine, log: LocalLog) -> None:
    """Every acknowledged event is served unchanged, or is inside a reported range."""
    found, missing = served(log), missing_numbers(engine)
    assert log.state.committed == crashed.end
    for sequence, body in crashed.bodies.items():
        if sequence in missing:
            assert sequence not in found
        else:
            assert found[sequence] == body
    assert found.keys() <= crashed.bodies.keys()


@pytest.mark.parametrize("maintained", [0, 20], ids=["no recovery point", "behind a recovery point"])
def test_one_flipped_bit_after_a_crash_damages_one_batch(maintained: int) -> None:
    """Every byte of header, length, number, checksum and record is tested, each on a new copy."""
    size = Crashed().receipts[0].size_bytes
    for place in [*range(HEADER_BYTES), 70, 100, size - 1]:
        crashed = Crashed(maintained=maintained)
        victim = crashed.receipts[30]
        crashed.files.corrupt(ACTIVE, victim.offset + place)
        before = crashed.files.size(ACTIVE)

        engine, log, owner = crashed.reopen()

        # The leader epoch (bytes 12 to 15) is not covered by the checksum, and no reader uses it.
        hit = range(victim.sequence_number, victim.sequence_number + victim.count)
        served(log)
        assert missing_numbers(engine) == (set() if 12 <= place < 16 else set(hit)), f"byte {place}"
        assert_only_reported_events_are_missing(crashed, engine, log)
        assert crashed.files.size(ACTIVE) == before
        receipt = log.append(a_batch([b"new"]), 9_000)
        owner.run()
        assert receipt.sequence_number == crashed.end


def test_several_flipped_bits_damage_only_their_batches() -> None:
    """Several damages in one file give several ranges, and the next start finds them again."""
    for seed in range(40):
        random, crashed = Random(seed), Crashed(maintained=seed % 3 * 25)
        for _ in range(random.randint(1, 6)):
            crashed.files.corrupt(ACTIVE, random.randrange(crashed.files.size(ACTIVE)))

        engine, log, _ = crashed.reopen()
        assert_only_reported_events_are_missing(crashed, engine, log)
        served(log)
        first, missing = missing_numbers(engine), len(missing_numbers(engine))
        engine.close()
        again, reopened, _ = crashed.reopen()
        served(reopened)

        assert missing_numbers(again) == first
        assert missing <= 6 * 4
        assert_only_reported_events_are_missing(crashed, again, reopened)


def test_acknowledged_damage_at_the_end_is_kept_and_skipped() -> None:
    """The committed position distinguishes it from an interrupted write: its number is not reused."""
    crashed = Crashed()
    last = crashed.receipts[-1]
    crashed.files.corrupt(ACTIVE, last.offset + 80)
    before = crashed.files.size(ACTIVE)

    engine, log, owner = crashed.reopen()
    chunk = log.read(last.sequence_number, 1_000)
    receipt = log.append(a_batch([b"new"]), 9_000)
    owner.run()

    assert missing_numbers(engine) == set(range(last.sequence_number, crashed.end))
    assert crashed.files.size(ACTIVE) == before + receipt.size_bytes
    assert chunk is not None
    assert (chunk.next_sequence, read_header(chunk.data).record_count) == (crashed.end, 0)
    assert receipt.sequence_number == crashed.end
    assert served(log)[crashed.end] is not None


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\xff" * 80, b"short"])
def test_incomplete_write_is_truncated(tail: bytes) -> None:
    """It was never acknowledged, so it is no damage and is not reported."""
    crashed = Crashed()
    before = crashed.files.size(ACTIVE)
    fd = crashed.files.open(ACTIVE, write=True)
    crashed.files.write(fd, tail)

    engine, log, _ = crashed.reopen()

    assert crashed.files.size(ACTIVE) == before
    assert engine.damage.is_empty
    assert_only_reported_events_are_missing(crashed, engine, log)


def test_incomplete_write_after_a_flipped_bit_is_truncated_and_the_damage_is_reported() -> None:
    """Two problems in one file are distinguished."""
    crashed = Crashed()
    victim = crashed.receipts[40]
    crashed.files.corrupt(ACTIVE, victim.offset + 9)  # its length
    before = crashed.files.size(ACTIVE)
    fd = crashed.files.open(ACTIVE, write=True)
    crashed.files.write(fd, bytes(a_batch([b"z" * 200]))[:100])

    engine, log, _ = crashed.reopen()

    assert crashed.files.size(ACTIVE) == before
    assert missing_numbers(engine) == set(range(victim.sequence_number, victim.sequence_number + victim.count))
    assert_only_reported_events_are_missing(crashed, engine, log)


@pytest.mark.parametrize("kept_bytes", [0, 1, 500, 3_000])
def test_file_shorter_than_the_acknowledged_data_is_reported_as_loss(kept_bytes: int) -> None:
    """Lost acknowledged events are always reported, and their numbers and offsets are never used again."""
    crashed = Crashed()
    last_offset = crashed.receipts[-1].offset
    fd = crashed.files.open(ACTIVE, write=True)
    crashed.files.truncate(fd, kept_bytes)

    engine, log, owner = crashed.reopen()
    receipt = log.append(a_batch([b"new"]), 9_000)
    owner.run()

    (lost,) = engine.damage.ranges(LOG_0)
    assert (lost.kind.value, lost.next_sequence) == ("missing on disk", crashed.end)
    assert (receipt.sequence_number, receipt.offset > last_offset) == (crashed.end, True)
    assert log.find(Position.offset(last_offset, inclusive=False)) == crashed.end
    found = served(log)
    assert {number: body for number, body in crashed.bodies.items() if number < lost.first_sequence}.items() <= (
        found.items()
    )


def test_missing_active_file_is_reported_as_loss() -> None:
    """Someone has deleted the newest file."""
    crashed = Crashed()
    crashed.files.unlink(ACTIVE)

    engine, log, owner = crashed.reopen()
    receipt = log.append(a_batch([b"new"]), 9_000)
    owner.run()

    assert missing_numbers(engine) == set(range(crashed.end))
    assert receipt.sequence_number == crashed.end
    assert served(log).keys() == {crashed.end}


def test_intact_copy_that_was_restored_is_served_again() -> None:
    """Damaged ranges are checked again at each start."""
    crashed = Crashed()
    crashed.files.corrupt(ACTIVE, crashed.receipts[30].offset + 80)
    engine, log, _ = crashed.reopen()
    served(log)
    engine.close()
    assert DAMAGE in crashed.files.names(FOLDER)
    crashed.files.corrupt(ACTIVE, crashed.receipts[30].offset + 80)

    engine, log, _ = crashed.reopen()

    assert served(log).keys() == crashed.bodies.keys()
    assert engine.damage.is_empty
    assert DAMAGE not in crashed.files.names(FOLDER)


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_flipped_bit_in_an_index_loses_no_event(suffix: str) -> None:
    """Indexes are derived: with any content, every event is found and nothing is reported as damaged."""
    config = LogConfig(segment_bytes=40_000)
    sound = Crashed(count=400, config=config, size=120)
    name = stem(0) + suffix
    engine, log, _ = sound.reopen()
    everything(log)
    engine.close()
    size = sound.files.size(FOLDER / name)
    for at in range(0, size, 7):
        disk = sound.files.after_cut(Loss.NONE)
        disk.corrupt(FOLDER / name, at)
        engine = an_engine(ROOT, Owner(), disk)
        log = open_log(engine, LOG_0, config)

        for sequence in range(0, sound.end, 37):
            chunk = log.read(sequence, 3_000)
            assert chunk is not None
            assert chunk.first_sequence <= sequence < chunk.next_sequence
        assert served(log) == sound.bodies
        assert engine.damage.is_empty, f"byte {at}"


def test_damage_in_a_sealed_file_is_found_by_its_first_reader() -> None:
    """Old files are not read at a start; the first reader skips the damage and reports it."""
    config = LogConfig(segment_bytes=2_000)
    for place in range(0, HEADER_BYTES, 5):
        crashed = Crashed(config=config)
        engine, log, _ = crashed.reopen()
        engine.close()
        crashed.files.corrupt(ACTIVE, crashed.receipts[4].offset + place)

        engine, log, _ = crashed.reopen()
        quiet = engine.damage.is_empty
        served(log)

        assert quiet
        assert_only_reported_events_are_missing(crashed, engine, log)
        assert missing_numbers(engine) <= set(range(6, 8)) if place not in range(12, 16) else True


def test_event_that_looks_like_a_batch_is_not_read_as_one() -> None:
    """A forged batch inside a damaged event, with numbers far ahead, must not become part of the log."""
    files, owner = FaultyFiles(), Owner()
    files.make_directory(ROOT)
    engine = an_engine(ROOT, owner, files)
    log = open_log(engine, LOG_0, CONFIG)
    forged = a_batch([b"forged"])
    forged[0:8] = (50).to_bytes(8, "big")
    receipts = []
    for number in range(20):
        receipts.append(log.append(a_batch([bytes(forged) * 3 if number == 10 else b"plain" * 30]), 1_000))
        owner.run()
    disk = files.after_cut(Loss.NONE)
    disk.corrupt(ACTIVE, receipts[10].offset + 8)

    engine = an_engine(ROOT, Owner(), disk)
    log = open_log(engine, LOG_0, CONFIG)

    assert set(served(log)) == set(range(20)) - {10}
    assert missing_numbers(engine) == {10}


def test_producer_with_damaged_batches_can_continue() -> None:
    """Its next batch is not a gap, and a repeat of an intact one is still a duplicate."""
    crashed = Crashed()
    last, before = crashed.receipts[-1], crashed.receipts[-2]
    crashed.files.corrupt(ACTIVE, last.offset + 80)
    _, log, owner = crashed.reopen()

    repeat = log.append(a_batch([b"58" + b"x" * 100], producer=(5, 0, before.sequence_number)), 9_000)
    onward = log.append(a_batch([b"next"], producer=(5, 0, crashed.end)), 9_000)
    owner.run()

    assert (repeat.is_duplicate, repeat.sequence_number) == (True, before.sequence_number)
    assert (onward.error, onward.is_duplicate, onward.sequence_number) == (None, False, crashed.end)


def test_damaged_recovery_point_does_not_truncate_intact_events() -> None:
    """An intact batch after the damaged one proves that the damage was acknowledged."""
    crashed = Crashed()
    victim = crashed.receipts[10]
    crashed.files.corrupt(ACTIVE, victim.offset + 80)
    crashed.files.corrupt(ROOT / "log" / COMMITTED, 64 + 20)

    engine, log, _ = crashed.reopen()

    assert_only_reported_events_are_missing(crashed, engine, log)
    assert missing_numbers(engine) == {victim.sequence_number}


def test_doctor_reports_every_damaged_range_and_repairs_no_acknowledged_data() -> None:
    """The doctor lists the same ranges as the running node."""
    crashed = Crashed()
    victims = [crashed.receipts[number] for number in (10, 30, 59)]
    for victim in victims:
        crashed.files.corrupt(ACTIVE, victim.offset + 80)
    content = crashed.files.read(ACTIVE)

    found = check(ROOT, crashed.files).findings
    repair(ROOT, crashed.files)

    assert [(finding.kind, finding.position) for finding in found] == [
        (Kind.CORRUPT, victim.offset) for victim in victims
    ]
    assert f"sequence numbers {victims[2].sequence_number} to {crashed.end - 1}" in str(found[2])
    assert crashed.files.read(ACTIVE) == content


def test_doctor_reports_a_file_that_is_too_short() -> None:
    """A loss is different from a torn write."""
    crashed = Crashed()
    cut_at = crashed.receipts[20]
    fd = crashed.files.open(ACTIVE, write=True)
    crashed.files.truncate(fd, cut_at.offset)

    (finding,) = check(ROOT, crashed.files).findings

    assert finding.kind is Kind.LOST
    assert f"sequence numbers {cut_at.sequence_number} to {crashed.end - 1}" in finding.detail


# --- a real node -----------------------------------------------------------------------------------------------------

EVENTS = 300
FEW = 20
MESSAGES = "/orders/consumergroups/$Default/partitions/0/messages"
VICTIM = 80


def _token(node: Node) -> str:
    signer = ConnectionString.parse(node.connection_string)
    assert signer.key_name is not None
    assert signer.key is not None
    until_s = SystemClock().now_ms() // 1000 + 600
    return make_token(f"sb://{signer.host}/orders", signer.key_name, signer.key, expires_at_s=until_s)


def _get(node: Node, path: str) -> Any:
    request = urllib.request.Request(f"{node.http}{path}", headers={"Authorization": _token(node)})
    with urllib.request.urlopen(request, timeout=240) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that acknowledged some hundred events, was killed, had one bit flipped, and was started again."""
    with _a_damaged_node(tmp_path_factory.mktemp("damaged") / "data", EVENTS, VICTIM) as node:
        yield node


@pytest.fixture(scope="module")
def damaged_at_the_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The same with a flipped bit in the last event."""
    with _a_damaged_node(tmp_path_factory.mktemp("damaged") / "data", FEW, FEW - 1) as node:
        yield node


@contextmanager
def _a_damaged_node(data: Path, count: int, victim: int) -> Iterator[Node]:
    node = Node(hubs=[HubSetting(name="orders", partition_count=1)], data=data)
    with node:
        token = _token(node)
        for number in range(count):
            request = urllib.request.Request(
                f"{node.http}/orders/messages", b"event %d" % number, {"Authorization": token}, method="POST"
            )
            with urllib.request.urlopen(request, timeout=240) as answer:
                assert answer.status == 201
        node.kill()
        (path,) = data.glob(f"log/*/{stem(0)}{LOG}")
        content = bytearray(path.read_bytes())
        at = 0
        for _ in range(victim):
            at += read_header(content, at).size_bytes
        content[at + 70] ^= 1
        path.write_bytes(content)
        node.start()
        yield node


def test_all_other_events_are_read_over_http_and_the_gap_is_reported(damaged: Node) -> None:
    """Before, one flipped bit made every later event of the file unreadable."""
    numbers: list[int] = []
    results: list[dict[str, int]] = []
    following = 0
    while following < EVENTS:
        page = _get(damaged, f"{MESSAGES}?from=sequence:{following}&limit=1000")
        results += page.get("damagedRanges", [])
        numbers += [event["sequenceNumber"] for event in page["events"]]
        following = page["nextSequenceNumber"]

    assert numbers == [number for number in range(EVENTS) if number != VICTIM]
    assert [(each["firstSequenceNumber"], each["lastSequenceNumber"]) for each in results] == [(VICTIM, VICTIM)]


def _a_kafka_consumer(node: Node) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": node.connection_string,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    return consumer


def test_all_other_events_are_read_over_kafka(damaged: Node) -> None:
    """Consumers see a gap in the offsets, as after compaction, and continue."""
    consumer = _a_kafka_consumer(damaged)
    offsets: list[int | None] = []
    for _ in range(240):
        offsets += [message.offset() for message in consumer.consume(EVENTS, timeout=1.0) if message.error() is None]
        if offsets and offsets[-1] == EVENTS - 1:
            break
    consumer.close()

    assert offsets == [number for number in range(EVENTS) if number != VICTIM]


def test_all_other_events_are_read_over_amqp(damaged: Node) -> None:
    """The reader skips the damage, and its link stays attached."""
    with a_consumer(damaged.emulator_connection_string, "orders") as consumer:
        received = receive(consumer, EVENTS - 1, partition_id="0", starting_position="-1")

    numbers = [event.sequence_number for _, event in received.events]
    assert numbers == [number for number in range(EVENTS) if number != VICTIM]


def test_damage_is_reported_in_log_health_readiness_and_metrics(damaged: Node) -> None:
    """An operator sees it without asking a consumer."""
    # Recovery finds the damage only after the last recovery point. Before it, a reader does.
    _get(damaged, f"{MESSAGES}?from=sequence:{VICTIM}")

    health, ready = _get(damaged, "/health"), _get(damaged, "/ready")
    with urllib.request.urlopen(f"{damaged.http}/metrics", timeout=240) as answer:
        metrics = answer.read().decode()

    assert f"sequence numbers {VICTIM} to {VICTIM} are broken on disk" in damaged.logs()
    assert "never acknowledged" not in damaged.logs()
    assert health["warnings"] == ["1 ranges of stored events cannot be read; see /ready."]
    assert ready["status"] == "degraded"
    (named,) = ready["damagedRanges"]
    assert (named["firstSequenceNumber"], named["lastSequenceNumber"]) == (VICTIM, VICTIM)
    assert 'hubmere_damaged_events{namespace="hubmere",eventhub="orders"} 1' in metrics


def test_kafka_consumers_reach_a_damaged_end(damaged_at_the_end: Node) -> None:
    """An empty batch moves them past it to the end of the partition, instead of an error for ever."""
    consumer = _a_kafka_consumer(damaged_at_the_end)
    offsets: list[int | None] = []
    ends: list[int | None] = []
    for _ in range(240):
        for message in consumer.consume(1, timeout=1.0):
            error = message.error()
            if error is None:
                offsets.append(message.offset())
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.append(message.offset())
        if FEW in ends:
            break
    consumer.close()

    assert offsets == list(range(FEW - 1))
    assert FEW in ends


def test_range_that_ends_in_damage_is_read_to_its_end_by_spark(damaged_at_the_end: Node) -> None:
    """The source plans up to the end of the partition, and waits for an answer that reaches it."""
    with Client(an_account(damaged_at_the_end)) as client:
        fetched = list(HubReader(client, "orders").read_range(0, 0, FEW))

    rows = [batch for each in fetched for batch in decode(each, 0, 0, FEW)]
    assert fetched[-1].next_sequence == FEW
    assert [number for batch in rows for number in batch["sequenceNumber"].to_pylist()] == list(range(FEW - 1))


def test_amqp_reader_continues_after_a_damaged_end(tmp_path: Path) -> None:
    """Events after the damage are delivered on the same link as those before it."""
    with _a_damaged_node(tmp_path / "data", FEW, FEW - 1) as node:
        url, headers = f"{node.http}/orders/messages", {"Authorization": _token(node)}
        with urllib.request.urlopen(urllib.request.Request(url, b"new", headers, method="POST"), timeout=240):
            pass
        with a_consumer(node.emulator_connection_string, "orders") as consumer:
            received = receive(consumer, FEW, partition_id="0", starting_position="-1")

    assert [event.sequence_number for _, event in received.events] == [*range(FEW - 1), FEW]
