"""Receiving over AMQP (reference: AMQP 5, checks 31 to 43)."""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endpoints.amqp.amqp_node import NAMESPACE, AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event, body_of
from endpoints.amqp.raw_client import SELECTOR, RawClient, Refused
from endpoints.amqp.raw_frames import DISPOSITION, TRANSFER, frames_of
from hubmere.endpoints.amqp.connection import AmqpConnection
from hubmere.endpoints.amqp.links.read_link import ReadLink
from hubmere.model.entity import Status
from hubmere.model.errors import PartitionOffline
from hubmere.model.spec import HubSpec
from hubmere.model.tier import LimitsBook, Profile
from hubmere.wire.amqp import Link
from hubmere.wire.amqp.codec.composites import read_described
from hubmere.wire.amqp.codec.message import Message, Section, read_message, write_message, write_section
from hubmere.wire.amqp.codec.performatives import ACCEPTED, Disposition, Header, Source
from hubmere.wire.amqp.codec.types import Described, Int, Long, Symbol, Timestamp, ULong, Value
from hubmere.wire.amqp.signals import DeliveriesReceived, DispositionReceived

READER = "orders/ConsumerGroups/$Default/Partitions/0"
METRIC = "com.microsoft:enable-receiver-runtime-metric"


def annotated(message: Message, name: str) -> Value:
    return (message.message_annotations or {})[name]


def publish(client: RawClient, count: int, *, first: int = 0, partition: int = 0) -> None:
    sender = client.sender(f"orders/Partitions/{partition}")
    client.publish(sender, a_batch([an_event(f"{first + n}") for n in range(count)]), message_format=BATCH_FORMAT)
    sender.detach()
    client.flush()


def numbers(client: RawClient, link: Link, count: int) -> list[int]:
    return [int(body_of(message)) for message in client.receive(link, count)]


def is_quiet(client: RawClient, seconds: float = 0.15) -> bool:
    while client.poll(seconds):
        if client.pending(DeliveriesReceived):
            return False
    return True


# --- where a reader starts


@pytest.mark.parametrize(
    ("name", "operator", "first"),
    [
        ("x-opt-offset", ">", 6),
        ("x-opt-offset", ">=", 5),
        ("x-opt-sequence-number", ">", 6),
        ("x-opt-sequence-number", ">=", 5),
        ("x-opt-enqueued-time", ">=", 0),
    ],
)
@pytest.mark.parametrize("quote", ["'", ""], ids=["quoted", "bare"])
def test_a_selector_starts_at_the_right_event(
    client: RawClient, name: str, operator: str, first: int, quote: str
) -> None:
    """The reader starts at or after the fifth event, with each kind of position that clients use."""
    publish(client, 10)
    fifth = client.receive(client.reader(), 10)[5]
    value = int(annotated(fifth, name))

    reader = client.reader(selector=f"amqp.annotation.{name} {operator} {quote}{value}{quote}")

    assert numbers(client, reader, 10 - first) == list(range(first, 10))


def test_time_before_all_events_is_the_beginning_and_after_all_events_the_end(client: RawClient) -> None:
    """Only events that were enqueued after the given time are delivered."""
    publish(client, 3)
    (last,) = client.receive(client.reader(), 3)[2:]
    at_ms = int(annotated(last, "x-opt-enqueued-time"))

    after = client.reader(selector=f"amqp.annotation.x-opt-enqueued-time > '{at_ms + 60_000}'")
    before = client.reader(selector=f"amqp.annotation.x-opt-enqueued-time > '{at_ms - 60_000}'")

    assert numbers(client, before, 3) == [0, 1, 2]
    after.grant(10)
    assert is_quiet(client)


@pytest.mark.parametrize("descriptor", [Symbol(SELECTOR), ULong(0x468C00000004), ULong(0x137000000A)])
def test_filter_is_recognised_by_any_of_its_descriptors(client: RawClient, descriptor: Value) -> None:
    """Python and Java write the name, JavaScript and .NET a number each."""
    publish(client, 4)
    filters: dict[Value, Value] = {Symbol("any"): Described(descriptor, "amqp.annotation.x-opt-sequence-number > '1'")}

    reader, answer = client.attach(is_sender=False, source=Source(address=READER, filter=filters))

    assert numbers(client, reader, 2) == [2, 3]
    assert answer.source is not None
    assert answer.source.filter == filters


def test_latest_starts_after_the_attach(client: RawClient) -> None:
    """No older event is delivered, and none is lost between the attach and the first credit."""
    publish(client, 3)
    reader = client.reader(selector="amqp.annotation.x-opt-offset > '@latest'")
    publish(client, 2, first=3)

    assert numbers(client, reader, 2) == [3, 4]


def test_inclusive_start_at_the_next_sequence_number_waits(client: RawClient) -> None:
    """Nothing is delivered until the log reaches the position."""
    publish(client, 2)
    reader = client.reader(selector="amqp.annotation.x-opt-sequence-number >= '2'")
    reader.grant(10)
    assert is_quiet(client)
    publish(client, 1, first=2)

    assert [int(body_of(message)) for message in client.receive(reader, 1, credit=0)] == [2]


@pytest.mark.parametrize("operator", [">", ">="])
@pytest.mark.parametrize(("name", "kind"), [("x-opt-sequence-number", "sequence number"), ("x-opt-offset", "offset")])
def test_start_at_a_number_is_refused_on_a_partition_never_written(
    client: RawClient, name: str, kind: str, operator: str
) -> None:
    """The service refuses both forms; a reader with a checkpoint of another hub must not wait for ever."""
    with pytest.raises(Refused) as refused:
        client.reader(selector=f"amqp.annotation.{name} {operator} '0'")

    assert refused.value.condition == "com.microsoft:argument-error"
    assert refused.value.description.startswith(
        f"The supplied {kind} '0' is invalid. The last {kind} in the system is '-1' TrackingId:"
    )
    assert f"SystemTracker:{NAMESPACE}:eventhub:orders~0|$Default, " in refused.value.description


@pytest.mark.parametrize(
    "selector", [None, "amqp.annotation.x-opt-offset > '-1'", "amqp.annotation.x-opt-offset > '@latest'"]
)
def test_reader_can_wait_on_a_partition_never_written(client: RawClient, selector: str | None) -> None:
    """The beginning and the end are always valid positions."""
    reader = client.reader(selector=selector)
    publish(client, 1)

    assert numbers(client, reader, 1) == [0]


@pytest.mark.parametrize(
    ("address", "works"),
    [
        ("//hubmere/orders/$Default", "orders/ConsumerGroups/$Default/Partitions/0"),
        ("//hubmere.example/orders/second", "orders/ConsumerGroups/second/Partitions/0"),
        ("sb://localhost/orders/second", "orders/ConsumerGroups/second/Partitions/0"),
        ("orders/ConsumerGroups/second", "orders/ConsumerGroups/second/Partitions/0"),
        ("orders/Partitions/1", "orders/ConsumerGroups/$Default/Partitions/1"),
        ("//hubmere/orders", "orders/ConsumerGroups/$Default/Partitions/0"),
        ("orders", "orders/ConsumerGroups/$Default/Partitions/0"),
    ],
)
def test_refusal_of_another_reader_address_names_one_that_works(client: RawClient, address: str, works: str) -> None:
    """The service's overview writes `//namespace/hub/group`, which no client can read from."""
    with pytest.raises(Refused) as refused:
        client.reader(address)

    assert refused.value.condition == "com.microsoft:argument-error"
    assert f"such as '{works}'" in refused.value.description
    client.reader(works)


@pytest.mark.parametrize(
    ("address", "selector", "condition"),
    [
        (READER, "color = 'red'", "com.microsoft:argument-error"),
        (READER, "amqp.annotation.x-opt-offset > 'x'", "com.microsoft:argument-error"),
        ("nowhere/ConsumerGroups/$Default/Partitions/0", None, "amqp:not-found"),
        ("orders/ConsumerGroups/nobody/Partitions/0", None, "amqp:not-found"),
        ("orders/ConsumerGroups/$Default/Partitions/7", None, "com.microsoft:argument-out-of-range"),
        ("orders", None, "com.microsoft:argument-error"),
        ("orders/Partitions/0", None, "com.microsoft:argument-error"),
    ],
)
def test_invalid_source_is_refused(client: RawClient, address: str, selector: str | None, condition: str) -> None:
    """The condition is one that SDKs map to the right exception."""
    with pytest.raises(Refused) as refused:
        client.reader(address, selector)

    assert refused.value.condition == condition


def test_a_dynamic_source_is_refused(client: RawClient) -> None:
    """Nodes cannot be created by a link."""
    with pytest.raises(Refused) as refused:
        client.attach(is_sender=False, source=Source(dynamic=True))

    assert refused.value.condition == "amqp:not-implemented"


# --- credit


def test_nothing_is_delivered_before_credit_is_granted(client: RawClient) -> None:
    """Python attaches with a flow without credit, then grants 300."""
    publish(client, 5)
    reader = client.reader()
    reader.grant(0)
    assert is_quiet(client)

    reader.grant(300)

    assert [int(body_of(message)) for message in client.receive(reader, 5, credit=0)] == [0, 1, 2, 3, 4]


def test_no_more_events_than_credit_are_delivered(client: RawClient) -> None:
    """This also holds inside a batch."""
    publish(client, 10)
    reader = client.reader()

    assert numbers(client, reader, 3) == [0, 1, 2]
    assert is_quiet(client)
    assert numbers(client, reader, 1) == [3]
    assert numbers(client, reader, 6) == [4, 5, 6, 7, 8, 9]


def test_credit_can_be_reduced(client: RawClient) -> None:
    """A smaller number applies at once."""
    reader = client.reader()
    reader.grant(100)
    reader.grant(0)
    client.flush()
    publish(client, 3)

    assert is_quiet(client)


def test_drain_uses_up_the_remaining_credit(client: RawClient) -> None:
    """The reader gets three events, then a flow whose delivery-count has advanced by a hundred."""
    publish(client, 3)
    reader = client.reader()
    reader.grant(100, drain=True)

    assert len(client.receive(reader, 3, credit=0)) == 3
    while reader.credit:
        client.poll()
    assert reader.delivery_count == 100
    publish(client, 1, first=3)
    assert is_quiet(client)
    assert numbers(client, reader, 1) == [3]


def test_reader_at_the_end_gets_new_events_without_a_gap_or_a_repeat(client: RawClient) -> None:
    """One link reads from the first event to those that are published meanwhile."""
    publish(client, 50)
    reader = client.reader()
    reader.grant(1000)
    received: list[int] = []
    for first in range(50, 150, 10):
        publish(client, 10, first=first)
        for run in client.pending(DeliveriesReceived):
            received += [int(body_of(read_message(payload))) for payload in run.payloads]
    received += [int(body_of(message)) for message in client.receive(reader, 150 - len(received), credit=0)]

    assert received == list(range(150))


def test_session_window_is_respected(node: AmqpNode) -> None:
    """.NET ends a session when its window is exceeded; a new flow opens it again."""
    with RawClient(node, incoming_window=7) as client:
        client.authorize()
        publish(client, 40)
        session = client.begin()
        reader, _ = client.attach(session=session, is_sender=False, source=Source(address=READER))

        received = numbers(client, reader, 40)

    assert received == list(range(40))


# --- content of a delivery


def test_four_annotations_have_their_types(client: RawClient) -> None:
    """Java casts them; without runtime metrics there are no delivery annotations."""
    publish(client, 2)

    first, second = client.receive(client.reader(), 2)

    assert list(first.message_annotations or {})[:2] == ["x-opt-sequence-number-epoch", "x-opt-sequence-number"]
    assert type(annotated(first, "x-opt-sequence-number-epoch")) is Int
    assert annotated(first, "x-opt-sequence-number-epoch") == -1
    assert type(annotated(first, "x-opt-sequence-number")) is Long
    assert type(annotated(first, "x-opt-offset")) is str
    assert type(annotated(first, "x-opt-enqueued-time")) is Timestamp
    assert int(annotated(second, "x-opt-offset")) > int(annotated(first, "x-opt-offset"))
    assert first.delivery_annotations is None


def test_runtime_metrics_are_on_every_event(client: RawClient) -> None:
    """All of them must be present, or Java ignores them."""
    publish(client, 3)
    reader, answer = client.attach(
        is_sender=False, source=Source(address=READER), desired_capabilities=(METRIC, "com.microsoft:georeplication")
    )

    received = client.receive(reader, 3)

    assert answer.offered_capabilities == (METRIC,)
    for message in received:
        metrics = message.delivery_annotations or {}
        assert type(metrics["last_enqueued_sequence_number_epoch"]) is Int
        assert metrics["last_enqueued_sequence_number_epoch"] == -1
        assert type(metrics["last_enqueued_sequence_number"]) is Long
        assert metrics["last_enqueued_sequence_number"] == 2
        assert type(metrics["last_enqueued_offset"]) is str
        assert type(metrics["last_enqueued_time_utc"]) is Timestamp
        assert type(metrics["runtime_info_retrieval_time_utc"]) is Timestamp


@pytest.mark.parametrize("capabilities", [None, (METRIC,)], ids=["plain", "with metrics"])
def test_header_section_is_not_delivered(client: RawClient, capabilities: tuple[str, ...] | None) -> None:
    """As in the service: a reader that applies time-to-live would discard events that the hub still has."""
    payload = write_message(Message(header=Header(durable=True, ttl=1))) + an_event("x")
    client.publish(client.sender("orders/Partitions/0"), payload)

    (received,) = client.receive(client.reader(desired_capabilities=capabilities), 1)

    assert received.header is None
    assert body_of(received) == b"x"


def test_delivery_annotations_after_the_body_are_delivered_there(client: RawClient) -> None:
    """The Python SDK writes its delivery annotations there."""
    behind = write_section(Section.DELIVERY_ANNOTATIONS, {Symbol("hop"): True})
    client.publish(client.sender("orders/Partitions/0"), an_event("x") + behind)
    reader = client.reader()
    reader.grant(1)

    (raw,) = client.expect(DeliveriesReceived).payloads

    assert bytes(raw).endswith(behind)


def test_delivery_ids_are_contiguous_over_the_links_of_a_session(client: RawClient) -> None:
    """Rhea and Proton-J throw on a gap."""
    publish(client, 20, partition=0)
    publish(client, 20, partition=1)
    one = client.reader(READER)
    two = client.reader("orders/ConsumerGroups/$Default/Partitions/1")
    one.grant(20)
    two.grant(20)
    ids: list[int] = []
    while len(ids) < 40:
        ids += client.expect(DeliveriesReceived).ids

    assert sorted(ids) == list(range(min(ids), min(ids) + 40))
    transfers = [found for found in frames_of(bytes(client.transcript)) if found.code == TRANSFER]
    assert all(found.fields == 11 for found in transfers)


@pytest.mark.parametrize("max_frame_size", [512, 4096, 32768])
@pytest.mark.parametrize("capabilities", [None, (METRIC,)], ids=["plain", "with metrics"])
def test_large_event_is_split_to_the_frame_size_of_the_peer(
    node: AmqpNode, max_frame_size: int, capabilities: tuple[str, ...] | None
) -> None:
    """Java over WebSocket accepts 4 KB; small events before and after are in single frames."""
    body = bytes(range(256)) * 800
    with RawClient(node) as sender:
        sender.authorize()
        sender.publish(sender.sender("orders/Partitions/0"), an_event("a"), an_event(body), an_event("z"))
    with RawClient(node, max_frame_size=max_frame_size) as client:
        client.authorize()
        received = client.receive(client.reader(desired_capabilities=capabilities), 3)

    assert [body_of(message) for message in received] == [b"a", body, b"z"]
    assert max(len(found.body) for found in frames_of(bytes(client.transcript))) <= max_frame_size - 8


# --- settlement


@pytest.mark.parametrize("asked", [0, 1, 2, None])
@pytest.mark.parametrize("second", [0, 1])
def test_every_reader_is_answered_with_settled_deliveries(client: RawClient, asked: int | None, second: int) -> None:
    """The service does so for every settle mode; the Go SDK sends no disposition and would wait for ever."""
    publish(client, 2)
    reader, answer = client.attach(
        is_sender=False, source=Source(address=READER), snd_settle_mode=asked, rcv_settle_mode=second
    )
    reader.grant(2)

    run = client.expect(DeliveriesReceived)

    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (1, second)
    assert run.settled


@pytest.mark.parametrize("size_bytes", [10, 100_000], ids=["one frame", "several frames"])
def test_a_delivered_event_has_an_empty_tag(client: RawClient, size_bytes: int) -> None:
    """A settled delivery is never referred to."""
    client.publish(client.sender("orders/Partitions/0"), an_event(bytes(size_bytes)))
    seen = len(client.transcript)
    client.receive(client.reader(snd_settle_mode=0), 1)

    found = [frame.body for frame in frames_of(bytes(client.transcript[seen:])) if frame.code == TRANSFER]
    transfers = [read_described(memoryview(body), 0)[0] for body in found]

    assert {(transfer.delivery_tag, transfer.settled) for transfer in transfers} == {(b"", True)}


def test_reader_that_never_settles_is_not_blocked(client: RawClient) -> None:
    """Only credit counts: neither Python nor Go sends dispositions."""
    for first in range(0, 10_000, 2500):
        publish(client, 2500, first=first)
    reader = client.reader(snd_settle_mode=0)

    assert numbers(client, reader, 10_000) == list(range(10_000))


@pytest.mark.parametrize("settled", [True, False])
def test_disposition_for_a_settled_delivery_has_no_effect(client: RawClient, settled: bool) -> None:
    """Clients that settle everything continue to read; one with mode second gets its answer."""
    publish(client, 2)
    reader = client.reader(snd_settle_mode=0, rcv_settle_mode=1)
    reader.grant(1)
    (number,) = client.expect(DeliveriesReceived).ids
    client.engine.outbox.add(Disposition(role=True, first=number, settled=settled, state=ACCEPTED), reader.channel)

    assert numbers(client, reader, 1) == [1]
    answers = client.pending(DispositionReceived)
    assert [(answer.first, answer.settled) for answer in answers if not answer.by_receiver] == (
        [] if settled else [(number, True)]
    )


def test_no_disposition_is_sent_for_delivered_events(client: RawClient) -> None:
    """A disposition with role sender could settle sends of a Python client."""
    publish(client, 3)
    before = sum(found.code == DISPOSITION for found in frames_of(bytes(client.transcript)))
    client.receive(client.reader(), 3)

    assert sum(found.code == DISPOSITION for found in frames_of(bytes(client.transcript))) == before


# --- who reads


def an_epoch(number: int, name: str | None = None) -> dict[Value, Value]:
    named: dict[Value, Value] = {} if name is None else {Symbol("com.microsoft:receiver-name"): name}
    return {Symbol("com.microsoft:epoch"): Long(number)} | named


def test_equal_or_higher_epoch_takes_over(node: AmqpNode, client: RawClient) -> None:
    """The new reader may be on another connection; the error of the old one names the new one."""
    publish(client, 3)
    old = client.reader(properties=an_epoch(1, "old"))
    old.grant(10)
    with RawClient(node) as other:
        other.authorize()
        new = other.reader(properties=an_epoch(1, "new"))

        refused = client.detached(old)
        assert numbers(other, new, 3) == [0, 1, 2]

    assert refused.condition == "amqp:link:stolen"
    assert "New receiver 'new' with higher epoch of '1' is created hence current receiver 'old'" in refused.description


def test_lower_epoch_and_no_epoch_are_refused(client: RawClient) -> None:
    """The owner stays attached."""
    client.reader(properties=an_epoch(5))

    for properties in (an_epoch(4), None):
        with pytest.raises(Refused) as refused:
            client.reader(properties=properties)
        assert refused.value.condition == "amqp:link:stolen"


def test_reader_with_an_epoch_evicts_readers_without(client: RawClient) -> None:
    """The owner is the only reader."""
    plain = [client.reader() for _ in range(3)]
    client.reader(properties=an_epoch(0))

    assert {client.detached(link).condition for link in plain} == {"amqp:link:stolen"}


def test_sixth_reader_without_epoch_is_refused_until_one_leaves(client: RawClient) -> None:
    """Five readers share a partition in a group; other groups are not affected."""
    readers = [client.reader(properties={Symbol("com.microsoft:receiver-name"): f"r{n}"}) for n in range(5)]
    with pytest.raises(Refused) as refused:
        client.reader()
    client.reader("orders/ConsumerGroups/second/Partitions/0")

    readers[0].detach()
    client.reader()

    assert refused.value.condition == "amqp:resource-limit-exceeded"
    assert "r0, r1, r2, r3, r4" in refused.value.description


def test_lost_connection_frees_its_reader_slots(node: AmqpNode) -> None:
    """A client that was killed must be able to connect again."""
    with RawClient(node) as client:
        client.authorize()
        for _ in range(5):
            client.reader()
    with RawClient(node) as client:
        client.authorize()
        while node.call(lambda: len(node.connections.streams)) > 1:
            pass

        client.reader()


@pytest.mark.parametrize("epoch", [Long(-1), "1", True])
def test_invalid_epoch_is_refused(client: RawClient, epoch: Value) -> None:
    """The epoch decides who owns a partition."""
    with pytest.raises(Refused) as refused:
        client.reader(properties={Symbol("com.microsoft:epoch"): epoch})

    assert refused.value.condition == "com.microsoft:argument-error"


def test_partition_that_cannot_be_read_detaches_only_its_link(
    node: AmqpNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is detached as busy; the connection and its other links stay open."""
    publish(client, 1)
    log = node.hub().log(0)

    def offline(*_: object, **__: object) -> None:
        raise PartitionOffline("being verified")

    reader, sender = client.reader(), client.sender("orders/Partitions/1")
    with monkeypatch.context() as broken:
        broken.setattr(type(log), "read", offline)
        reader.grant(1)

        assert client.detached(reader).condition == "com.microsoft:server-busy"

    client.publish(sender, an_event())
    assert numbers(client, client.reader(), 1) == [0]


@pytest.fixture
def large_node() -> Iterator[AmqpNode]:
    """A node without limits on hubs, since each example needs one."""
    with AmqpNode(book=LimitsBook(overrides={"hubs_per_namespace": "unlimited"})) as node:
        yield node


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), min_size=1, max_size=8),
    window=st.sampled_from([3, 50, 5000]),
    frame_size=st.sampled_from([512, 65536]),
)
def test_reader_gets_each_event_once_and_in_order_for_any_credit(
    large_node: AmqpNode, steps: list[tuple[int, int, bool]], window: int, frame_size: int
) -> None:
    """Publications, credit, window and frame size vary: there is never a gap, a repeat, or an event too many."""
    hub = f"hub-{uuid.uuid4().hex}"
    large_node.add_hub(hub, 1)
    published = received = 0
    with RawClient(large_node, incoming_window=window, max_frame_size=frame_size) as client:
        client.authorize()
        sender = client.sender(f"{hub}/Partitions/0")
        reader = client.reader(f"{hub}/ConsumerGroups/$Default/Partitions/0")
        for count, credit, is_single in steps:
            events = [an_event(f"{published + number}") for number in range(count)]
            if is_single:
                client.publish(sender, *events)
            elif events:
                client.publish(sender, a_batch(events), message_format=BATCH_FORMAT)
            published += count
            expected = min(credit, published - received)
            messages = client.receive(reader, expected, credit=credit)
            assert [int(body_of(message)) for message in messages] == list(range(received, received + expected))
            received += expected
            reader.grant(0)
            client.flush()


# --- how fast


def test_egress_is_throttled_and_nothing_is_lost() -> None:
    """Over its units a reader is delayed; it is never refused and misses nothing."""
    book = LimitsBook(
        profile=Profile.STANDARD, overrides={"egress_events_per_unit": 400, "ingress_events_per_unit": 9999}
    )
    with AmqpNode(book=book) as node, RawClient(node) as client:
        client.authorize()
        publish(client, 700)
        reader = client.reader()

        assert numbers(client, reader, 700) == list(range(700))


def test_two_groups_read_the_same_events(client: RawClient) -> None:
    """Reading does not remove events."""
    publish(client, 5)

    for group in ("$default", "SECOND"):
        reader = client.reader(f"orders/ConsumerGroups/{group}/Partitions/0")
        assert numbers(client, reader, 5) == [0, 1, 2, 3, 4]


def test_evicted_reader_releases_its_partition_at_once(node: AmqpNode, client: RawClient) -> None:
    """This holds even if it never answers the detach."""
    reader = client.reader()
    part = node.call(lambda: [stream.session for stream in node.connections.streams])[0]

    def evict_all() -> list[object]:
        assert isinstance(part, AmqpConnection)
        for link in part.links():
            if isinstance(link.context, ReadLink):
                link.context.evict(PartitionOffline("being verified"))
        return list(node.hub().readers.all())

    assert node.call(evict_all) == []
    assert client.detached(reader).condition == "com.microsoft:server-busy"


# --- changed settings


@pytest.mark.parametrize(
    "spec",
    [
        HubSpec(retention_hours=3),
        HubSpec(status=Status.SEND_DISABLED),
    ],
    ids=["retention", "status"],
)
def test_changed_hub_detaches_its_readers(node: AmqpNode, client: RawClient, spec: HubSpec) -> None:
    """As in the service, so that they start again with the new settings; they may attach again at once."""
    publish(client, 1)
    reader = client.reader()
    node.manage(lambda manager, actor, done: manager.update_hub(NAMESPACE, "orders", spec, actor, done))

    refused = client.detached(reader)

    assert refused.condition == "com.microsoft:entity-updated"
    assert refused.description.startswith("Entity was updated. TrackingId:")
    assert numbers(client, client.reader(), 1) == [0]


def test_changed_user_metadata_does_not_detach_readers(node: AmqpNode, client: RawClient) -> None:
    """Readers do not depend on user metadata."""
    publish(client, 1)
    reader = client.reader()
    spec = HubSpec(user_metadata="mine")
    node.manage(lambda manager, actor, done: manager.update_hub(NAMESPACE, "orders", spec, actor, done))

    assert numbers(client, reader, 1) == [0]
