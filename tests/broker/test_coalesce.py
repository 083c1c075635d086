"""Small events of one turn of the loop share a batch; each request has its own callback."""

from collections.abc import Callable, Sequence

import pytest

from broker.builders import NOW_MS, BrokerHarness
from hubmere.broker.coalesce import LONG_RUN_EVENTS, MAX_SHARED_BYTES, Coalescer, shared_limit_bytes, split_run
from hubmere.broker.publish import Publisher
from hubmere.model.entity import Status
from hubmere.model.errors import EntityDisabled, ServerBusy, UndecodableMessage
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Profile
from hubmere.translate import HttpEvent, events, message_from_http, messages_to_batch

MALFORMED = b"\x00\x53"


class Coalescing:
    """A coalescer; the test decides when a turn ends."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.broker_harness = harness
        self.flushes: list[Callable[[float, int], None]] = []
        self.settled: list[tuple[str, Exception | None]] = []
        self.coalescer = Coalescer(messages_to_batch, self.flushes.append)

    def add(self, name: str, publisher: Publisher, *bodies: bytes, size_bytes: int | None = None) -> None:
        """Add one request; its outcome is recorded under its name."""
        messages = [body if body == MALFORMED else message_from_http(HttpEvent(body=body)) for body in bodies]
        self.coalescer.add(
            publisher,
            messages,
            size_bytes=sum(map(len, bodies)) if size_bytes is None else size_bytes,
            on_settled=lambda error: self.settled.append((name, error)),
            now=0.0,
            now_ms=NOW_MS,
        )

    def end_turn(self) -> None:
        """End the turn: flush, commit, and run the callbacks."""
        flushes, self.flushes[:] = list(self.flushes), []
        for flush in flushes:
            flush(0.0, NOW_MS)
        self.broker_harness.turn.run()

    def batches(self, partition: int) -> list[list[bytes]]:
        """The stored events of a partition, batch by batch."""
        found: list[list[bytes]] = []
        log = self.broker_harness.hub.log(partition)
        while (at := sum(map(len, found))) < log.state.committed:
            chunk = log.read(at, 1)
            assert chunk is not None
            found.append([event.body or b"" for event in events(chunk.data, 0, at, chunk.next_sequence)])
        return found

    def names(self) -> list[str]:
        """Requests that are durable, in the order of their callbacks."""
        return [name for name, error in self.settled if error is None]


@pytest.fixture
def coalescing(harness: BrokerHarness) -> Coalescing:
    """A coalescer for the hub `orders` with four partitions."""
    return Coalescing(harness)


def a_publisher(harness: BrokerHarness, partition: str | None = "0") -> Publisher:
    """A new publisher; in the product each connection has its own."""
    return harness.broker.open_publisher(harness.hub, partition=partition)


def test_events_of_several_connections_for_one_partition_share_a_batch(
    harness: BrokerHarness, coalescing: Coalescing
) -> None:
    """Many small producers cause one batch per turn; each gets its own callback after the commit."""
    for name in ("a", "b", "c"):
        coalescing.add(name, a_publisher(harness), name.encode())
    assert coalescing.settled == []

    coalescing.end_turn()

    counters = harness.hub.counters
    assert coalescing.batches(0) == [[b"a", b"b", b"c"]]
    assert coalescing.names() == ["a", "b", "c"]
    assert (counters.incoming_requests, counters.incoming_messages, counters.incoming_bytes) == (3, 3, 3)


def test_events_without_a_key_share_a_batch_in_one_partition(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """The events of the next turn are stored in the next partition."""
    for turn in (b"a", b"b"):
        for name in ("x", "y"):
            coalescing.add(name, a_publisher(harness, None), turn + name.encode())
        coalescing.end_turn()

    assert [coalescing.batches(partition) for partition in range(3)] == [[[b"ax", b"ay"]], [[b"bx", b"by"]], []]


def test_events_for_different_targets_do_not_share_a_batch(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """One flush at the end of the turn publishes the batches of all targets."""
    coalescing.add("a", a_publisher(harness, "0"), b"a")
    coalescing.add("b", a_publisher(harness, "1"), b"b")
    assert len(coalescing.flushes) == 1

    coalescing.end_turn()

    assert [coalescing.batches(partition) for partition in (0, 1)] == [[[b"a"]], [[b"b"]]]


def test_size_of_a_shared_batch_is_limited(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """Events that do not fit start the next batch, in order."""
    for name in ("a", "b", "c"):
        coalescing.add(name, a_publisher(harness), name.encode(), size_bytes=MAX_SHARED_BYTES // 2)

    coalescing.end_turn()

    assert coalescing.batches(0) == [[b"a", b"b"], [b"c"]]


def test_a_long_run_is_published_at_once(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """Waiting events for the same target are published with it, so that the order is kept."""
    run = [b"%d" % number for number in range(LONG_RUN_EVENTS)]
    coalescing.add("first", a_publisher(harness), b"first")
    coalescing.add("run", a_publisher(harness), *run)
    coalescing.add("alone", a_publisher(harness), *run)
    harness.turn.run()

    assert coalescing.batches(0) == [[b"first", *run], run]
    assert coalescing.names() == ["first", "run", "alone"]


def test_target_can_be_flushed_before_a_direct_publication(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """A link keeps the order when it sends a batch after single events."""
    publisher = a_publisher(harness)
    coalescing.add("a", publisher, b"a")
    coalescing.add("other", a_publisher(harness, "1"), b"other")

    coalescing.coalescer.flush_target(publisher, 0.0, NOW_MS)
    coalescing.coalescer.flush_target(publisher, 0.0, NOW_MS)
    harness.turn.run()

    assert (coalescing.batches(0), coalescing.batches(1)) == ([[b"a"]], [])


def test_a_refusal_applies_to_every_request_of_the_batch(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """The hub is disabled between the requests and the end of the turn, so nothing is stored."""
    for name in ("a", "b"):
        coalescing.add(name, a_publisher(harness), name.encode())
    spec = HubSpec(status=Status.SEND_DISABLED)
    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))

    coalescing.end_turn()

    assert [(name, type(error)) for name, error in coalescing.settled] == [("a", EntityDisabled), ("b", EntityDisabled)]
    assert coalescing.batches(0) == []
    assert harness.hub.counters.user_errors == 2


def test_a_malformed_event_fails_only_its_own_request(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """The other requests of the batch are published."""
    for name, body in (("a", b"a"), ("bad", MALFORMED), ("c", b"c")):
        coalescing.add(name, a_publisher(harness), body)

    coalescing.end_turn()

    assert sorted(coalescing.names()) == ["a", "c"]
    assert [type(error) for name, error in coalescing.settled if name == "bad"] == [UndecodableMessage]
    assert coalescing.batches(0) == [[b"a"], [b"c"]]


def test_a_run_with_a_malformed_event_is_returned_to_its_link(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """Only the link knows which delivery each event belongs to."""
    called: list[str] = []
    coalescing.coalescer.add(
        a_publisher(harness),
        [message_from_http(HttpEvent(body=b"a")), MALFORMED],
        size_bytes=3,
        on_settled=lambda _: called.append("settled"),
        on_malformed=lambda: called.append("malformed"),
        now=0.0,
        now_ms=NOW_MS,
    )

    coalescing.end_turn()

    assert called == ["malformed"]


def test_a_failing_callback_does_not_prevent_the_others(harness: BrokerHarness, coalescing: Coalescing) -> None:
    """An error of one connection must not affect others, neither in its batch nor in other batches."""

    def fail(_error: Exception | None) -> None:
        raise RuntimeError("broken")

    spec = HubSpec(status=Status.SEND_DISABLED)
    publishers = [a_publisher(harness, partition) for partition in ("0", "0", "1")]
    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))
    message = message_from_http(HttpEvent(body=b"a"))
    coalescing.add("other", publishers[2], b"a")
    coalescing.coalescer.add(publishers[0], [message], size_bytes=1, on_settled=fail, now=0.0, now_ms=NOW_MS)
    coalescing.add("same", publishers[1], b"a")

    with pytest.raises(RuntimeError):
        coalescing.end_turn()
    coalescing.end_turn()

    assert [name for name, _ in coalescing.settled] == ["same", "other"]


def a_metered_harness(events_per_s: int = 1000) -> BrokerHarness:
    """A broker whose namespace has one throughput unit of this size."""
    return BrokerHarness(profile=Profile.STANDARD, limits={"ingress_events_per_unit": events_per_s})


def test_clients_of_a_namespace_with_throughput_units_share_a_batch() -> None:
    """The quota is that of the namespace, and the whole batch is within it."""
    harness = a_metered_harness()
    coalescing = Coalescing(harness)

    for name in ("a", "b", "c"):
        coalescing.add(name, a_publisher(harness), name.encode())
    coalescing.end_turn()

    assert coalescing.batches(0) == [[b"a", b"b", b"c"]]
    assert coalescing.names() == ["a", "b", "c"]


def test_a_batch_over_the_quota_is_split_and_only_the_excess_is_refused() -> None:
    """Ten events a second are allowed: of eight and five events in two turns, the last three are refused."""
    harness = a_metered_harness(events_per_s=10)
    coalescing = Coalescing(harness)

    for count in (8, 5):
        for number in range(count):
            coalescing.add(f"{count}-{number}", a_publisher(harness), b"x")
        coalescing.end_turn()

    refused = [(name, type(error)) for name, error in coalescing.settled if error is not None]
    assert refused == [(name, ServerBusy) for name in ("5-2", "5-3", "5-4")]
    assert [len(batch) for batch in coalescing.batches(0)] == [8, 1, 1]
    assert harness.hub.counters.throttled_requests == 3


def test_a_failing_callback_of_a_split_batch_does_not_prevent_the_others() -> None:
    """The first client is refused and its callback fails; the second is refused in its own callback."""

    def fail(_error: Exception | None) -> None:
        raise RuntimeError("broken")

    harness = a_metered_harness(events_per_s=1)
    coalescing = Coalescing(harness)
    coalescing.add("first", a_publisher(harness), b"a")
    coalescing.end_turn()
    message = message_from_http(HttpEvent(body=b"b"))
    coalescing.coalescer.add(a_publisher(harness), [message], size_bytes=1, on_settled=fail, now=0.0, now_ms=NOW_MS)
    coalescing.add("other", a_publisher(harness), b"c")

    with pytest.raises(RuntimeError):
        coalescing.end_turn()

    assert [(name, type(error)) for name, error in coalescing.settled] == [("first", type(None)), ("other", ServerBusy)]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([4, 4, 4], [(0, 2), (2, 3)]),
        ([20, 1, 9], [(0, 1), (1, 3)]),
        ([1, 20], [(0, 1), (1, 2)]),
    ],
)
def test_a_run_is_split_at_the_size_limit(sizes: Sequence[int], parts: list[tuple[int, int]]) -> None:
    """An event that is larger than the limit is a separate run."""
    assert list(split_run([bytes(size) for size in sizes], 10)) == parts


def test_size_of_a_shared_batch_never_exceeds_the_publication_limit(harness: BrokerHarness) -> None:
    """The Basic tier allows as much as a shared batch may have."""
    assert shared_limit_bytes(a_publisher(harness)) == MAX_SHARED_BYTES
