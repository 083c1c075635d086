"""Links: attach, credit, deliveries in pieces, settlement, detach."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.wire.amqp import Condition, EngineOptions, Link, LinkState, LocalProtocolError
from hubmere.wire.amqp.codec.frames import HEADER_AMQP, frame
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Coordinator,
    Detach,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Described, Long, Symbol
from hubmere.wire.amqp.signals import (
    AttachRequested,
    ConnectionFailed,
    CreditChanged,
    DeliveriesReceived,
    DeliveryOversized,
    LinkAttached,
    LinkDetached,
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
    deliveries,
    feed,
    frames_in,
    kinds,
    only,
)

# The message format of an Event Hubs batch.
_FORMAT_BATCH = 0x80013700


def requested(data: bytes, **options: Any) -> tuple[Any, Link]:
    """A server with an attach that is not answered yet."""
    server, signals = a_server(PREAMBLE + data, **options)
    return server, only(signals, AttachRequested).link


# --- attach


def test_accepted_attach_echoes_all_fourteen_fields() -> None:
    """.NET uses the values that we return; Python ignores an attach whose source or target is empty."""
    source = Source("hub", filter={Symbol("selector"): Described(Symbol("selector"), "amqp.annotation...")})
    server, link = requested(an_attach(sends=False, handle=4, snd_settle_mode=1, rcv_settle_mode=0, source=source))

    link.accept(
        max_message_size=1 << 20,
        offered_capabilities=("metric",),
        properties={Symbol("com.microsoft:producer-id"): Long(5)},
    )

    (answer,) = bodies(server.data_to_send())
    assert answer == Attach(
        "link", 4, False, 1, 0, source, Target("to"), None, None, 0, 1 << 20, ("metric",), None,
        {Symbol("com.microsoft:producer-id"): Long(5)},
    )  # fmt: skip
    assert link.sends_settled
    assert repr(link) == "<Link 'link' to peer, ATTACHED, credit 0>"


def test_missing_and_empty_source_and_target_are_echoed_as_full_lists() -> None:
    """JavaScript sends list0 as source; null in our answer would mean a refusal."""
    server, link = requested(an_attach(source=None, target=Coordinator()))

    link.accept()

    (answer,) = bodies(server.data_to_send())
    assert answer.source == Source()
    assert answer.target == Target()
    assert answer.initial_delivery_count is None


@pytest.mark.parametrize(
    ("theirs", "ours", "announced"),
    [(None, 1000, 1000), (0, 1000, 1000), (500, 1000, 500), (5000, 1000, 1000), (None, None, None), (7, None, 7)],
)
def test_smaller_message_size_is_announced(theirs: int | None, ours: int | None, announced: int | None) -> None:
    """Null and 0 mean no limit: Python writes 0, JavaScript null."""
    server, link = requested(an_attach(max_message_size=theirs))

    link.accept(max_message_size=ours)

    assert bodies(server.data_to_send())[0].max_message_size == announced


def test_refused_attach_is_an_attach_of_nulls_and_a_detach() -> None:
    """A detach alone makes JavaScript clients throw; .NET expects exactly this."""
    server, link = requested(an_attach(sends=False, handle=3))

    link.refuse(Condition.UNAUTHORIZED_ACCESS, "no claim")

    assert bodies(server.data_to_send()) == [
        Attach("link", 3, False),
        Detach(3, True, Error("amqp:unauthorized-access", "no claim")),
    ]
    assert link.state is LinkState.DETACHING
    assert kinds(server.receive_data(frame(Detach(3, True)), 0.0)) == ["LinkDetached"]
    assert server.data_to_send() == b""


def test_refusal_reaches_the_client(pair: EnginePair) -> None:
    """Both sides can use the handle again."""
    session = pair.opened().session()
    mine = session.attach("nope", is_sender=True)
    signals, _ = pair.exchange()

    only(signals, AttachRequested).link.refuse(Condition.NOT_FOUND, "unknown hub")
    server_signals, client_signals = pair.exchange()

    assert kinds(client_signals) == ["LinkAttached", "LinkDetached"]
    assert only(client_signals, LinkAttached).attach.target is None
    assert only(client_signals, LinkDetached).error == Error("amqp:not-found", "unknown hub")
    assert kinds(server_signals) == ["LinkDetached"]
    assert mine.state is LinkState.DETACHED
    assert session.attach("again", is_sender=True).handle == mine.handle


def test_answer_that_does_not_fit_the_peers_frames_refuses_the_link() -> None:
    """An attach cannot be split into several frames."""
    data = HEADER_AMQP + an_open(max_frame_size=512) + a_begin() + an_attach()
    server, signals = a_server(data)
    link = only(signals, AttachRequested).link

    accepted = link.accept(properties={"key": "x" * 600})

    attach, detach = bodies(server.data_to_send())
    assert not accepted
    assert attach.target is None
    assert detach.error.condition == Condition.FRAME_SIZE_TOO_SMALL


def test_attach_is_answered_once() -> None:
    """A second answer is a bug of ours."""
    _, link = requested(an_attach())
    link.accept()

    with pytest.raises(LocalProtocolError):
        link.accept()
    with pytest.raises(LocalProtocolError):
        link.refuse(Condition.NOT_FOUND, "too late")


def test_peer_that_detaches_before_our_answer_gets_attach_and_detach() -> None:
    """A caller that decides later finds out that the link is already detached."""
    server, signals = a_server()
    data = an_attach() + frame(Detach(0, True))

    signals = server.receive_data(data, 0.0)
    link = only(signals, AttachRequested).link

    assert kinds(signals) == ["AttachRequested", "LinkDetached"]
    assert bodies(server.data_to_send()) == [Attach("link", 0, True), Detach(0, True)]
    assert link.accept() is False
    assert link.refuse(Condition.NOT_FOUND, "") is False
    assert link.grant(5) is False
    assert link.detach() is False


def test_commands_before_the_answer_are_errors() -> None:
    """The peer would get frames of a link that does not exist."""
    _, link = requested(an_attach())

    with pytest.raises(LocalProtocolError):
        link.grant(1)
    with pytest.raises(LocalProtocolError):
        link.detach()


# --- detach


def test_detach_is_answered_and_reported(pair: EnginePair) -> None:
    """A second detach command, or one that crosses the peer's, changes nothing."""
    mine, theirs = pair.opened().link()

    mine.detach("amqp:link:detach-forced", "idle")
    server_signals, client_signals = pair.exchange()

    assert only(server_signals, LinkDetached).error == Error("amqp:link:detach-forced", "idle")
    assert only(client_signals, LinkDetached).error is None
    assert mine.detach() is theirs.detach() is False
    assert mine.transfer_window() == 0


def test_frames_after_our_detach_are_discarded() -> None:
    """An evicted receiver still sends flows, and a sender still sends events."""
    server, link = a_served_link()
    link.detach(Condition.LINK_STOLEN, "gone")

    signals = server.receive_data(a_transfer() + a_flow(handle=0, link_credit=5), 0.0)

    assert signals == []
    assert kinds(server.receive_data(frame(Detach(0, True)), 0.0)) == ["LinkDetached"]


def test_detaches_that_cross_answer_each_other() -> None:
    """Neither side sends a second one."""
    pair = EnginePair().opened()
    mine, theirs = pair.link()

    mine.detach()
    theirs.detach()
    server_signals, client_signals = pair.exchange()

    assert kinds(server_signals) == kinds(client_signals) == ["LinkDetached"]
    assert len(bodies(pair.to_client)) == len(bodies(pair.to_server)) == 1


def test_second_detach_is_tolerated() -> None:
    """Python sends detach, end and close in any case."""
    server, _ = a_served_link()

    signals = server.receive_data(frame(Detach(0, True)) + frame(Detach(0, True)), 0.0)

    assert kinds(signals) == ["LinkDetached"]


# --- credit


def test_grant_is_a_flow_with_the_state_of_the_session() -> None:
    """JavaScript waits for ever for a flow with next-incoming-id and credit."""
    server, link = requested(an_attach())
    link.accept()
    server.data_to_send()

    link.grant(300)

    assert bodies(server.data_to_send()) == [Flow(0, 5000, 1, 2048, 0, 0, 300, 0, None, False)]


def test_transfer_without_credit_is_accepted() -> None:
    """The Python SDK ignores credit; a detach would end every producer."""
    server, link = requested(an_attach())
    link.accept()

    signals = server.receive_data(a_transfer(), 0.0)

    assert len(deliveries(signals)) == 1
    assert link.credit == 0
    assert link.delivery_count == 1


@pytest.mark.parametrize(
    ("delivery_count", "credit", "left"), [(0, 10, 7), (3, 10, 10), (None, 10, 7), (0, 2, 0), (9, 4, 4)]
)
def test_credit_counts_from_the_peers_delivery_count(delivery_count: int | None, credit: int, left: int) -> None:
    """Three events are in flight; null means our initial count, and a count that was never reached means ours."""
    server, link = a_served_link(sends=False)
    for _ in range(3):
        link.send(b"x")

    signals = server.receive_data(a_flow(handle=0, delivery_count=delivery_count, link_credit=credit), 0.0)

    assert only(signals, CreditChanged).link is link
    assert link.credit == left


def test_credit_may_be_the_largest_uint() -> None:
    """The range of a uint is valid."""
    server, link = a_served_link(sends=False)

    server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=0xFFFFFFFF), 0.0)

    assert link.credit == 0xFFFFFFFF


def test_reduced_credit_applies_at_once() -> None:
    """A smaller link-credit applies from the next delivery on."""
    server, link = a_served_link(sends=False, credit=100)

    server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=0), 0.0)

    assert link.transfer_window() == 0


def test_flow_without_link_credit_does_not_change_the_credit() -> None:
    """Such a flow only has session fields."""
    server, link = a_served_link(sends=False, credit=100)

    assert server.receive_data(a_flow(handle=0), 0.0) == []
    assert link.credit == 100


def test_credit_before_our_answer_is_kept() -> None:
    """Java sends its first flow together with the attach, and may ask for an echo."""
    server, link = requested(an_attach(sends=False))

    signals = server.receive_data(a_flow(handle=0, link_credit=7, echo=True), 0.0)
    window_before = link.transfer_window()
    link.accept()

    assert kinds(signals) == ["CreditChanged"]
    assert window_before == 0
    assert link.transfer_window() == 7
    assert [type(body) for body in bodies(server.data_to_send())] == [Attach, Flow]


def test_credit_of_a_sending_peer_is_ignored() -> None:
    """The Python SDK writes link-credit 10000 on its sender links."""
    server, link = a_served_link(credit=5)

    signals = server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=10000), 0.0)

    assert signals == []
    assert link.credit == 5
    assert link.transfer_window() == 0


def test_echo_is_answered() -> None:
    """This holds for links in both directions."""
    for sends in (True, False):
        server, link = a_served_link(sends=sends, credit=5)

        server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=5, echo=True), 0.0)

        (flow,) = bodies(server.data_to_send())
        assert (flow.handle, flow.link_credit) == (link.handle, 5)


def test_drain_uses_up_the_credit(pair: EnginePair) -> None:
    """Credit 100 and three events: three transfers, then delivery-count moves by 97 and credit is 0."""
    mine, theirs = pair.opened().link(client_sends=False, credit=0)
    mine.grant(100, drain=True)
    signals, _ = pair.exchange()
    assert only(signals, CreditChanged).link.drain

    for _ in range(3):
        theirs.send(b"x")
    theirs.complete_drain()
    _, received = pair.exchange()

    flow = bodies(pair.to_client)[-1]
    assert len(deliveries(received)) == 3
    assert (flow.drain, flow.link_credit, flow.delivery_count) == (True, 0, 100)
    assert (mine.credit, mine.delivery_count) == (0, 100)
    assert not theirs.drain


def test_drain_with_echo_is_answered_once() -> None:
    """The answer to a drain is the flow that ends it."""
    server, link = a_served_link(sends=False)

    server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=5, drain=True, echo=True), 0.0)
    before = server.data_to_send()
    link.complete_drain()

    assert before == b""
    assert len(bodies(server.data_to_send())) == 1


def test_drained_command_needs_a_drain() -> None:
    """A flow with drain that was not requested confuses receivers."""
    server, link = a_served_link(sends=False)
    with pytest.raises(LocalProtocolError):
        link.complete_drain()

    server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=5, drain=True), 0.0)
    link.detach()

    assert link.complete_drain() is False


def test_delivery_count_of_a_sender_is_accepted_within_credit_only() -> None:
    """A wrong count must not change ours."""
    server, link = a_served_link(credit=5)

    for count in (None, 100, 0xFFFFFFFF):
        server.receive_data(a_flow(handle=0, delivery_count=count), 0.0)
        assert (link.credit, link.delivery_count) == (5, 0)
    server.receive_data(a_flow(handle=0, delivery_count=2), 0.0)

    assert (link.credit, link.delivery_count) == (3, 2)


@pytest.mark.parametrize("credit", [-1, 1 << 32])
def test_invalid_credit_is_refused(credit: int) -> None:
    """It is checked before anything is written."""
    _, link = a_served_link()

    with pytest.raises(LocalProtocolError):
        link.grant(credit)


def test_only_the_receiver_grants_and_only_the_sender_sends() -> None:
    """AMQP 1.0, 2.6.7."""
    _, receiving = a_served_link()
    _, sending = a_served_link(sends=False)

    with pytest.raises(LocalProtocolError):
        sending.grant(5)
    with pytest.raises(LocalProtocolError):
        receiving.send(b"x")
    with pytest.raises(LocalProtocolError):
        receiving.complete_drain()


# --- deliveries in


def test_run_of_single_frames_is_one_signal() -> None:
    """The caller turns it into one record batch."""
    server, link = a_served_link()

    signals = server.receive_data(b"".join(a_transfer(b"%d" % n, delivery_id=n) for n in range(50)), 0.0)

    run = only(signals, DeliveriesReceived)
    assert run.ids == list(range(50))
    assert [bytes(payload) for payload in run.payloads] == [b"%d" % n for n in range(50)]
    assert (link.delivery_count, link.credit) == (50, 50)


def test_settled_and_batched_deliveries_are_distinguished() -> None:
    """A settled one gets no disposition, and a batch is decoded differently."""
    server, _ = a_served_link()
    data = a_transfer(b"a", delivery_id=0) + a_transfer(b"b", delivery_id=1, settled=True)
    data += a_transfer(b"c", delivery_id=2, settled=True, message_format=_FORMAT_BATCH)

    signals = server.receive_data(data, 0.0)

    assert deliveries(signals) == [(0, 0, False, b"a"), (1, 0, True, b"b"), (2, _FORMAT_BATCH, True, b"c")]
    assert len(signals) == 3


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("repeat", [True, False], ids=["fields repeated", "fields null"])
def test_delivery_in_several_frames_is_joined(buffer: Any, repeat: bool) -> None:
    """SDKs repeat id, tag and format on every frame, the specification allows null; interleaved links do not mix."""
    server, _ = a_served_link()
    signals = server.receive_data(an_attach(handle=1, name="other"), 0.0)
    only(signals, AttachRequested).link.accept()
    later: dict[str, Any] = (
        {} if repeat else {"delivery_id": None, "delivery_tag": None, "message_format": None, "settled": None}
    )
    one, two, three = b"1" * 3000, b"2" * 10, b"3" * 70

    received: list[Any] = []
    for data in (
        a_transfer(one, delivery_id=5, more=True),
        a_transfer(two, delivery_id=6, handle=1, delivery_tag=b"t2", more=True),
        a_transfer(two, **later | {"delivery_id": 5 if repeat else None}, more=True),
        a_transfer(three, **later | {"delivery_id": 5 if repeat else None}),
        a_transfer(three, handle=1, delivery_id=6, settled=True),
    ):
        piece = buffer(bytearray(data) if buffer is memoryview else data)
        received += server.receive_data(piece, 0.0)
        if not isinstance(piece, bytes):
            memoryview(piece)[:] = b"\xff" * len(data)

    assert deliveries(received) == [(5, 0, False, one + two + three), (6, 0, True, two + three)]
    assert server.held_bytes == 0


@given(st.binary(max_size=4000), st.integers(1, 600), st.integers(1, 2000))
def test_any_split_of_a_delivery_gives_its_bytes(payload: bytes, piece: int, chunk: int) -> None:
    """Neither the sender's frames nor the network's packets matter."""
    server, _ = a_served_link()
    parts = [payload[start : start + piece] for start in range(0, len(payload), piece)] or [b""]
    data = b"".join(a_transfer(part, more=True) for part in parts[:-1]) + a_transfer(parts[-1])

    received = feed(server, data, chunk)

    assert deliveries(received) == [(0, 0, False, payload)]


def test_aborted_delivery_is_discarded() -> None:
    """Its bytes are dropped, but it counts in the delivery-count."""
    server, link = a_served_link()

    signals = server.receive_data(a_transfer(b"x" * 5000, more=True) + a_transfer(b"", aborted=True), 0.0)

    assert signals == []
    assert (link.delivery_count, server.held_bytes) == (1, 0)
    assert deliveries(server.receive_data(a_transfer(b"next", delivery_id=1), 0.0)) == [(1, 0, False, b"next")]


@pytest.mark.parametrize("pieces", [1, 3])
def test_oversized_delivery_is_reported_and_the_link_stays_attached(pieces: int) -> None:
    """The caller rejects it with its size; no memory is used for it."""
    server, signals = a_server(PREAMBLE + an_attach())
    link = only(signals, AttachRequested).link
    link.accept(max_message_size=3000)

    signals = []
    for number in range(pieces):
        signals += server.receive_data(a_transfer(b"x" * 3001, more=number < pieces - 1), 0.0)
    after = server.receive_data(a_transfer(b"x" * 3000, delivery_id=1), 0.0)

    report = only(signals, DeliveryOversized)
    assert (report.link, report.delivery_id, report.size_bytes, report.settled) == (link, 0, 3001 * pieces, False)
    assert len(deliveries(after)) == 1
    assert server.held_bytes == 0


def test_delivery_that_exceeds_the_limit_in_a_later_frame_is_reported() -> None:
    """Its memory is released at once, also if the link ends."""
    server, signals = a_server(PREAMBLE + an_attach())
    link = only(signals, AttachRequested).link
    link.accept(max_message_size=3000)

    server.receive_data(a_transfer(b"x" * 2000, more=True), 0.0)
    held = server.held_bytes
    server.receive_data(a_transfer(b"x" * 2000, more=True), 0.0)

    assert (held, server.held_bytes) == (2000, 0)
    link.detach()
    assert server.held_bytes == 0


def test_unfinished_deliveries_of_all_links_are_bounded() -> None:
    """Many links with one frame each must not bypass the limit."""
    server, _ = a_served_link(max_held_bytes=5000)
    only(server.receive_data(an_attach(handle=1, name="b"), 0.0), AttachRequested).link.accept()
    server.receive_data(a_transfer(b"x" * 3000, more=True), 0.0)

    signals = server.receive_data(a_transfer(b"x" * 3000, handle=1, delivery_id=1, more=True), 0.0)

    assert only(signals, ConnectionFailed).violation.condition is Condition.RESOURCE_LIMIT_EXCEEDED


def test_detach_releases_an_unfinished_delivery() -> None:
    """It does not matter which side detaches."""
    for goodbye in ("ours", "theirs"):
        server, link = a_served_link()
        server.receive_data(a_transfer(b"x" * 3000, more=True), 0.0)

        if goodbye == "ours":
            link.detach()
        else:
            server.receive_data(frame(Detach(0, True)), 0.0)

        assert server.held_bytes == 0


BAD_TRANSFERS = {
    "no id": (a_transfer(delivery_id=None), Condition.INVALID_FIELD),
    "no id on the first piece": (a_transfer(delivery_id=None, more=True), Condition.INVALID_FIELD),
    "another id before the end": (
        a_transfer(more=True) + a_transfer(delivery_id=1),
        Condition.INVALID_FIELD,
    ),
}


@pytest.mark.parametrize(("data", "condition"), BAD_TRANSFERS.values(), ids=BAD_TRANSFERS.keys())
def test_invalid_transfer_closes_the_connection(data: bytes, condition: Condition) -> None:
    """AMQP 1.0, 2.7.5."""
    server, _ = a_served_link()

    assert only(server.receive_data(data, 0.0), ConnectionFailed).violation.condition is condition


def test_transfer_to_a_sender_closes_the_connection() -> None:
    """The peer uses a wrong handle."""
    server, _ = a_served_link(sends=False)

    signals = server.receive_data(a_transfer(), 0.0)

    assert only(signals, ConnectionFailed).violation.condition is Condition.NOT_ALLOWED


def test_transfers_before_our_answer_are_reported_after_the_attach() -> None:
    """A client may pipeline attach and transfers; the caller answers in between."""
    _server, signals = a_server(PREAMBLE + an_attach() + a_transfer() + a_transfer(delivery_id=1))

    assert kinds(signals)[-2:] == ["AttachRequested", "DeliveriesReceived"]
    assert len(deliveries(signals)) == 2


# --- deliveries out


def test_transfer_has_eleven_fields_and_the_id_as_tag() -> None:
    """Python finds the payload at index eleven."""
    server, link = a_served_link(sends=False)

    delivery_id = link.send(b"payload", batchable=True)

    ((_, transfer, payload),) = frames_in(server.data_to_send())
    assert transfer == Transfer(0, delivery_id, bytes(4), 0, False, False, batchable=True)
    assert payload == b"payload"


def test_ids_are_contiguous_over_the_links_of_a_session() -> None:
    """rhea and proton-j throw on a gap; each session counts from 0."""
    pair = EnginePair().opened()
    session = pair.session()
    _, one = pair.link_on(session, client_sends=False, name="1")
    _, two = pair.link_on(session, client_sends=False, name="2")
    _, other = pair.link(client_sends=False, name="3")

    ids = [one.send(b"a"), two.send(b"b"), one.send(b"c" * 100_000), two.send(b"d"), other.send(b"e")]
    _, signals = pair.exchange()

    assert ids == [0, 1, 2, 3, 0]
    assert len(deliveries(signals)) == 5


@pytest.mark.parametrize("size", [0, 1, 400, 511, 512, 5000, 200_000])
@pytest.mark.parametrize("frame_size", [512, 4096, 65536])
def test_message_is_split_to_the_peers_frame_size(size: int, frame_size: int) -> None:
    """Java over WebSocket accepts 4096 bytes; a peer need not accept more than 512."""
    pair = EnginePair(client_options=EngineOptions(max_frame_size=frame_size)).opened()
    mine, theirs = pair.link(client_sends=False)
    payload = bytes(n % 251 for n in range(size))

    theirs.send(payload)
    _, signals = pair.exchange()

    sizes = [len(part) for _channel, _body, part in frames_in(pair.to_client)]
    assert deliveries(signals) == [(0, 0, False, payload)]
    assert max(sizes) <= frame_size
    assert mine.delivery_count == 1


def test_settle_mode_of_the_link_is_kept() -> None:
    """A receiver of settled deliveries does not answer, and one of unsettled deliveries does."""
    _, mixed = a_served_link(sends=False)
    _, settled = _with_mode(1)
    _, unsettled = _with_mode(0)

    assert [link.sends_settled for link in (mixed, settled, unsettled)] == [False, True, False]
    mixed.send(b"x", settled=True)
    with pytest.raises(LocalProtocolError):
        settled.send(b"x", settled=False)
    with pytest.raises(LocalProtocolError):
        unsettled.send(b"x", settled=True)
    assert settled.send(b"x") == unsettled.send(b"x") == 0


def _with_mode(mode: int) -> tuple[Any, Link]:
    server, link = requested(an_attach(sends=False, snd_settle_mode=mode))
    link.accept()
    server.receive_data(a_flow(handle=0, delivery_count=0, link_credit=5), 0.0)
    return server, link


def test_server_may_choose_the_settle_mode() -> None:
    """A receiver that requests no mode gets ours."""
    server, link = requested(an_attach(sends=False))

    link.accept(snd_settle_mode=1, rcv_settle_mode=0)

    assert link.sends_settled
    assert bodies(server.data_to_send())[0].snd_settle_mode == 1


def test_length_of_a_tag_is_limited() -> None:
    """AMQP 1.0, 2.6.14."""
    _, link = a_served_link(sends=False)

    link.send(b"x", tag=b"t" * 32)
    with pytest.raises(LocalProtocolError):
        link.send(b"x", tag=b"t" * 33)


def test_frames_made_by_the_kernel_are_counted_like_our_own(pair: EnginePair) -> None:
    """The kernel writes whole transfers; the link updates its counters."""
    mine, theirs = pair.opened().link(client_sends=False, credit=10)
    theirs.send(b"first")
    count = 5
    assert (theirs.transfer_window(), theirs.next_delivery_id, theirs.channel) == (9, 1, 0)
    framed = b"".join(
        a_transfer(b"%d" % n, theirs.channel, handle=theirs.handle, delivery_id=theirs.next_delivery_id + n)
        for n in range(count)
    )

    theirs.queue_transfers(framed, count)
    theirs.send(b"last")
    _, signals = pair.exchange()

    assert [row[0] for row in deliveries(signals)] == [0, 1, 2, 3, 4, 5, 6]
    assert (theirs.credit, theirs.delivery_count, theirs.session.next_outgoing_id) == (3, 7, 8)
    assert (mine.credit, mine.delivery_count) == (3, 7)
    with pytest.raises(LocalProtocolError):
        theirs.queue_transfers(framed, 4)


def test_ten_thousand_unsettled_deliveries_use_no_memory() -> None:
    """The Python SDK never settles."""
    server, link = a_served_link(sends=False)

    for _ in range(20):
        acked = link.session.next_outgoing_id
        server.receive_data(
            a_flow(
                next_incoming_id=acked, incoming_window=600, handle=0,
                delivery_count=link.delivery_count, link_credit=500,
            ),
            0.0,
        )  # fmt: skip
        link.queue_transfers(b"", 500)
        server.data_to_send()

    assert link.next_delivery_id == 10_000
    assert link.settle(0, state=ACCEPTED)


def test_delivery_ids_wrap_around() -> None:
    """After 2^32 events the ids start at 0 again."""
    pair = EnginePair().opened()
    mine, theirs = pair.link(client_sends=False, credit=0)
    for session in (theirs.session, mine.session):
        session.next_delivery_id = 0xFFFFFFFE
        session.next_outgoing_id = 0xFFFFFFFE
    mine.session.next_incoming_id = 0xFFFFFFFE
    theirs.delivery_count = mine.delivery_count = 0xFFFFFFFE
    mine.grant(10)
    pair.exchange()

    ids = [theirs.send(b"x") for _ in range(4)]
    _, signals = pair.exchange()
    mine.settle(ids[0], ids[1], state=ACCEPTED)
    mine.settle(ids[2], ids[3], state=ACCEPTED)
    pair.exchange()

    assert ids == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    assert [row[0] for row in deliveries(signals)] == ids
    assert (mine.delivery_count, mine.credit) == (2, 6)
    assert len(bodies(pair.to_server)) == 2
