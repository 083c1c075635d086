"""Publishing over AMQP (reference: AMQP 4, checks 13 and 24 to 30)."""

from collections.abc import Iterator

import pytest

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.messages import BATCH_FORMAT, a_batch, an_event, body_of
from endpoints.amqp.raw_client import RawClient, Refused
from endpoints.amqp.raw_frames import DISPOSITION, frames_of
from hubmere.model.errors import EntityDisabled, StorageFull
from hubmere.model.keys import partition_of_key
from hubmere.model.tier import LimitsBook, Profile
from hubmere.store.engine import PartitionLog
from hubmere.wire.amqp.codec.message import AmqpValue, Data, Message, Sequence, write_message
from hubmere.wire.amqp.codec.performatives import Accepted, Header, Properties, Rejected, Target
from hubmere.wire.amqp.codec.types import (
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
)
from node_clock import NodeClock


def bodies(client: RawClient, partition: int, count: int, group: str = "$Default") -> list[bytes]:
    reader = client.reader(f"orders/ConsumerGroups/{group}/Partitions/{partition}")
    return [body_of(message) for message in client.receive(reader, count)]


@pytest.mark.parametrize(
    "address",
    ["amqps://localhost:5671/orders", "/orders", "orders", "ORDERS", "orders/Partitions/1", "/orders/PARTITIONS/1"],
)
def test_every_form_of_a_target_accepts_events(client: RawClient, address: str) -> None:
    """Each SDK writes the same target in its own way."""
    client.publish(client.sender(address), an_event())


def test_batch_has_one_outcome_for_all_its_events(client: RawClient) -> None:
    """Sequence numbers are consecutive, and there is one settled disposition."""
    sender = client.sender("orders/Partitions/0")

    client.publish(sender, a_batch([an_event(f"{n}") for n in range(20)]), message_format=BATCH_FORMAT)
    received = client.receive(client.reader(), 20)

    assert [body_of(message) for message in received] == [b"%d" % n for n in range(20)]
    numbers = [(message.message_annotations or {})["x-opt-sequence-number"] for message in received]
    assert numbers == list(range(20))
    assert (
        sum(found.code == DISPOSITION for found in frames_of(bytes(client.transcript))) == 2
    )  # the one of put-token, and this one


@pytest.mark.parametrize("key", ["device-7", "7149583486996073602", "FWfAT", "sOdeEAsyQoEuEFPGerWO", "ключ"])
def test_key_of_the_envelope_selects_the_partition_of_all_events(client: RawClient, key: str) -> None:
    """Each event has the key when it is read."""
    batch = a_batch([an_event("a"), an_event("b")], key=key)
    client.publish(client.sender("orders"), batch, message_format=BATCH_FORMAT)

    partition = partition_of_key(key, 2)
    received = client.receive(client.reader(f"orders/ConsumerGroups/$Default/Partitions/{partition}"), 2)

    assert [(message.message_annotations or {})["x-opt-partition-key"] for message in received] == [key, key]


def test_single_events_are_stored_in_the_partitions_of_their_keys(client: RawClient) -> None:
    """They may arrive in one read together with others."""
    keys = [f"device-{n}" for n in range(20)]
    client.publish(client.sender("orders"), *[an_event(key, key=key) for key in keys])

    for partition in (0, 1):
        expected = [key.encode() for key in keys if partition_of_key(key, 2) == partition]
        assert bodies(client, partition, len(expected)) == expected


def test_events_without_a_key_are_distributed(client: RawClient) -> None:
    """Each event goes to the next partition."""
    sender = client.sender("orders")
    for n in range(4):
        client.publish(sender, an_event(f"{n}"))

    assert len(bodies(client, 0, 2)) + len(bodies(client, 1, 2)) == 4


def test_single_events_of_one_read_share_a_batch(node: AmqpNode, client: RawClient) -> None:
    """Each has its own outcome; on disk they share one batch header."""
    sender = client.sender("orders/Partitions/0")
    ids = client.send(sender, *[an_event(f"{n}") for n in range(200)])

    states = client.outcomes(ids)

    assert sorted(states) == ids
    assert all(isinstance(state, Accepted) for state in states.values())
    assert bodies(client, 0, 200) == [b"%d" % n for n in range(200)]
    log = node.hub().log(0)
    assert node.call(lambda: _batches(log)) < 50


def _batches(log: PartitionLog) -> int:
    count, at = 0, 0
    while at < log.state.committed:
        chunk = log.read(at, 1)
        assert chunk is not None
        count, at = count + 1, chunk.next_sequence
    return count


def test_bad_event_among_good_ones_is_rejected_alone(client: RawClient) -> None:
    """A malformed message must not affect those of the same read."""
    sender = client.sender("orders/Partitions/0")
    ids = client.send(sender, an_event("a"), b"\x00\x53\x75\xa0\xff", an_event("c"))

    states = client.outcomes(ids)

    assert [type(states[number]) for number in ids] == [Accepted, Rejected, Accepted]
    assert states[ids[1]].error.condition == "amqp:decode-error"
    assert bodies(client, 0, 2) == [b"a", b"c"]


@pytest.mark.parametrize(
    "payload", [b"", b"junk", a_batch([]), a_batch([b"junk"]), a_batch([an_event(), an_event()[:-1]])]
)
def test_undecodable_batch_is_rejected_as_a_whole(client: RawClient, payload: bytes) -> None:
    """A batch is atomic."""
    sender = client.sender("orders/Partitions/0")
    (state,) = client.outcomes(client.send(sender, payload, message_format=BATCH_FORMAT)).values()

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:decode-error"
    client.publish(sender, an_event("after"))
    assert bodies(client, 0, 1) == [b"after"]


def test_message_of_several_frames_is_reassembled(client: RawClient) -> None:
    """200 KB in frames of 64 KB."""
    body = bytes(range(256)) * 800
    client.publish(client.sender("orders/Partitions/0"), an_event(body))

    assert bodies(client, 0, 1) == [body]


def test_message_beyond_the_limit_is_rejected_and_the_link_stays_attached() -> None:
    """The text has delivery-id and sizes, as in the service; memory stays limited while it arrives."""
    book = LimitsBook(profile=Profile.BASIC)
    with AmqpNode(book=book) as node, RawClient(node) as client:
        client.authorize()
        sender = client.sender("orders/Partitions/0")
        sender.max_message_size = 1 << 30
        (number,) = client.send(sender, an_event(bytes(256 * 1024 + 1)))

        state = client.outcomes([number])[number]
        client.publish(sender, an_event("small"))

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:link:message-size-exceeded"
    assert f"The received message (delivery-id:{number}, size:262" in (state.error.description or "")


def test_a_thousand_sends_never_lack_credit(client: RawClient) -> None:
    """Credit and session window are renewed in time."""
    sender = client.sender("orders/Partitions/0")

    for _ in range(10):
        client.publish(sender, *[an_event(bytes(50)) for _ in range(100)])

    assert len(bodies(client, 0, 1000)) == 1000


@pytest.mark.parametrize(("address", "full", "step"), [("orders", 300, 150), ("orders/Partitions/0", 1000, 100)])
def test_credit_is_renewed_in_the_steps_of_the_service(client: RawClient, address: str, full: int, step: int) -> None:
    """A sender never runs out of credit."""
    sender = client.sender(address)
    client.publish(sender, *[an_event("x")] * (step - 1))
    before = sender.credit

    client.publish(sender, an_event("x"))
    while sender.credit != full:
        assert client.poll()

    assert before == full - step + 1


def test_receiver_settles_first_whatever_the_sender_asks_for(client: RawClient) -> None:
    """The service answers rcv-settle-mode first; a sender that waits for a second settlement would wait for ever."""
    _, answer = client.attach(is_sender=True, target=Target(address="orders"), snd_settle_mode=0, rcv_settle_mode=1)

    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (0, 0)


def test_sending_without_credit_is_accepted(client: RawClient) -> None:
    """The Azure SDK for Python ignores credit."""
    sender = client.sender("orders/Partitions/0")
    sender.credit = 1000
    ids = client.send(sender, *[an_event() for _ in range(700)])

    assert len(client.outcomes(ids)) == 700


def test_settled_delivery_is_stored_without_a_disposition(client: RawClient) -> None:
    """The sender does not expect an answer."""
    sender = client.sender("orders/Partitions/0", snd_settle_mode=1)
    before = sum(found.code == DISPOSITION for found in frames_of(bytes(client.transcript)))
    client.send(sender, an_event("quiet"), an_event("too"), settled=True)

    assert bodies(client, 0, 2) == [b"quiet", b"too"]
    assert sum(found.code == DISPOSITION for found in frames_of(bytes(client.transcript))) == before


EVERY_TYPE: dict[Value, Value] = {
    "null": None,
    "yes": True,
    "ubyte": UByte(1),
    "uint": UInt(70000),
    "ulong": ULong(2**63),
    "short": Short(-2),
    "int": Int(-3),
    "long": Long(-(2**40)),
    "float": Float(1.5),
    "double": 2.5,
    "char": Char("ß"),
    "timestamp": Timestamp(1_700_000_000_000),
    "binary": b"\x00\x01",
    "text": "größe",
    "symbol": Symbol("sym"),
    "timespan": Described(Symbol("com.microsoft:timespan"), Long(864_000_000_000)),
}


@pytest.mark.parametrize(
    "body",
    [
        Data((b"one", b"two")),
        Data((b"",)),
        AmqpValue("text"),
        AmqpValue(None),
        AmqpValue({"a": [Int(1), "b"]}),
        Sequence(([Int(1), "a"], [])),
    ],
)
def test_all_sections_and_types_survive(client: RawClient, body: Data | AmqpValue | Sequence) -> None:
    """Events are read with the types with which they were sent."""
    sent = Message(
        header=Header(durable=True, priority=3, ttl=60000),
        message_annotations={Symbol("x-opt-mine"): Int(7)},
        properties=Properties(
            message_id=ULong(9), user_id=b"me", subject="s", content_type="text/plain", group_sequence=2
        ),
        application_properties=EVERY_TYPE,
        body=body,
        footer={Symbol("sum"): Long(1)},
    )
    client.publish(client.sender("orders/Partitions/0"), write_message(sent))

    (received,) = client.receive(client.reader(), 1)

    assert received.header is None, "the service delivers none"
    assert received.properties == sent.properties
    assert received.application_properties == EVERY_TYPE
    assert {key: type(value) for key, value in (received.application_properties or {}).items()} == {
        key: type(value) for key, value in EVERY_TYPE.items()
    }
    assert received.body == sent.body
    assert received.footer == sent.footer
    assert (received.message_annotations or {})["x-opt-mine"] == Int(7)


# --- refusals


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nowhere", "amqp:not-found"),
        ("orders/Partitions/9", "com.microsoft:argument-out-of-range"),
        ("orders/Partitions/x", "com.microsoft:argument-out-of-range"),
        ("orders/ConsumerGroups/$Default/Partitions/0", "com.microsoft:argument-error"),
        ("orders/Publishers/" + "x" * 300, "com.microsoft:argument-error"),
        (None, "com.microsoft:argument-error"),
    ],
)
def test_invalid_target_is_refused(client: RawClient, address: Value, condition: str) -> None:
    """The condition is one that SDKs map to the right exception; the connection stays open."""
    with pytest.raises(Refused) as refused:
        client.sender(address)

    assert refused.value.condition == condition
    assert "TrackingId:" in refused.value.description
    client.sender("orders")


def test_key_on_a_partition_link_is_stored_with_the_event(client: RawClient) -> None:
    """Python's buffered producer chooses the partition itself and sends the key too: the link decides."""
    key = next(key for key in "abcdef" if partition_of_key(key, 2) == 1)
    client.publish(client.sender("orders/Partitions/0"), an_event(key=key))

    (received,) = client.receive(client.reader(), 1)

    assert (received.message_annotations or {})["x-opt-partition-key"] == key


def test_a_key_that_is_too_long_is_rejected(client: RawClient) -> None:
    """128 characters are the service's limit."""
    (state,) = client.outcomes(client.send(client.sender("orders"), an_event(key="k" * 129))).values()

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:argument-error"


def test_name_of_a_publisher_is_the_key_of_its_events(client: RawClient) -> None:
    """The events have its name, and are all in one partition."""
    sender = client.sender("orders/Publishers/device-7")
    client.publish(sender, an_event("a"), an_event("b"))

    partition = partition_of_key("device-7", 2)
    received = client.receive(client.reader(f"orders/ConsumerGroups/$Default/Partitions/{partition}"), 2)

    for message in received:
        annotations = message.message_annotations or {}
        assert annotations["x-opt-publisher"] == "device-7"
        assert annotations["x-opt-partition-key"] == "device-7"


def test_publisher_may_not_use_another_key(client: RawClient) -> None:
    """It would publish in the name of another."""
    sender = client.sender("orders/Publishers/device-7")
    (state,) = client.outcomes(client.send(sender, an_event(key="device-8"))).values()

    assert isinstance(state, Rejected)


def test_link_of_a_revoked_publisher_is_detached(node: AmqpNode, client: RawClient) -> None:
    """It is detached at once, and cannot attach again."""
    sender = client.sender("orders/Publishers/device-7")
    client.publish(sender, an_event())
    other = client.sender("orders/Publishers/device-8")

    node.call(lambda: node.hub().revoke("device-7"))

    assert client.detached(sender).condition == "com.microsoft:publisher-revoked"
    with pytest.raises(Refused) as refused:
        client.sender("orders/Publishers/DEVICE-7")
    assert refused.value.condition == "com.microsoft:publisher-revoked"
    client.publish(other, an_event())


def test_disabled_hub_detaches_senders_and_readers(node: AmqpNode, client: RawClient) -> None:
    """Both get the same condition."""
    sender, reader = client.sender("orders"), client.reader()
    hub = node.hub()

    node.call(lambda: hub.retire(EntityDisabled(hub.resource, "Disabled")))

    assert client.detached(sender).condition == "com.microsoft:entity-disabled"
    assert client.detached(reader).condition == "com.microsoft:entity-disabled"


# --- throttling


@pytest.fixture
def throttled() -> Iterator[AmqpNode]:
    """A node with one throughput unit, but only five events a second."""
    book = LimitsBook(profile=Profile.STANDARD, overrides={"ingress_events_per_unit": 5})
    with AmqpNode(book=book, clock=NodeClock(is_stopped=True)) as node:
        yield node


def test_throttled_sender_is_detached_after_its_accepted_events_are_settled(throttled: AmqpNode) -> None:
    """The Python SDK retries only after a detach, not after a rejection; accepted events are settled before."""
    with RawClient(throttled) as client:
        client.authorize()
        sender = client.sender("orders/Partitions/0")
        ids = []
        client.await_window(sender)
        for _ in range(8):
            ids.append(sender.send(an_event()))
            client.flush()

        refused = client.detached(sender)
        stored = throttled.call(lambda: throttled.hub().log(0).state.committed)
        states = client.outcomes(ids[:stored])

    assert refused.condition == "com.microsoft:server-busy"
    assert 1 <= stored < 8
    assert all(isinstance(state, Accepted) for state in states.values())


def test_log_that_cannot_store_events_detaches_the_sender(
    node: AmqpNode, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is temporary; the client should retry."""
    sender = client.sender("orders/Partitions/0")

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no space left on device")

    log = node.hub().log(0)
    monkeypatch.setattr(type(log), "append", full)
    client.send(sender, an_event())

    assert client.detached(sender).condition == "com.microsoft:server-busy"
