"""Clients that try to use up the node's memory: it stays within its budget, and others are served.

Each attack would take many times the budget if it could. The tests compare the node's peak of resident memory (VmHWM)
with its memory before the attack.
"""

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attack.normal_client import PROBES, NormalClient, address_of, kafka_produce
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.records.compression import Codec
from hubmere.records.records import Record, encode_batch
from hubmere.settings import HubSetting
from hubmere.testing import Node
from hubmere.wire.amqp import ClientCredentials
from hubmere.wire.amqp.codec.composites import write_described
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_SASL, HEADER_AMQP, HEADER_SASL, frame, frame_of
from hubmere.wire.amqp.codec.performatives import Attach, Begin, Flow, Open, SaslInit, Source, Target, Transfer
from hubmere.wire.kafka.connection import ClientConnection
from hubmere.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from hubmere.wire.kafka.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from hubmere.wire.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

MIB = 1024 * 1024
BUDGET_BYTES = 64 * MIB
# In addition to the buffers, connections, links and Python's own objects use some memory.
OBJECTS_BYTES = 16 * MIB
ALLOWED_BYTES = BUDGET_BYTES * 115 // 100 + OBJECTS_BYTES
# No attack lasts longer.
ATTACK_SECONDS = 20.0
# For what must happen, on a busy machine as well.
PATIENCE_S = 240.0
PARTITIONS = 4
STORED_BYTES = 24 * MIB


@pytest.fixture
def node() -> Iterator[Node]:
    """A node with a small budget and some stored events.

    Each attack has its own: memory of the last one is still in use.
    """
    hub = HubSetting(name="orders", partition_count=PARTITIONS)
    with Node(hubs=[hub], settings={"memory_budget_bytes": BUDGET_BYTES, "durability": "os"}) as running:
        _store_events(running)
        yield running


# --- what is measured


def resident_bytes(node: Node, field: str = "VmRSS") -> int:
    """A field of the process's status, in bytes."""
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def forget_peak(node: Node) -> None:
    """Reset the peak that the kernel records."""
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


# --- clients


class KafkaClient:
    """A signed-in Kafka connection that reads only on request."""

    def __init__(self, node: Node, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(120)
        self.socket.connect(address_of(node.kafka))
        self.engine = ClientConnection(client_id="small")
        self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0$ConnectionString\0" + node.connection_string.encode()
        self.call(SaslAuthenticateRequest(auth_bytes=token), 2)

    def send(self, body: object, version: int) -> None:
        self.engine.request(body, version)
        self.socket.sendall(b"".join(self.engine.data_to_send()))

    def call(self, body: object, version: int) -> object:
        self.send(body, version)
        while True:
            data = self.socket.recv(1 << 20)
            assert data, "the node has closed the connection"
            if answers := self.engine.receive_data(data):
                return answers[0].body


def a_produce(batch: bytes, partition: int) -> ProduceRequest:
    part = ProducePartition(index=partition, records=batch)
    topic = ProduceTopic(name="orders", partitions=(part,))
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topics=(topic,))


def _store_events(node: Node) -> None:
    client = KafkaClient(node)
    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, None, bytes(MIB - 1000))]))
    for number in range(STORED_BYTES // MIB):
        client.call(a_produce(batch, number % PARTITIONS), 7)
    client.socket.close()


def amqp_opening(node: Node, *links: bytes) -> bytes:
    """The bytes that sign in with SASL PLAIN, open a connection, begin a session and attach links."""
    parts = ConnectionString.parse(node.emulator_connection_string)
    credentials = ClientCredentials.plain(parts.key_name or "", parts.key or "")
    init = SaslInit(mechanism=credentials.mechanism, initial_response=credentials.initial_response)
    window = 1_000_000
    begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=window, handle_max=1000)
    return b"".join(
        (
            HEADER_SASL + frame(init, 0, FRAME_TYPE_SASL),
            HEADER_AMQP + frame(Open(container_id="small", hostname="localhost")),
            frame(begin),
            *links,
        )
    )


def an_attach(handle: int, *, reads: bool, partition: int = 0) -> bytes:
    address = f"orders/ConsumerGroups/$Default/Partitions/{partition}" if reads else f"orders/Partitions/{partition}"
    source = Source(address=address if reads else "here")
    target = Target(address="here" if reads else address)
    attach = Attach(name=f"link-{handle}", handle=handle, role=reads, source=source, target=target)
    attach.initial_delivery_count = None if reads else 0
    return frame(attach)


def endless_credit(handle: int) -> bytes:
    window = 1_000_000
    flow = Flow(next_incoming_id=0, incoming_window=window, next_outgoing_id=0, outgoing_window=window)
    flow.handle, flow.delivery_count, flow.link_credit = handle, 0, 100_000
    return frame(flow)


def push(open_sockets: list[tuple[socket.socket, bytes]]) -> None:
    """Send the rest of the bytes on each socket, as far as the node reads them, for a limited time."""
    left = {sock: memoryview(data) for sock, data in open_sockets}
    for sock in left:
        sock.setblocking(False)
    deadline = time.monotonic() + ATTACK_SECONDS
    quiet_until = time.monotonic() + 3.0
    while left and time.monotonic() < min(deadline, quiet_until):
        for sock, data in list(left.items()):
            try:
                sent = sock.send(data[: 256 * 1024])
            except BlockingIOError:
                continue
            except OSError:
                del left[sock]
                continue
            quiet_until = time.monotonic() + 3.0
            if sent == len(data):
                del left[sock]
            else:
                left[sock] = data[sent:]
        time.sleep(0.001)


# attacks: each opens connections, uses as much memory as it can, and leaves them open


def unfinished_amqp_deliveries(node: Node, stack: contextlib.ExitStack) -> None:
    """Deliveries whose last frame is never sent, on many links of many connections."""
    links = 12
    piece = bytes(60_000)
    sockets = []
    for _ in range(24):
        opening = amqp_opening(node, *(an_attach(handle, reads=False) for handle in range(links)))
        data = bytearray()
        for round_number in range(16):
            for handle in range(links):
                head = Transfer(handle=handle, more=True)
                if round_number == 0:
                    head = Transfer(handle=handle, delivery_id=handle, delivery_tag=b"t", message_format=0, more=True)
                data += frame_of(write_described(head) + piece)
        sock = stack.enter_context(socket.create_connection(address_of(node.amqp), 120))
        sock.sendall(opening)
        sock.recv(1 << 16)
        sockets.append((sock, bytes(data)))
    push(sockets)


def unread_kafka_fetches(node: Node, stack: contextlib.ExitStack) -> None:
    """Fetches of everything whose answers are not read."""
    parts = tuple(FetchPartition(index=index, fetch_offset=0, max_bytes=16 * MIB) for index in range(PARTITIONS))
    for _ in range(60):
        client = KafkaClient(node, receive_buffer_bytes=4096)
        stack.enter_context(client.socket)
        with contextlib.suppress(OSError):
            for _ in range(3):
                topic = FetchTopic(name="orders", partitions=parts)
                client.send(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 * MIB, topics=(topic,)), 4)


def unfinished_kafka_requests(node: Node, stack: contextlib.ExitStack) -> None:
    """Requests that announce four megabytes and stop just before the end."""
    sockets = []
    for _ in range(60):
        client = KafkaClient(node)
        stack.enter_context(client.socket)
        sockets.append((client.socket, (4 * MIB - 100).to_bytes(4, "big") + bytes(4 * MIB - 1000)))
    push(sockets)


def announced_kafka_requests(node: Node, stack: contextlib.ExitStack) -> None:
    """Requests that announce four megabytes and send none of them."""
    for _ in range(200):
        client = KafkaClient(node)
        stack.enter_context(client.socket)
        client.socket.sendall((4 * MIB - 100).to_bytes(4, "big") + b"\0")


def unfinished_http_bodies(node: Node, stack: contextlib.ExitStack) -> None:
    """Publications whose last byte is never sent."""
    parts = ConnectionString.parse(node.connection_string)
    token = make_token("https://localhost/", parts.key_name or "", parts.key or "", expires_at_s=4_000_000_000)
    head = (
        "POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
        f"Authorization: {token}\r\n\r\n"
    ).encode()
    sockets = []
    for _ in range(200):
        sock = stack.enter_context(socket.create_connection(address_of(node.http), 120))
        sockets.append((sock, head + bytes(990_000)))
    push(sockets)


def slow_amqp_readers(node: Node, stack: contextlib.ExitStack) -> None:
    """Readers with unlimited credit that read nothing, on several links of many connections."""
    sockets = []
    for _ in range(60):
        links = [an_attach(handle, reads=True, partition=handle) for handle in range(PARTITIONS)]
        credit = [endless_credit(handle) for handle in range(PARTITIONS)]
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(120)
        sock.connect(address_of(node.amqp))
        stack.enter_context(sock)
        sockets.append((sock, amqp_opening(node, *links, *credit)))
    push(sockets)


def compressed_batches_over_amqp(node: Node, stack: contextlib.ExitStack) -> None:
    """Batches of some kilobytes that decompress to megabytes for AMQP, with readers that read everything."""
    records = [Record(index, 1_700_000_000_000, None, bytes(MIB - 1000)) for index in range(14)]
    batch = bytes(encode_batch(records, codec=Codec.GZIP))
    client = KafkaClient(node)
    stack.enter_context(client.socket)
    for number in range(2 * PARTITIONS):
        client.call(a_produce(batch, number % PARTITIONS), 7)
    readers = []
    for partition in range(PARTITIONS):
        sock = stack.enter_context(socket.create_connection(address_of(node.amqp), 120))
        sock.sendall(amqp_opening(node, an_attach(0, reads=True, partition=partition), endless_credit(0)))
        readers.append(sock)
    deadline = time.monotonic() + ATTACK_SECONDS
    wanted = 28 * MIB * PARTITIONS
    for sock in readers:
        sock.setblocking(False)
    while wanted > 0 and time.monotonic() < deadline:
        for sock in readers:
            with contextlib.suppress(BlockingIOError):
                wanted -= len(sock.recv(MIB))
        time.sleep(0.0005)


ATTACKS: dict[str, Callable[[Node, contextlib.ExitStack], None]] = {
    attack.__name__: attack
    for attack in (
        unfinished_amqp_deliveries,
        unread_kafka_fetches,
        unfinished_kafka_requests,
        announced_kafka_requests,
        unfinished_http_bodies,
        slow_amqp_readers,
        compressed_batches_over_amqp,
    )
}


@pytest.fixture
def usual_bytes(node: Node) -> int:
    """The memory of the node after normal requests and without an attack."""
    for probe in (kafka_produce("orders"), *PROBES.values()):
        with NormalClient(node, probe) as client:
            client.await_answers(20)
    return resident_bytes(node)


@pytest.mark.parametrize("name", ATTACKS)
def test_node_stays_within_its_memory_budget_and_serves_others(node: Node, usual_bytes: int, name: str) -> None:
    """Back-pressure comes first, then refusals; afterwards the memory is returned to the system."""
    forget_peak(node)

    with contextlib.ExitStack() as stack:
        ATTACKS[name](node, stack)
        for probe in (kafka_produce("orders"), *PROBES.values()):
            with NormalClient(node, probe) as client:
                client.await_answers(10)
    goes_back = _settles_below(node, usual_bytes + BUDGET_BYTES // 2)
    grown_bytes = resident_bytes(node, "VmHWM") - usual_bytes

    assert grown_bytes <= ALLOWED_BYTES, f"{grown_bytes / MIB:.0f} MiB"
    assert goes_back


def test_refusals_are_counted(node: Node) -> None:
    """An operator sees refusals because of memory."""
    with contextlib.ExitStack() as stack:
        announced_kafka_requests(node, stack)
        deadline = time.monotonic() + PATIENCE_S
        while not _refusals(node):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert "memory budget of" in node.logs()


def _refusals(node: Node) -> int:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("hubmere_memory_refusals_total "))


def _settles_below(node: Node, limit_bytes: int) -> bool:
    """Whether memory is returned after an attack."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if resident_bytes(node) <= limit_bytes:
            return True
        time.sleep(0.1)
    return False
