"""Reports of gateways: their bytes, what is remembered of them, and shares that follow from them."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.broker.quotas.sharing import FLOOR, UNBOUNDED, divide
from hubmere.cluster.pulse.board import FORGET_SECONDS, FRESH_SECONDS, MAX_GATEWAYS, PulseBoard
from hubmere.cluster.pulse.encoding import MAX_PULSE_BYTES, decode_pulse, encode_pulse
from hubmere.cluster.pulse.topic import PulseTopic
from hubmere.cluster.upstream.failures import RequestRefused
from hubmere.model.monitoring.pulse import (
    MAX_HUBS,
    MAX_NAMESPACES,
    Flow,
    GatewayPulse,
    HubPulse,
    Limited,
    NamespacePulse,
)
from hubmere.records.records import Record
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.fetch import LATEST_TIMESTAMP


def a_pulse(session: str = "s1", number: int = 1) -> GatewayPulse:
    return GatewayPulse(
        session=session,
        number=number,
        address="localhost:5671",
        version="1.0",
        applied=17,
        connections=3,
        namespaces=(
            NamespacePulse(name="hubmere", flow=Flow(1.0, 2.0, 3.0, 4.0), limited=Limited(ingress_bytes=True), units=2),
        ),
        hubs=(HubPulse(namespace="hubmere", hub="orders", flow=Flow(1.0, 2.0, 3.0, 4.0)),),
    )


def test_report_survives_its_encoding() -> None:
    """Gateways read what others have written."""
    assert decode_pulse(encode_pulse(a_pulse())) == a_pulse()


def test_report_of_a_newer_release_is_read() -> None:
    """Gateways are upgraded one after the other."""
    newer = json.loads(encode_pulse(a_pulse())) | {"temperature": 20}

    assert decode_pulse(json.dumps(newer).encode()) == a_pulse()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"null",
        b"{}",
        b'"text"',
        b"[" * 5000,
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"connections": -1}).encode(),
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"applied": 1e30}).encode(),
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"number": float("nan")}).encode(),
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"session": 7}).encode(),
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"address": "a" * 1000}).encode(),
        json.dumps(json.loads(encode_pulse(a_pulse())) | {"hubs": {"a": 1}}).encode(),
        json.dumps(
            json.loads(encode_pulse(a_pulse())) | {"hubs": [{"namespace": "n", "hub": "h", "flow": []}]}
        ).encode(),
        b" " * (MAX_PULSE_BYTES + 1),
    ],
)
def test_garbage_is_no_report(data: bytes) -> None:
    """Somebody else may write to the topic; a gateway goes on."""
    assert decode_pulse(data) is None


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes) -> None:
    """The same for bytes that nobody has thought of."""
    decode_pulse(data)


def test_report_has_the_busiest_hubs_and_namespaces_only() -> None:
    """A report is bounded however many hubs a gateway serves."""
    names = [f"{number:0>256}" for number in range(1000)]
    flows = {name: Flow(number + 0.123456789, 1e15, 1e15, 1e15) for number, name in enumerate(names)}
    pulse = GatewayPulse(
        session="s",
        number=1,
        address="a",
        version="v",
        applied=0,
        connections=0,
        namespaces=tuple(NamespacePulse(name=name, flow=flow) for name, flow in flows.items()),
        hubs=tuple(HubPulse(namespace=name, hub=name, flow=flow) for name, flow in flows.items()),
    )

    data = encode_pulse(pulse)
    decoded = decode_pulse(data)

    assert len(data) <= MAX_PULSE_BYTES
    assert decoded is not None
    assert (len(decoded.namespaces), len(decoded.hubs)) == (MAX_NAMESPACES, MAX_HUBS)
    assert decoded.hubs[0].hub == names[-1]


def test_board_has_the_last_report_of_each_gateway() -> None:
    """A report that comes late, or twice, does not replace a newer one."""
    board = PulseBoard()

    assert board.record(a_pulse(number=2), 1.0)
    assert not board.record(a_pulse(number=1), 1.5)
    assert not board.record(a_pulse(number=2), 1.5)
    assert board.record(a_pulse("s2"), 2.0)

    assert {session: pulse.number for session, pulse in board.fresh(2.0).items()} == {"s1": 2, "s2": 1}
    assert set(board.fresh(1.0 + FRESH_SECONDS)) == {"s2"}


def test_board_forgets_gateways_that_are_silent() -> None:
    """Every restart of a gateway is another session; the board must not grow for ever."""
    board = PulseBoard()
    for number in range(MAX_GATEWAYS + 10):
        board.record(a_pulse(f"s{number}"), float(number) / 1000)
    assert board.find("s0") is None
    assert board.find("s10") is not None

    board.record(a_pulse("late"), FORGET_SECONDS + 10)

    assert board.find("s10") is None
    assert board.find("late") is not None


def test_lone_gateway_with_demand_has_all_but_the_floors() -> None:
    """The others keep what their next client needs to begin."""
    parts = divide({"a": UNBOUNDED, "b": 0.0, "c": 0.0})

    assert parts["a"] == pytest.approx(1 - 2 * FLOOR / 3)
    assert parts["b"] == parts["c"] == pytest.approx(FLOOR / 3)


def test_gateways_without_demand_have_equal_parts() -> None:
    """Whoever gets the first client can begin with a third of the whole."""
    assert divide({"a": 0.0, "b": 0.0, "c": 0.0}) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


def test_silent_gateway_has_an_equal_part() -> None:
    """It uses an equal part itself while it does not read its reports."""
    parts = divide({"a": UNBOUNDED, "b": None, "c": 0.0})

    assert parts["b"] == pytest.approx(1 / 3)
    assert parts["a"] == pytest.approx(2 / 3 - FLOOR / 3)


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3),
        st.one_of(st.none(), st.just(UNBOUNDED), st.floats(0, 5)),
        min_size=1,
        max_size=12,
    )
)
def test_parts_add_up_to_the_whole(wanted: dict[str, float | None]) -> None:
    """Together gateways allow what one node would; none is below its floor, none that is limited is below the rest."""
    parts = divide(wanted)

    assert sum(parts.values()) == pytest.approx(1.0)
    assert all(part >= FLOOR / len(wanted) - 1e-9 for part in parts.values())
    limited = {parts[session] for session, want in wanted.items() if want == UNBOUNDED}
    others = [part for session, part in parts.items() if wanted[session] is not None]
    assert all(part >= max(others) - 1e-9 for part in limited)
    assert divide(dict(reversed(wanted.items()))) == pytest.approx(parts)


class RecordedPartition:
    """A topic with these values, as the reader of the pulse sees it; `refusal` is raised by the next read."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.refusal: RequestRefused | None = None
        self.provided = 0

    async def exists(self) -> bool:
        return bool(self.values)

    async def provide(self) -> None:
        self.provided += 1

    async def end(self, time_ms: int) -> int:
        return len(self.values) if time_ms == LATEST_TIMESTAMP else 0

    async def read(self, offset: int, *, wait_ms: int) -> list[Record]:
        await asyncio.sleep(0)
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal
        return [
            Record(sequence_number=number, time_ms=0, key=None, value=value, headers=())
            for number, value in enumerate(self.values)
            if number >= offset
        ]


def a_topic(partition: RecordedPartition, board: PulseBoard) -> PulseTopic:
    return PulseTopic(partition, board)  # type: ignore[arg-type]


def test_last_reports_are_read_and_garbage_is_counted() -> None:
    """Somebody else has written to the topic: the reports around it count."""

    async def work() -> None:
        values = [encode_pulse(a_pulse("old")), encode_pulse(a_pulse("s1")), b"garbage", encode_pulse(a_pulse("s2"))]
        board = PulseBoard()
        topic = a_topic(RecordedPartition(values), board)

        await topic.read_last(3)

        assert topic.unreadable_count == 1
        assert [board.find(session) is not None for session in ("old", "s1", "s2")] == [False, True, True]

    asyncio.run(work())


def test_topic_that_does_not_exist_has_no_reports() -> None:
    """No gateway of this release has run yet: the status has no connections and no lag."""

    async def work() -> None:
        board = PulseBoard()

        await a_topic(RecordedPartition([]), board).read_last(3)

        assert board.fresh(0.0) == {}

    asyncio.run(work())


def test_topic_that_was_deleted_is_created_again() -> None:
    """Somebody has deleted it by hand: the pulse goes on."""

    async def work() -> None:
        board, partition = PulseBoard(), RecordedPartition([])
        topic = a_topic(partition, board)
        topic.start()
        while not partition.provided:
            await asyncio.sleep(0)
        partition.refusal = RequestRefused("the topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with asyncio.timeout(60):
            while partition.provided < 2:
                await asyncio.sleep(0.01)
            partition.values.append(encode_pulse(a_pulse("s1")))
            while board.find("s1") is None:
                await asyncio.sleep(0.01)
        await topic.stop()

    asyncio.run(work())
