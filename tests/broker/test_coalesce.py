"""Small events of one turn share a batch, each request with its own callback."""

from collections.abc import Callable, Sequence

import pytest

from broker.builders import NOW_MS, Bench
from hubmere.broker.coalesce import LONG_RUN_EVENTS, MAX_SHARED_BYTES, Coalescer, shared_limit_bytes, split_run
from hubmere.broker.publish import Publisher
from hubmere.model.entity import Status
from hubmere.model.errors import EntityDisabled, UndecodableMessage
from hubmere.model.spec import HubSpec
from hubmere.model.tier import Profile
from hubmere.translate import HttpEvent, events, message_from_http, messages_to_batch

MALFORMED = b"\x00\x53"


class Coalescing:
    """A coalescer whose turns the test ends."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.flushes: list[Callable[[float, int], None]] = []
        self.settled: list[tuple[str, Exception | None]] = []
        self.coalescer = Coalescer(messages_to_batch, self.flushes.append)

    def add(self, name: str, publisher: Publisher, *bodies: bytes, size_bytes: int | None = None) -> None:
        """Add one request; its outcome is noted under its name."""
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
        """Flush, commit, and call back."""
        flushes, self.flushes[:] = list(self.flushes), []
        for flush in flushes:
            flush(0.0, NOW_MS)
        self.bench.turn.run()

    def batches(self, partition: int) -> list[list[bytes]]:
        """The events that were stored in a partition, batch by batch."""
        found: list[list[bytes]] = []
        log = self.bench.hub.log(partition)
        while (at := sum(map(len, found))) < log.state.committed:
            chunk = log.read(at, 1)
            assert chunk is not None
            found.append([event.body or b"" for event in events(chunk.data, 0, at, chunk.next_sequence)])
        return found

    def names(self) -> list[str]:
        """Requests that are durable, in the order of their callbacks."""
        return [name for name, error in self.settled if error is None]


@pytest.fixture
def coalescing(bench: Bench) -> Coalescing:
    """On the hub `orders` with four partitions."""
    return Coalescing(bench)


def a_publisher(bench: Bench, partition: str | None = "0") -> Publisher:
    """A new publisher, as each connection has its own."""
    return bench.broker.open_publisher(bench.hub, partition=partition)


def test_events_of_several_connections_for_one_partition_share_a_batch(bench: Bench, coalescing: Coalescing) -> None:
    """Many small producers cost one batch per turn; each gets its own callback, after the commit."""
    for name in ("a", "b", "c"):
        coalescing.add(name, a_publisher(bench), name.encode())
    assert coalescing.settled == []

    coalescing.end_turn()

    counters = bench.hub.counters
    assert coalescing.batches(0) == [[b"a", b"b", b"c"]]
    assert coalescing.names() == ["a", "b", "c"]
    assert (counters.incoming_requests, counters.incoming_messages, counters.incoming_bytes) == (3, 3, 3)


def test_keyless_events_share_a_batch_in_some_partition(bench: Bench, coalescing: Coalescing) -> None:
    """The next turn goes to the next partition."""
    for turn in (b"a", b"b"):
        for name in ("x", "y"):
            coalescing.add(name, a_publisher(bench, None), turn + name.encode())
        coalescing.end_turn()

    assert [coalescing.batches(partition) for partition in range(3)] == [[[b"ax", b"ay"]], [[b"bx", b"by"]], []]


def test_targets_do_not_mix(bench: Bench, coalescing: Coalescing) -> None:
    """One flush per turn publishes the batches of all targets."""
    coalescing.add("a", a_publisher(bench, "0"), b"a")
    coalescing.add("b", a_publisher(bench, "1"), b"b")
    assert len(coalescing.flushes) == 1

    coalescing.end_turn()

    assert [coalescing.batches(partition) for partition in (0, 1)] == [[[b"a"]], [[b"b"]]]


def test_a_batch_is_bounded(bench: Bench, coalescing: Coalescing) -> None:
    """Events that do not fit begin the next batch, in their order."""
    for name in ("a", "b", "c"):
        coalescing.add(name, a_publisher(bench), name.encode(), size_bytes=MAX_SHARED_BYTES // 2)

    coalescing.end_turn()

    assert coalescing.batches(0) == [[b"a", b"b"], [b"c"]]


def test_a_long_run_does_not_wait(bench: Bench, coalescing: Coalescing) -> None:
    """It takes along what waits for the same target, so that the order is kept."""
    run = [b"%d" % number for number in range(LONG_RUN_EVENTS)]
    coalescing.add("first", a_publisher(bench), b"first")
    coalescing.add("run", a_publisher(bench), *run)
    coalescing.add("alone", a_publisher(bench), *run)
    bench.turn.run()

    assert coalescing.batches(0) == [[b"first", *run], run]
    assert coalescing.names() == ["first", "run", "alone"]


def test_the_target_can_be_flushed_before_a_direct_publication(bench: Bench, coalescing: Coalescing) -> None:
    """A link keeps its order when it sends a batch after single events."""
    publisher = a_publisher(bench)
    coalescing.add("a", publisher, b"a")
    coalescing.add("other", a_publisher(bench, "1"), b"other")

    coalescing.coalescer.flush_target(publisher, 0.0, NOW_MS)
    coalescing.coalescer.flush_target(publisher, 0.0, NOW_MS)
    bench.turn.run()

    assert (coalescing.batches(0), coalescing.batches(1)) == ([[b"a"]], [])


def test_a_refusal_concerns_every_request_of_the_batch(bench: Bench, coalescing: Coalescing) -> None:
    """The hub is disabled between the requests and the end of the turn: nothing is stored."""
    for name in ("a", "b"):
        coalescing.add(name, a_publisher(bench), name.encode())
    spec = HubSpec(status=Status.SEND_DISABLED)
    bench.do(lambda done: bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), done))

    coalescing.end_turn()

    assert [(name, type(error)) for name, error in coalescing.settled] == [("a", EntityDisabled), ("b", EntityDisabled)]
    assert coalescing.batches(0) == []
    assert bench.hub.counters.user_errors == 2


def test_a_malformed_event_refuses_its_own_request_only(bench: Bench, coalescing: Coalescing) -> None:
    """The other requests of the batch are published."""
    for name, body in (("a", b"a"), ("bad", MALFORMED), ("c", b"c")):
        coalescing.add(name, a_publisher(bench), body)

    coalescing.end_turn()

    assert sorted(coalescing.names()) == ["a", "c"]
    assert [type(error) for name, error in coalescing.settled if name == "bad"] == [UndecodableMessage]
    assert coalescing.batches(0) == [[b"a"], [b"c"]]


def test_the_owner_of_a_run_with_a_malformed_event_publishes_it_itself(bench: Bench, coalescing: Coalescing) -> None:
    """It knows which delivery each event belongs to."""
    called: list[str] = []
    coalescing.coalescer.add(
        a_publisher(bench),
        [message_from_http(HttpEvent(body=b"a")), MALFORMED],
        size_bytes=3,
        on_settled=lambda _: called.append("settled"),
        on_malformed=lambda: called.append("malformed"),
        now=0.0,
        now_ms=NOW_MS,
    )

    coalescing.end_turn()

    assert called == ["malformed"]


def test_a_callback_that_fails_does_not_keep_others_waiting(bench: Bench, coalescing: Coalescing) -> None:
    """One connection's fault must not reach the others, neither in its batch nor in other batches."""

    def fail(_error: Exception | None) -> None:
        raise RuntimeError("broken")

    spec = HubSpec(status=Status.SEND_DISABLED)
    publishers = [a_publisher(bench, partition) for partition in ("0", "0", "1")]
    bench.do(lambda done: bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), done))
    message = message_from_http(HttpEvent(body=b"a"))
    coalescing.add("other", publishers[2], b"a")
    coalescing.coalescer.add(publishers[0], [message], size_bytes=1, on_settled=fail, now=0.0, now_ms=NOW_MS)
    coalescing.add("same", publishers[1], b"a")

    with pytest.raises(RuntimeError):
        coalescing.end_turn()
    coalescing.end_turn()

    assert [name for name, _ in coalescing.settled] == ["same", "other"]


@pytest.mark.parametrize("profile", [Profile.STANDARD])
def test_metered_publishers_share_with_themselves_only(profile: Profile) -> None:
    """A refusal for the quota of one client must not concern another one."""
    bench = Bench(profile=profile)
    coalescing = Coalescing(bench)
    first, second = a_publisher(bench), a_publisher(bench)
    assert first.is_metered

    for publisher in (first, second, first):
        coalescing.add("x", publisher, b"1" if publisher is first else b"2")
    coalescing.end_turn()

    assert sorted(coalescing.batches(0)) == [[b"1", b"1"], [b"2"]]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([], []),
        ([4, 4, 4], [(0, 2), (2, 3)]),
        ([20, 1, 9], [(0, 1), (1, 3)]),
        ([1, 20], [(0, 1), (1, 2)]),
    ],
)
def test_a_run_is_cut_at_the_limit(sizes: Sequence[int], parts: list[tuple[int, int]]) -> None:
    """An event that is larger than the limit is a run of its own."""
    assert list(split_run([bytes(size) for size in sizes], 10)) == parts


def test_the_limit_of_a_batch_is_never_above_that_of_a_publication(bench: Bench) -> None:
    """The Basic tier allows as much as a shared batch may have."""
    assert shared_limit_bytes(a_publisher(bench)) == MAX_SHARED_BYTES
