"""A broker in memory, a clock that the test sets, and builders with valid defaults."""

from collections.abc import Callable

from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.management.manager import Actor
from hubmere.model.capture.targets import CaptureTargets
from hubmere.model.errors import Refusal
from hubmere.model.names import hub_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec
from hubmere.model.tier import LimitsBook, Override, Profile
from hubmere.records.header import BatchHeader, seal, write_header
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.memory import MemoryEngine

NOW_MS = 1_700_000_000_000
ADMIN_TOKEN = "administrator"


class Turn:
    """The owner's thread, controlled by the test: calls posted to it run when the test calls `run`."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def post(self, call: Callable[[], None]) -> None:
        """The function that engines and catalogs use to run a call on the owner's thread."""
        self._calls.append(call)

    def run(self) -> None:
        """Run all posted calls, and the calls that these post."""
        while self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                call()


class BrokerHarness:
    """A broker with one namespace and a hub named `orders`."""

    def __init__(
        self,
        *,
        profile: Profile = Profile.DEVELOPER,
        partitions: int = 4,
        limits: dict[str, Override] | None = None,
        capacity: int = 1,
        auto_inflate_to: int = 0,
        capture_targets: CaptureTargets | None = None,
        capture_hold_bytes: int | None = None,
        segment_bytes: int = 1 << 20,
    ) -> None:
        self.turn = Turn()
        self.engine = MemoryEngine(post=self.turn.post)
        self.catalog = SqliteCatalog.open(post=self.turn.post)
        catalog = self.catalog
        self.broker = Broker(
            engine=self.engine,
            catalog=self.catalog,
            book=LimitsBook(profile=profile, overrides=limits or {}),
            access=Access(
                lambda: catalog.view, host_names(["localhost"], lambda: catalog.view), admin_token=ADMIN_TOKEN
            ),
            default_namespace="hubmere",
            segment_bytes=segment_bytes,
            default_partition_count=4,
            capture_targets=capture_targets,
            capture_hold_bytes=capture_hold_bytes,
        )
        self.now = 0.0
        self.manager = self.broker.manager
        spec = NamespaceSpec(
            capacity=capacity, auto_inflate=bool(auto_inflate_to), maximum_throughput_units=auto_inflate_to or None
        )
        self.do(lambda done: self.manager.create_namespace(namespace_name("hubmere"), spec, self.actor(), done))
        self.a_hub("orders", partitions=partitions)

    @property
    def hub(self) -> LiveHub:
        """The hub `orders`, which every test has."""
        return self.broker._namespace("hubmere").hub("orders")

    def actor(self) -> Actor:
        """The actor of management changes in tests."""
        return Actor(name="test", now_ms=NOW_MS + int(self.now * 1000), now=self.now)

    def do(self, change: Callable[[Callable[[Refusal | None], None]], object]) -> None:
        """Execute a management change until it is durable; raises its refusal."""
        outcome: list[Refusal | None] = []
        change(outcome.append)
        # The catalog has its own thread: an empty change waits for it and completes what came before.
        self.catalog.apply()
        self.turn.run()
        assert len(outcome) == 1
        if outcome[0] is not None:
            raise outcome[0]

    def a_hub(self, name: str, *, partitions: int = 4, spec: HubSpec | None = None) -> LiveHub:
        """Create another hub."""
        wish = spec or HubSpec(partition_count=partitions)
        self.do(lambda done: self.manager.create_hub("hubmere", hub_name(name), wish, self.actor(), done))
        return self.broker._namespace("hubmere").hub(name)

    def close(self) -> None:
        """Close the catalog, which ends its thread."""
        self.catalog.close()


def a_batch(count: int = 1, *, body: bytes = b"x", producer: tuple[int, int, int] = (-1, -1, -1)) -> bytearray:
    """A valid closed batch of equal events, in the form that an endpoint passes to the broker."""
    record = _record(body)
    records = b"".join(_framed(record, delta) for delta in range(count))
    batch = bytearray(61) + records
    header = BatchHeader(0, len(batch) - 12, 0, 2, 0, 0, count - 1, 0, 0, *producer, count)
    write_header(batch, header)
    seal(batch)
    return batch


def _record(body: bytes) -> bytes:
    return b"\x01" + _zigzag(len(body)) + body + b"\x00"


def _framed(record: bytes, delta: int) -> bytes:
    content = b"\x00\x00" + _zigzag(delta) + record
    return _zigzag(len(content)) + content


def _zigzag(value: int) -> bytes:
    number, out = value << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
