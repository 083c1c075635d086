"""Sessions: windows, dispositions, handles, and late frames."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.wire.amqp import Condition, EngineOptions, LocalProtocolError
from hubmere.wire.amqp.codec.composites import write_described
from hubmere.wire.amqp.codec.frames import HEADER_AMQP, frame
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Rejected,
)
from hubmere.wire.amqp.codec.types import Described, Symbol
from hubmere.wire.amqp.settlements import (
    Settlement,
    accepted_frame,
    add_settlement,
    encode_accepted,
    merge_settlements,
)
from hubmere.wire.amqp.signals import (
    AttachRequested,
    ConnectionFailed,
    DispositionReceived,
    SessionEnded,
    WindowOpened,
)
from wire.amqp.builders import (
    PREAMBLE,
    EnginePair,
    a_begin,
    a_flow,
    a_served_link,
    a_server,
    a_transfer,
    an_attach,
    an_open,
    bodies,
    feed,
    frames_in,
    kinds,
    only,
)


def test_begin_is_answered_with_all_fields_that_clients_need() -> None:
    """Python crashes without handle-max; the outgoing window equals the peer's incoming window."""
    server, _ = a_server(HEADER_AMQP + an_open(), handle_max=255)

    server.receive_data(a_begin(channel=1, incoming_window=65536), 0.0)

    ((channel, begin, _),) = frames_in(server.data_to_send())
    assert channel == 1
    assert begin == Begin(1, 1, 5000, 65536, 255)


def test_transfers_stop_at_the_peers_window() -> None:
    """.NET ends the session when we exceed its window, JavaScript stops reading."""
    server, link = a_served_link(sends=False, credit=1000)
    server.receive_data(a_flow(next_incoming_id=1, incoming_window=3, handle=0, delivery_count=0, link_credit=9), 0.0)

    sent = [link.send(b"x") for _ in range(link.transfer_window())]

    assert sent == [0, 1, 2]
    assert link.credit == 6
    assert link.transfer_window() == 0
    with pytest.raises(LocalProtocolError):
        link.send(b"x")


def test_window_opens_again_with_a_flow() -> None:
    """Window = their next-incoming-id + their window - our next-outgoing-id."""
    server, link = a_served_link(sends=False, credit=1000)
    server.receive_data(a_flow(next_incoming_id=1, incoming_window=2), 0.0)
    link.send(b"x")
    link.send(b"x")

    signals = server.receive_data(a_flow(next_incoming_id=2, incoming_window=5), 0.0)

    assert only(signals, WindowOpened).session is link.session
    assert link.transfer_window() == 4


def test_window_that_is_already_exceeded_is_closed() -> None:
    """A flow may have crossed our transfers."""
    server, link = a_served_link(sends=False, credit=1000)
    for _ in range(10):
        link.send(b"x")

    server.receive_data(a_flow(next_incoming_id=1, incoming_window=4), 0.0)

    assert link.transfer_window() == 0


def test_flow_without_next_incoming_id_counts_from_our_first() -> None:
    """Java pipelines begin, attach and flow before it has read our begin."""
    data = PREAMBLE + an_attach(sends=False)
    data += a_flow(next_incoming_id=None, incoming_window=50, handle=0, link_credit=7)
    _, signals = a_server(data)
    link = only(signals, AttachRequested).link

    link.accept()

    assert kinds(signals)[-1] == "CreditChanged"
    assert link.transfer_window() == 7


def test_frames_beyond_the_window_wait_and_keep_their_order() -> None:
    """A delivery in several frames may need more window than there is; ids must stay in order on the session."""
    server, link = a_served_link(sends=False, credit=1000, max_frame_size=512)
    server.receive_data(a_flow(next_incoming_id=1, incoming_window=2), 0.0)

    link.send(b"x" * 2000)
    first = frames_in(server.data_to_send())
    blocked = link.transfer_window()
    signals = server.receive_data(a_flow(next_incoming_id=3, incoming_window=2), 0.0)
    second = frames_in(server.data_to_send())
    signals += server.receive_data(a_flow(next_incoming_id=5, incoming_window=100), 0.0)
    third = frames_in(server.data_to_send())

    payload = b"".join(part for _channel, _body, part in first + second + third)
    assert (len(first), len(second), len(third)) == (2, 2, 1)
    assert blocked == 0
    assert kinds(signals) == ["WindowOpened"]
    assert payload == b"x" * 2000
    assert [body.more for _channel, body, _part in first + second + third] == [True] * 4 + [False]


def test_our_window_is_renewed_when_half_of_it_is_used(pair: EnginePair) -> None:
    """A sender never stalls on it, even if it ignores credit."""
    pair = EnginePair(chunk=pair.chunk, server_options=EngineOptions(incoming_window=10)).opened()
    mine, _theirs = pair.link(credit=1000)

    for _ in range(100):
        assert mine.transfer_window() > 0
        mine.send(b"x")
        pair.exchange()

    assert mine.delivery_count == 100


def test_our_flow_counts_frames_and_not_deliveries() -> None:
    """next-incoming-id increases with every frame of a delivery."""
    server, link = a_served_link()
    pieces = [a_transfer(b"x", more=True), a_transfer(b"y", more=True), a_transfer(b"z", more=False)]
    server.receive_data(b"".join(pieces), 0.0)

    link.grant(50)

    (flow,) = bodies(server.data_to_send())
    assert (flow.next_incoming_id, flow.delivery_count, flow.link_credit) == (3, 1, 50)


def test_session_flow_with_echo_is_answered() -> None:
    """AMQP 1.0, 2.7.4."""
    server, _ = a_server()

    server.receive_data(a_flow(echo=True), 0.0)

    assert bodies(server.data_to_send()) == [Flow(0, 5000, 1, 2048, echo=False)]


def test_settlements_of_one_read_are_one_disposition() -> None:
    """One disposition for a hundred sends saves more than any other optimisation here."""
    server, link = a_served_link()

    for delivery_id in range(100):
        link.settle(delivery_id, state=ACCEPTED)

    assert bodies(server.data_to_send()) == [Disposition(True, 0, 99, True, ACCEPTED)]


def test_settlements_out_of_order_are_merged_if_their_states_are_equal() -> None:
    """Partitions commit in different orders."""
    server, link = a_served_link()
    rejected = Rejected(Error("amqp:not-found", "x"))

    for delivery_id in (0, 2, 4, 1, 5):
        link.settle(delivery_id, state=ACCEPTED)
    link.settle(3, state=rejected)

    assert bodies(server.data_to_send()) == [
        Disposition(True, 0, 2, True, ACCEPTED),
        Disposition(True, 3, None, True, rejected),
        Disposition(True, 4, 5, True, ACCEPTED),
    ]


@given(st.permutations(range(20)), st.sets(st.integers(0, 19)))
def test_merged_settlements_cover_the_same_deliveries(order: list[int], rejected: set[int]) -> None:
    """Merging must neither lose a delivery nor change its outcome."""
    settlements: list[Settlement] = []
    for number in order:
        add_settlement(settlements, number, number, RELEASED if number in rejected else ACCEPTED)

    result = merge_settlements(settlements)

    covered = {n: state for first, last, state in result for n in range(first, last + 1)}
    assert covered == {n: RELEASED if n in rejected else ACCEPTED for n in range(20)}
    assert all(before[1] < after[0] for before, after in pairwise(result))
    assert all(before[1] + 1 < after[0] or before[2] != after[2] for before, after in pairwise(result))


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_fast_path_for_accepted_writes_the_same_bytes(first: int, last: int) -> None:
    """It is the only frame with two encoders."""
    expected = Disposition(True, first, None if first == last else last, True, ACCEPTED)

    assert encode_accepted(first, last) == write_described(expected)


@given(st.sampled_from([0, 1, 255, 256]) | st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFF))
def test_frame_for_one_accepted_delivery_has_the_same_bytes(delivery_id: int, channel: int) -> None:
    """It is packed with one call."""
    expected = Disposition(True, delivery_id, None, True, ACCEPTED)

    assert accepted_frame(delivery_id, channel) == frame(expected, channel)


def test_long_rejection_is_truncated_to_the_peers_frames() -> None:
    """A long description must not close the connection."""
    server, signals = a_server(HEADER_AMQP + an_open(max_frame_size=512) + a_begin() + an_attach())
    link = only(signals, AttachRequested).link
    link.accept()
    server.data_to_send()

    link.settle(0, state=Rejected(Error("amqp:not-allowed", "x" * 5000)))
    link.settle(1, state=Modified(message_annotations={Symbol("a"): "x" * 5000}))

    cut, bare = bodies(server.data_to_send())
    assert cut.state == Rejected(Error("amqp:not-allowed", "x" * 200))
    assert bare == Disposition(True, 1, None, True)


def test_settlements_are_sent_before_the_detach_and_the_end() -> None:
    """After it they would be ignored."""
    server, link = a_served_link()
    link.settle(0, state=ACCEPTED)
    link.detach()
    link.settle(1, state=ACCEPTED)
    link.session.end()

    sent = [type(body) for body in bodies(server.data_to_send())]

    assert sent == [Disposition, Detach, Disposition, End]
    assert link.settle(2, state=ACCEPTED) is False


def test_settlements_are_sent_before_the_answer_to_a_detach_end_or_close() -> None:
    """The peer still waits for the outcomes."""
    for goodbye in (frame(Detach(0, True)), frame(End()), frame_close()):
        server, link = a_served_link()
        link.settle(0, state=ACCEPTED)

        server.receive_data(goodbye, 0.0)

        assert type(bodies(server.data_to_send())[0]) is Disposition


def frame_close() -> bytes:
    return bytes.fromhex("0000000f02000000005318c0020140")


def test_outcome_of_our_delivery_is_reported(pair: EnginePair) -> None:
    """The sender gets the outcome of a range."""
    mine, theirs = pair.opened().link()
    for _ in range(3):
        mine.send(b"x")
    pair.exchange()

    theirs.settle(0, 2, state=ACCEPTED)
    _, signals = pair.exchange()

    report = only(signals, DispositionReceived)
    assert (report.by_receiver, report.first, report.last, report.settled, report.state) == (True, 0, 2, True, ACCEPTED)


def test_unsettled_outcome_is_settled_with_the_same_state() -> None:
    """A receiver in mode second waits for it; no message is locked here."""
    server, link = a_served_link(sends=False)
    for _ in range(5):
        link.send(b"x")
    server.data_to_send()

    server.receive_data(frame(Disposition(True, 1, 3, False, RELEASED)), 0.0)
    server.receive_data(frame(Disposition(True, 4, None, False, RELEASED)), 0.0)

    assert bodies(server.data_to_send()) == [
        Disposition(False, 1, 3, True, RELEASED),
        Disposition(False, 4, None, True, RELEASED),
    ]


def test_unsettled_outcome_that_does_not_fit_is_settled_without_a_state() -> None:
    """A peer with small frames may send states that are too long for them."""
    server, signals = a_server(HEADER_AMQP + an_open(max_frame_size=512) + a_begin() + an_attach(sends=False))
    link = only(signals, AttachRequested).link
    link.accept()
    server.receive_data(a_flow(handle=0, link_credit=9), 0.0)
    link.send(b"x")
    server.data_to_send()

    server.receive_data(frame(Disposition(True, 0, None, False, Described(Symbol("long"), "x" * 600))), 0.0)

    assert bodies(server.data_to_send()) == [Disposition(False, 0, None, True)]


def test_disposition_for_unsent_deliveries_is_limited_to_the_sent_ones() -> None:
    """A range of four billion ids must not cause work."""
    server, link = a_served_link(sends=False)
    link.send(b"x")
    link.send(b"x")

    signals = server.receive_data(frame(Disposition(True, 0, 0x7FFFFFFF, True, ACCEPTED)), 0.0)
    signals += server.receive_data(frame(Disposition(True, 2, 9, True, ACCEPTED)), 0.0)

    report = only(signals, DispositionReceived)
    assert (report.first, report.last) == (0, 1)


def test_disposition_of_a_sender_for_its_own_deliveries_is_reported() -> None:
    """It answers a receiver in mode second; no state is kept for it."""
    server, _ = a_served_link()

    signals = server.receive_data(frame(Disposition(False, 3, None, True)), 0.0)

    report = only(signals, DispositionReceived)
    assert (report.by_receiver, report.first, report.last) == (False, 3, 3)


VIOLATIONS = {
    "transfer without link": (a_transfer(handle=9), Condition.SESSION_UNATTACHED_HANDLE),
    "flow without link": (a_flow(handle=9), Condition.SESSION_UNATTACHED_HANDLE),
    "handle in use": (an_attach(name="other"), Condition.SESSION_HANDLE_IN_USE),
}


@pytest.mark.parametrize("chunk", [1 << 20, 1])
@pytest.mark.parametrize(("data", "condition"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_violation_of_a_session_ends_only_the_session(data: bytes, condition: Condition, chunk: int) -> None:
    """AMQP 1.0, 2.8.17: other sessions of the client continue. Later input on the channel is discarded."""
    server, link = a_served_link()

    signals = feed(server, data + a_transfer() + a_begin(channel=1), chunk)

    ended = only(signals, SessionEnded)
    assert kinds(signals) == ["LinkDetached", "SessionEnded", "SessionBegun"]
    assert ended.violation is not None
    assert ended.violation.condition is condition
    assert bodies(server.data_to_send())[0].error.condition == condition
    assert link.session.end() is False
    assert feed(server, frame(End()), chunk) == []
    assert kinds(server.receive_data(a_begin(), 0.0)) == ["SessionBegun"]


def test_connection_that_ends_after_a_violation_reports_the_session_once() -> None:
    """Everything that began has exactly one end."""
    server, _ = a_served_link()
    first = server.receive_data(a_transfer(handle=9), 0.0)

    assert kinds(first) == ["LinkDetached", "SessionEnded"]
    assert kinds(server.on_connection_lost()) == ["ConnectionClosed"]


ATTACH_VIOLATIONS = {
    "handle beyond handle-max": (an_attach(handle=8192), Condition.CONNECTION_FRAMING_ERROR),
    "long name": (an_attach(name="x" * 3000), Condition.INVALID_FIELD),
    "settle mode 3": (an_attach(snd_settle_mode=3), Condition.INVALID_FIELD),
    "receiver mode 2": (an_attach(rcv_settle_mode=2), Condition.INVALID_FIELD),
}


@pytest.mark.parametrize(("data", "condition"), ATTACH_VIOLATIONS.values(), ids=ATTACH_VIOLATIONS.keys())
def test_invalid_attach_closes_the_connection(data: bytes, condition: Condition) -> None:
    """These values exist in no version of the protocol."""
    server, _ = a_server()

    assert only(server.receive_data(data, 0.0), ConnectionFailed).violation.condition is condition


def test_link_name_that_is_too_long_for_an_answer_closes_the_connection() -> None:
    """The refusal would not fit the frames of the peer."""
    server, _ = a_server(HEADER_AMQP + an_open(max_frame_size=512) + a_begin())

    signals = server.receive_data(an_attach(name="x" * 500), 0.0)

    assert only(signals, ConnectionFailed).violation.condition is Condition.FRAME_SIZE_TOO_SMALL


def test_number_of_links_of_a_connection_is_limited() -> None:
    """Several sessions must not bypass the limit; detached links do not count."""
    server, _ = a_server(max_links=2)
    server.receive_data(a_begin(channel=1), 0.0)
    server.receive_data(an_attach() + an_attach(channel=1), 0.0)
    server.receive_data(frame(Detach(0, True)), 0.0)
    server.receive_data(an_attach(), 0.0)

    signals = server.receive_data(an_attach(channel=1, handle=1), 0.0)

    assert only(signals, ConnectionFailed).violation.condition is Condition.RESOURCE_LIMIT_EXCEEDED


def test_many_links_share_a_session(pair: EnginePair) -> None:
    """Names may repeat across sessions; handles are reused after a detach."""
    session = pair.opened().session()
    links = [pair.link_on(session, name=str(number)) for number in range(4)]
    links[1][0].detach()
    pair.exchange()

    again, _ = pair.link_on(session, name="again")

    assert [mine.handle for mine, _theirs in links] == [0, 1, 2, 3]
    assert again.handle == 1
    assert repr(session) == "<Session 0, MAPPED, 4 links>"


def test_attach_respects_the_peers_handle_max() -> None:
    """It is checked before a frame is written."""
    pair = EnginePair(server_options=EngineOptions(handle_max=0)).opened()
    session = pair.session()
    pair.link_on(session)

    with pytest.raises(LocalProtocolError):
        session.attach("second", is_sender=True)


def test_answering_handle_respects_the_peers_handle_max() -> None:
    """A peer with handle-max 0 may use handle 5 itself; the first answer has handle 0, and a second link is refused."""
    server, _ = a_server(HEADER_AMQP + an_open() + a_begin(handle_max=0))

    first = only(server.receive_data(an_attach(handle=5), 0.0), AttachRequested).link
    signals = server.receive_data(an_attach(handle=6), 0.0)

    assert first.handle == 0
    assert only(signals, ConnectionFailed).violation.condition is Condition.NOT_ALLOWED


def test_same_link_name_cannot_be_attached_twice_at_the_same_time(pair: EnginePair) -> None:
    """The answer of the peer would match both links."""
    session = pair.opened().session()
    session.attach("name", is_sender=True)

    with pytest.raises(LocalProtocolError):
        session.attach("name", is_sender=True)
    assert session.attach("name", is_sender=False).name == "name"


def test_commands_on_a_session_that_is_not_mapped_are_handled() -> None:
    """A command before the begin is a bug of ours; a command after the end has no effect."""
    pair = EnginePair().opened()
    session = pair.client.begin()
    with pytest.raises(LocalProtocolError):
        session.attach("early", is_sender=True)
    with pytest.raises(LocalProtocolError):
        session.end()
    pair.exchange()

    session.end("amqp:internal-error", "bug")
    signals, _ = pair.exchange()

    assert only(signals, SessionEnded).error == Error("amqp:internal-error", "bug")
    assert session.end() is False
    assert session.settle(0) is False
    with pytest.raises(LocalProtocolError):
        session.attach("late", is_sender=True)


def test_links_without_an_answer_end_with_their_session(pair: EnginePair) -> None:
    """An unanswered attach ends too."""
    session = pair.opened().session()
    session.attach("waiting", is_sender=True)
    session.end()

    server_signals, client_signals = pair.exchange()

    assert kinds(client_signals) == ["LinkDetached", "SessionEnded"]
    assert kinds(server_signals) == ["AttachRequested", "LinkDetached", "SessionEnded"]


def test_session_without_an_answer_has_no_end() -> None:
    """Its begin was never reported."""
    pair = EnginePair().opened()
    pair.client.begin()

    assert kinds(pair.client.on_connection_lost()) == ["ConnectionClosed"]
