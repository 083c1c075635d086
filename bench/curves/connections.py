"""Costs by number of connections: idle, waiting consumers, producers with one event in flight, readers of one tail."""

import time
from functools import partial

from bench.curves.common import Curve, Subject, Tools, a_node, batch_now, percentile_ms
from bench.load.amqp_crowd import AmqpCrowd
from bench.load.kafka_crowd import KafkaCrowd, Member, connected, fetch_frame, produce_frame
from bench.load.machine import cpu_seconds, private_bytes

HUB = "grown"
IDLE = (100, 1_000, 4_000)
CONSUMERS = (10, 100, 1_000)
PRODUCERS = (1, 10, 100, 500)
READERS = (1, 10, 50, 200)
_CONSUMER_PARTITIONS = 4
_WARM_UP_S = 0.5
# Published events per second, each of which goes to all readers of the partition.
_FAN_OUT_RATE = 20


def idle(tools: Tools) -> list[Curve]:
    """Connections that have signed in and do nothing, and consumers of an empty hub."""
    memory = Curve(
        slug="idle-connections",
        title="Idle Kafka connections",
        x_title="connections",
        y_title="memory of the node per connection, KiB",
    )
    waiting = Curve(
        slug="idle-consumers",
        title="Kafka consumers of a hub without events",
        x_title="consumers, each with a fetch that waits 500 ms",
        y_title="share of a processor, %",
    )
    with a_node(tools, {HUB: _CONSUMER_PARTITIONS}) as subject:
        with connected(subject.kafka_address, subject.password, 20):
            for count in IDLE:
                before = private_bytes(subject.node.pid)
                cpu_s, _, crowd = subject.cost_of(
                    partial(KafkaCrowd(subject.kafka_address, subject.password, count).__enter__)
                )
                memory.add("signed in", count, (private_bytes(subject.node.pid) - before) / 1024 / count)
                memory.notes.append(f"{count:,} sign-ins: {cpu_s / count * 1e6:.0f} µs of the node each")
                crowd.__exit__(None, None, None)
                time.sleep(0.3)
        for count in CONSUMERS:
            waiting.add("4 partitions each", count, _share_of_waiting(tools, subject, count))
    return [memory, waiting]


def _share_of_waiting(tools: Tools, subject: Subject, count: int) -> float:
    frame = fetch_frame(HUB, [(partition, 0) for partition in range(_CONSUMER_PARTITIONS)])
    with connected(subject.kafka_address, subject.password, count) as crowd:
        for member in crowd.members:
            member.send(frame)
        crowd.run(1.0, lambda _member, _answer: frame)
        cpu_s, took_s, _ = subject.cost_of(lambda: crowd.run(2 * tools.seconds, lambda _member, _answer: frame))
    return cpu_s / took_s * 100


def producers(tools: Tools) -> list[Curve]:
    """Many producers to one partition, each with one event of 100 B in flight."""
    cost = Curve(
        slug="producers",
        title="Producers with one event of 100 B in flight each",
        x_title="producers",
        y_title="processor time of the node per event, µs",
    )
    waits = Curve(
        slug="producers-latency",
        title="Producers with one event of 100 B in flight each: latency",
        x_title="producers",
        y_title="99th percentile from send to acknowledgement, ms",
    )
    for durability in ("os", "fsync"):
        with a_node(tools, {HUB: 1}, durability) as subject:
            for count in PRODUCERS:
                for name, rate, cpu_us, p99_ms in (
                    ("Kafka", *_kafka_producers(tools, subject, count)),
                    ("AMQP", *_amqp_producers(tools, subject, count)),
                ):
                    cost.add(f"{name}, {durability}", count, cpu_us)
                    cost.notes.append(f"{name}, {durability}, {count} producers: {rate:,.0f} events/s")
                    waits.add(f"{name}, {durability}", count, p99_ms)
    return [cost, waits]


def _kafka_producers(tools: Tools, subject: Subject, count: int) -> tuple[float, float, float]:
    """Events per second, µs of the node per event, and the 99th percentile of the latency in ms."""
    frame = produce_frame([(HUB, [0])], batch_now(1, 100))
    waits: list[float] = []

    def on_answer(member: Member, _answer: bytes) -> bytes:
        waits.append(time.perf_counter() - member.sent_at)
        return frame

    with connected(subject.kafka_address, subject.password, count) as crowd:
        for member in crowd.members:
            member.send(frame)
        crowd.run(_WARM_UP_S, on_answer)
        waits.clear()
        cpu_s, took_s, _ = subject.cost_of(lambda: crowd.run(tools.seconds, on_answer))
    return len(waits) / took_s, cpu_s / max(len(waits), 1) * 1e6, percentile_ms(waits, 99)


def _amqp_producers(tools: Tools, subject: Subject, count: int) -> tuple[float, float, float]:
    with AmqpCrowd(subject.amqp_address, count) as crowd:
        crowd.attach_senders(f"{HUB}/Partitions/0")
        crowd.send_singles(100, _WARM_UP_S)
        cpu_s, took_s, waits = subject.cost_of(lambda: crowd.send_singles(100, tools.seconds))
    return len(waits) / took_s, cpu_s / max(len(waits), 1) * 1e6, percentile_ms(waits, 99)


def fan_out(tools: Tools) -> list[Curve]:
    """Readers at the end of one partition: each event is delivered to all of them."""
    cost = Curve(
        slug="fan-out",
        has_log_y=True,
        title=f"Readers of one tail, {_FAN_OUT_RATE} events a second",
        x_title="readers",
        y_title="processor time of the node per delivery, µs",
    )
    waits = Curve(
        slug="fan-out-latency",
        title=f"Readers of one tail, {_FAN_OUT_RATE} events a second: latency",
        x_title="readers",
        y_title="median from publishing to receiving, ms",
    )
    with a_node(tools, {HUB: 1}) as subject:
        for count in READERS:
            for name, measured in (("Kafka", _kafka_readers), ("AMQP", _amqp_readers)):
                cpu_s, delays = measured(tools, subject, count)
                cost.add(name, count, cpu_s / max(len(delays), 1) * 1e6)
                waits.add(name, count, percentile_ms(delays, 50))
                waits.notes.append(f"{name}, {count} readers: p99 {percentile_ms(delays, 99):.1f} ms")
    return [cost, waits]


def _kafka_readers(tools: Tools, subject: Subject, count: int) -> tuple[float, list[float]]:
    """Processor time of the node, and the delays of all deliveries."""
    with (
        connected(subject.kafka_address, subject.password, count) as readers,
        connected(subject.kafka_address, subject.password) as writer,
    ):
        [answer] = writer.ask_all([produce_frame([(HUB, [0])], batch_now(1, 100))])
        # The base offset of the answer is its position; the next event has the following number.
        offset = _base_offset(answer) + 1
        small = produce_frame([(HUB, [0])], batch_now(1, 100))
        delays: list[float] = []
        for member in readers.members:
            member.send(fetch_frame(HUB, [(0, offset)], max_wait_ms=30_000))
        readers.run(0.3, lambda _member, _answer: None)
        before = cpu_seconds(subject.node.pid)
        for number in range(round(2 * tools.seconds * _FAN_OUT_RATE)):
            due = time.perf_counter()
            frame = fetch_frame(HUB, [(0, offset + number + 1)], max_wait_ms=30_000)
            _deliver_one(readers, writer, small, frame, delays, due, count)
            writer.run(max(due + 1 / _FAN_OUT_RATE - time.perf_counter(), 0.0), lambda _member, _answer: None)
        return cpu_seconds(subject.node.pid) - before, delays


def _deliver_one(
    readers: KafkaCrowd, writer: KafkaCrowd, small: bytes, frame: bytes, delays: list[float], due: float, count: int
) -> None:
    """Publish one event and wait until every reader has it."""
    received = 0

    def on_answer(_member: Member, _answer: bytes) -> bytes:
        nonlocal received
        received += 1
        delays.append(time.perf_counter() - due)
        return frame

    writer.members[0].send(small)
    readers.run(10.0, on_answer, lambda: received == count)


def _base_offset(answer: bytes) -> int:
    """The base offset in the answer (version 9) to a request for one partition of the topic."""
    at = answer.index(HUB.encode()) + len(HUB) + 1 + 4 + 2
    return int.from_bytes(answer[at : at + 8], "big")


def _amqp_readers(tools: Tools, subject: Subject, count: int) -> tuple[float, list[float]]:
    with AmqpCrowd(subject.amqp_address, count) as readers, AmqpCrowd(subject.amqp_address, 1) as writer:
        readers.attach_receivers(f"{HUB}/ConsumerGroups/$Default/Partitions/0")
        writer.attach_senders(f"{HUB}/Partitions/0")
        delays: list[float] = []
        before = cpu_seconds(subject.node.pid)
        for _ in range(round(2 * tools.seconds * _FAN_OUT_RATE)):
            due = time.perf_counter()
            writer.send_one(100)
            readers.receive_one_each(due, delays)
            time.sleep(max(due + 1 / _FAN_OUT_RATE - time.perf_counter(), 0.0))
        return cpu_seconds(subject.node.pid) - before, delays
