"""Any request, valid or not, gets an answer or closes the connection, and never causes an internal error."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.broker.access.authentication import Access, host_names
from hubmere.broker.broker import Broker
from hubmere.endpoints.kafka.admin.served_versions import served_versions
from hubmere.endpoints.kafka.endpoint import HANDLERS, KafkaEndpoint
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.addresses import Addresses
from hubmere.model.clock import SystemClock
from hubmere.model.names import ROOT_RULE, hub_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec, new_hub, new_namespace, root_rule
from hubmere.model.tier import LimitsBook
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.catalog.view import Create
from hubmere.store.memory import MemoryEngine
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from wire.kafka.builders import any_message

# Sign-in is tested separately; here every client has signed in.
_SIGN_IN = (17, 36)
_SERVED = served_versions(HANDLERS)
_REQUESTS = [
    (APIS[key], version)
    for key in sorted(HANDLERS)
    if key not in _SIGN_IN
    for version in range(_SERVED[key].low, _SERVED[key].high + 1)
]


class NoWire:
    """A transport without a peer: timers of a real loop, and a list of written bytes."""

    peer = "127.0.0.1"
    is_secure = False
    is_writable = True
    unsent_bytes = 0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.sent = bytearray()
        self.is_closed = False
        self.failures: list[Exception] = []

    def write(self, *parts: bytes | bytearray | memoryview) -> None:
        for part in parts:
            self.sent += part

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: all input has already arrived."""

    def resume_reading(self) -> None:
        """Do nothing, as above."""

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_at(when, self._guarded, callback)

    def trust_peer(self) -> None:
        pass

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(self._guarded, callback)

    def _guarded(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as failure:
            self.failures.append(failure)


class EndpointHarness:
    """An endpoint in memory, with an event loop that the test runs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        def post(call: Callable[[], None]) -> None:
            self.loop.call_soon_threadsafe(call)

        clock, book = SystemClock(), LimitsBook(overrides={"hubs_per_namespace": "unlimited"})
        self.catalog = catalog = SqliteCatalog.open(post=post)
        tier = book.default_tier
        parent = new_namespace(namespace_name("hubmere"), NamespaceSpec(), book.of(tier), tier=tier, now_ms=0)
        self.rule = root_rule(parent, now_ms=0)
        hub, group = new_hub(parent, hub_name("a"), HubSpec(partition_count=2), book.of(tier), existing=(), now_ms=0)
        catalog.apply(Create(parent), Create(self.rule), Create(hub), Create(group))
        broker = Broker(
            engine=MemoryEngine(post=post),
            catalog=catalog,
            book=book,
            access=Access(lambda: catalog.view, host_names(["localhost"], lambda: catalog.view)),
            default_namespace="hubmere",
            segment_bytes=1 << 20,
            default_partition_count=1,
        )
        broker.open(clock.monotonic())
        addresses = Addresses(namespace="hubmere", kafka=9092)
        self.endpoint = KafkaEndpoint(
            broker, clock, addresses, idle_timeout_s=600, handshake_timeout_s=60, auto_create_hubs=True
        )

    def connect(self) -> tuple[KafkaSession, NoWire, ClientConnection]:
        """A session that has signed in."""
        session, wire, client = (
            self.endpoint.session(is_secure=False),
            NoWire(self.loop),
            ClientConnection(client_id="x"),
        )
        session.on_connected(wire)
        token = f"\0{ROOT_RULE}\0{self.rule.primary_key}".encode()
        for body, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=token), 1),
        ):
            client.request(body, version)
            self.deliver(session, b"".join(client.data_to_send()))
        assert len(client.receive_data(bytes(wire.sent))) == 2
        wire.sent.clear()
        return session, wire, client

    def deliver(self, session: KafkaSession, data: bytes) -> None:
        """Pass bytes to a session on the loop: a long request continues in a later turn."""

        async def on_loop() -> None:
            session.on_data(data)

        self.loop.run_until_complete(on_loop())

    def turn(self, turns: int = 8) -> None:
        """Run the loop until nothing is pending."""
        for _ in range(turns):
            self.catalog.apply()
            self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.endpoint.close()
        self.catalog.close()
        self.loop.close()


@pytest.fixture(scope="module")
def harness() -> Iterator[EndpointHarness]:
    harness = EndpointHarness()
    yield harness
    harness.close()


@pytest.mark.parametrize(("api", "version"), _REQUESTS, ids=lambda value: getattr(value, "name", str(value)))
def test_any_request_is_answered(harness: EndpointHarness, api: Any, version: int) -> None:
    """This covers every handler and version, with values at the limits of their types."""
    randomness = random.Random(f"{api.name}{version}")
    for _ in range(15):
        session, wire, client = harness.connect()
        client.request(any_message(api.request, version, randomness), version)
        harness.deliver(session, b"".join(client.data_to_send()))
        harness.turn(3)

        assert wire.failures == []
        answers = client.receive_data(bytes(wire.sent))
        assert wire.is_closed or len(answers) + session.engine.in_flight == 1 - (client.in_flight == 0 and not answers)
        session.on_lost()
    harness.turn()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_requests_cause_no_internal_error(harness: EndpointHarness, data: st.DataObject) -> None:
    """Bytes are changed, removed or repeated anywhere: an undecodable request closes the connection."""
    api, version = data.draw(st.sampled_from(_REQUESTS))
    session, wire, client = harness.connect()
    client.request(any_message(api.request, version, random.Random(data.draw(st.integers(0, 1000)))), version)
    sound = b"".join(client.data_to_send())
    at = data.draw(st.integers(0, len(sound)))
    damaged = sound[:at] + data.draw(st.binary(max_size=8)) + sound[at + data.draw(st.integers(0, 4)) :]

    for piece in (damaged[: len(damaged) // 2], damaged[len(damaged) // 2 :]):
        harness.deliver(session, piece)
    harness.turn(3)
    session.on_lost()
    harness.turn(1)

    assert wire.failures == []
