"""Runs of transfers: the fast path gives exactly the signals of the general path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.wire.amqp import Connection
from hubmere.wire.amqp.codec.frames import EMPTY_FRAME, frame_of
from hubmere.wire.amqp.codec.performatives import ACCEPTED
from hubmere.wire.amqp.signals import AttachRequested, DeliveriesReceived, DeliveryOversized
from wire.amqp.builders import a_flow, a_served_link, a_transfer, an_attach, deliveries, feed, only

FIELDS = st.fixed_dictionaries(
    {
        "handle": st.sampled_from([0, 1, 300]),
        "delivery_id": st.sampled_from([0, 1, 200, 255, 256, 70000]),
        "delivery_tag": st.sampled_from([b"", b"0", b"1234", b"x" * 32]),
        "message_format": st.sampled_from([None, 0, 1, 0x80013700]),
        "settled": st.sampled_from([None, True, False]),
        "more": st.sampled_from([None, False]),
        "batchable": st.sampled_from([None, True]),
        "state": st.sampled_from([None, ACCEPTED]),
    }
)


def three_links() -> Connection:
    """A server with links on handles 0, 1 and 300."""
    server, _ = a_served_link()
    for handle in (1, 300):
        only(server.receive_data(an_attach(handle=handle, name=str(handle)), 0.0), AttachRequested).link.accept()
    server.data_to_send()
    return server


def rows_of(signals: list[Any]) -> list[Any]:
    """The deliveries one by one, without the grouping into runs."""
    return [(run.link.name, row) for run in signals if isinstance(run, DeliveriesReceived) for row in deliveries([run])]


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, st.binary(max_size=40), st.integers(1, 4)), max_size=12))
def test_single_frames_and_all_frames_at_once_give_the_same_deliveries(
    rows: list[tuple[dict[str, Any], bytes, int]],
) -> None:
    """Every field may change from frame to frame, or stay the same."""
    frames = [
        a_transfer(payload, **fields | {"delivery_id": fields["delivery_id"] + n})
        for fields, payload, repeat in rows
        for n in range(repeat)
    ]
    together, apart, bytewise = three_links(), three_links(), three_links()

    at_once = together.receive_data(b"".join(frames), 0.0)
    one_by_one = [signal for data in frames for signal in apart.receive_data(data, 0.0)]
    in_bytes = feed(bytewise, b"".join(frames), 1)

    assert rows_of(at_once) == rows_of(one_by_one) == rows_of(in_bytes)
    for name in ("link", "1", "300"):
        counts = {
            next(link.delivery_count for link in server.links() if link.name == name)
            for server in (together, apart, bytewise)
        }
        assert len(counts) == 1
    assert (
        next(together.links()).session.next_incoming_id == next(apart.links()).session.next_incoming_id == len(frames)
    )


def test_list32_and_short_lists_use_the_fast_path() -> None:
    """JavaScript writes list32, Java four to six fields."""
    server, _ = a_served_link()
    wide = [frame_of(_wide(number) + b"payload") for number in (0, 1)]
    short = [frame_of(_short(number) + b"p") for number in (5, 6)]

    signals = server.receive_data(b"".join(wide + short), 0.0)

    assert [row[0] for row in deliveries(signals)] == [0, 1, 5, 6]
    assert [row[3] for row in deliveries(signals)] == [b"payload", b"payload", b"p", b"p"]


def _wide(number: int) -> bytes:
    fields = b"\x43\x70" + number.to_bytes(4, "big") + b"\xa0\x04tag0" + b"\x43"
    return b"\x00\x53\x14\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x04" + fields


def _short(number: int) -> bytes:
    return b"\x00\x53\x14\xc0\x07\x03\x43" + bytes((0x52, number)) + b"\xa0\x01t"


def test_rare_encodings_are_read_by_the_general_path() -> None:
    """An extended header, a symbolic descriptor or a wide tag is legal in every frame."""
    server, _ = a_served_link()
    body = a_transfer(b"p", delivery_id=1000)[8:]
    extended = (len(body) + 12).to_bytes(4, "big") + b"\x03\x00\x00\x00" + bytes(4) + body
    symbolic = frame_of(b"\x00\xa3\x12amqp:transfer:list" + body[3:])
    wide_tag = frame_of(b"\x00\x53\x14\xc0\x0a\x03\x43\x52\x05\xb0\x00\x00\x00\x01tp")

    signals = server.receive_data((extended + symbolic + wide_tag) * 2, 0.0)

    assert [row[0] for row in deliveries(signals)] == [1000, 1000, 5] * 2
    assert {row[3] for row in deliveries(signals)} == {b"p"}


def test_other_frames_end_a_run_without_an_effect_on_it() -> None:
    """A heartbeat or a flow between transfers is normal."""
    server, _ = a_served_link()
    parts = [a_transfer(b"%d" % n, delivery_id=1000 + n) for n in range(6)]
    data = parts[0] + parts[1] + EMPTY_FRAME + parts[2] + a_flow() + parts[3] + parts[4] + parts[5]

    signals = server.receive_data(data, 0.0)

    assert only(signals, DeliveriesReceived).ids == [1000, 1001, 1002, 1003, 1004, 1005]


def test_frame_that_is_too_short_for_its_layout_is_refused() -> None:
    """The general reader handles such a size, so that the next frame is not read as a part of this one."""
    server, _ = a_served_link()
    good = a_transfer(b"x", delivery_id=1000)
    bad = b"\x00\x00\x00\x14" + good[4:]

    signals = server.receive_data(good + bad, 0.0)

    assert [type(signal).__name__ for signal in signals][-1] == "ConnectionFailed"
    assert len(deliveries(signals)) == 1


def test_oversized_delivery_inside_a_run_is_detected() -> None:
    """The fast path checks the limit of the link."""
    server, link = a_served_link()
    link.max_message_size = 10
    data = b"".join(a_transfer(b"x" * size, delivery_id=1000 + size) for size in (5, 10, 11, 5))

    signals = server.receive_data(data, 0.0)

    assert only(signals, DeliveryOversized).delivery_id == 1011
    assert [row[0] for row in deliveries(signals)] == [1005, 1010, 1005]


def test_run_stops_when_its_link_is_detached() -> None:
    """The cached layout must not outlive the link."""
    server, link = a_served_link()
    server.receive_data(a_transfer(delivery_id=1000), 0.0)

    link.detach()

    assert server.receive_data(a_transfer(delivery_id=1001), 0.0) == []


@pytest.mark.parametrize("more", [True, False])
def test_frames_of_one_delivery_are_not_a_run(more: bool) -> None:
    """The last frame looks like a single-frame delivery."""
    server, _ = a_served_link()
    data = a_transfer(b"a", delivery_id=1000) + a_transfer(b"b", delivery_id=1001, more=True)
    data += a_transfer(b"c", delivery_id=1001, more=more) + (a_transfer(b"d", delivery_id=1001) if more else b"")

    signals = server.receive_data(data, 0.0)

    assert [row[3] for row in deliveries(signals)] == [b"a", b"bcd" if more else b"bc"]


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, st.binary(max_size=40), st.integers(1, 4)), max_size=12))
def test_receive_single_gives_the_same_result_as_the_general_reader(
    rows: list[tuple[dict[str, Any], bytes, int]],
) -> None:
    """`receive_single` gives the same result as `receive_data`, or None without any change."""
    frames = [
        a_transfer(payload, **fields | {"delivery_id": fields["delivery_id"] + n})
        for fields, payload, repeat in rows
        for n in range(repeat)
    ]
    single, general = three_links(), three_links()

    for data in frames:
        taken = single.receive_single(data, 5.0)
        expected = rows_of(general.receive_data(data, 5.0))
        if taken is None:
            assert rows_of(single.receive_data(data, 5.0)) == expected
        else:
            shape, delivery_id, payload = taken
            run = DeliveriesReceived(shape.link, shape.message_format, shape.settled, [delivery_id], [payload])
            assert rows_of([run]) == expected
        assert single.last_received == general.last_received
        assert single.data_to_send() == general.data_to_send()

    state = [(link.delivery_count, link.credit, link.session.next_incoming_id) for link in single.links()]
    assert state == [(link.delivery_count, link.credit, link.session.next_incoming_id) for link in general.links()]


def test_incomplete_and_several_deliveries_are_left_to_the_general_reader() -> None:
    """`receive_single` handles exactly one complete delivery."""
    server, link = a_served_link()
    frames = [a_transfer(b"p", delivery_id=1000 + n) for n in range(4)]
    server.receive_data(frames[0], 0.0)

    assert server.receive_single(frames[1] + frames[2], 0.0) is None
    assert server.receive_single(frames[1][:-1], 0.0) is None
    assert server.receive_data(frames[1][:9], 0.0) == []
    assert server.receive_single(frames[2], 0.0) is None
    assert [row[0] for row in deliveries(server.receive_data(frames[1][9:], 0.0))] == [1001]
    assert server.receive_single(frames[2], 0.0) is not None
    assert link.delivery_count == 3


def test_delivery_is_accepted_at_once_only_if_nothing_is_queued_before_it() -> None:
    """Frames are sent in the order in which they were queued."""
    server, link = a_served_link()
    server.receive_data(a_transfer(b"p", delivery_id=1000), 7.0)
    link.settle(1000, state=ACCEPTED)
    assert link.session.accept_at_once(1001) is None
    queued = server.data_to_send()

    assert link.session.accept_at_once(1000) == queued
    assert server.data_to_send() == b""
