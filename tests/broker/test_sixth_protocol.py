"""A new protocol needs no security code: the broker makes every check."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.builders import BrokerHarness
from broker.line_protocol import LineConnection
from hubmere.broker import Caller, ConnectionStringCredential
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet, Rights, Status
from hubmere.model.errors import Refusal
from hubmere.model.names import ROOT_RULE, rule_name
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.spec import HubSpec
from manual_clock import ManualClock

T = TypeVar("T")

_SOURCE = Path(__file__).with_name("line_protocol.py")
_LINE_LIMIT = 100
# Words that occur only in code which decides access; the protocol must not need them.
_SECURITY = re.compile(
    r"principal\.(may|require|covers)|Rights|Resource|hmac|require_|\.verify|is_expired|SharedAccessKey"
)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    made = BrokerHarness(partitions=1)
    yield made
    made.close()


def connection_string(harness: BrokerHarness, rule: str = ROOT_RULE) -> str:
    """The connection string of a rule of the namespace."""
    found = harness.catalog.view.rule(harness.catalog.view.namespace("hubmere"), rule)
    return f"Endpoint=sb://localhost/;SharedAccessKeyName={rule};SharedAccessKey={found.primary_key}"


def a_rule(harness: BrokerHarness, name: str, *rights: str) -> str:
    """A new rule; returns its connection string."""
    parsed = Rights.parse(rights)
    harness.do(lambda done: harness.manager.write_rule("hubmere", None, rule_name(name), parsed, harness.actor(), done))
    return connection_string(harness, name)


def run(harness: BrokerHarness, work: Awaitable[T]) -> T:
    """Run a coroutine while the memory engine completes its writes."""

    async def pump() -> T:
        task = asyncio.ensure_future(work)
        while not task.done():
            harness.turn.run()
            await asyncio.sleep(0)
        return await task

    return asyncio.run(asyncio.wait_for(pump(), 20))


def converse(harness: BrokerHarness, *commands: str, address: str = "127.0.0.1") -> list[str]:
    """The responses of one connection to some commands."""
    connection = LineConnection(harness.broker, ManualClock(), address)

    async def talk() -> list[str]:
        return [line for command in commands for line in await connection.respond(command)]

    return run(harness, talk())


def test_protocol_is_small_and_has_no_security_code() -> None:
    """The broker's surface is complete if a protocol needs only parsing and formatting."""
    source = _SOURCE.read_text(encoding="utf-8")

    assert len(source.splitlines()) < _LINE_LIMIT
    assert _SECURITY.findall(source) == []
    assert re.findall(r"^from hubmere\.broker\.", source, re.MULTILINE) == []


def test_events_can_be_published_and_read_over_a_socket(harness: BrokerHarness) -> None:
    """A client that only sends lines can use the broker."""

    async def session() -> list[str]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address = writer.get_extra_info("peername")[0]
            await LineConnection(harness.broker, ManualClock(), address).serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            commands = (
                f"SIGN-IN {connection_string(harness)}",
                "PUBLISH orders device-7 one two",
                "PUBLISH orders - three",
            )
            writer.writelines(f"{command}\n".encode() for command in commands)
            writer.write(b"READ orders $Default 0\nQUIT\n")
            lines = (await reader.read()).decode().splitlines()
            writer.close()
            await writer.wait_closed()
        return lines

    lines = run(harness, session())

    assert lines == [f"OK {ROOT_RULE}", "OK 0", "OK 1", "0 one two", "1 three", "OK 2", "OK bye"]


def test_refusals_have_the_texts_of_the_broker(harness: BrokerHarness) -> None:
    """The texts are those that AMQP, Kafka and HTTP clients get, since the same code writes them."""
    listener, sender = a_rule(harness, "listener", "Listen"), a_rule(harness, "sender", "Send")

    signed_out = converse(harness, "PUBLISH orders - x", "READ orders $Default 0")
    reading_only = converse(harness, f"SIGN-IN {listener}", "PUBLISH orders - x", "PUBLISH missing - x")
    sending_only = converse(harness, f"SIGN-IN {sender}", "READ orders $Default 0", "PUBLISH missing - x")

    caller = _caller(harness, listener)
    assert reading_only[1] == f"ERROR {_refusal(lambda: caller.open_publisher('orders', 0))}"
    assert all(line.startswith("ERROR ") for line in signed_out)
    assert "Listen" in sending_only[1]
    assert "could not be found" in sending_only[2]
    assert "could not be found" not in reading_only[2], "a refusal must not reveal which hubs exist"


def test_wrong_key_and_forbidden_address_are_refused(harness: BrokerHarness) -> None:
    """Both are checked before anything else."""
    wrong = ConnectionString.parse(connection_string(harness)).text()[:-8] + "AAAAAAA="
    signed_in = f"SIGN-IN {connection_string(harness)}"
    assert converse(harness, f"SIGN-IN {wrong}")[0].startswith("ERROR ")

    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))
    harness.do(lambda done: harness.manager.update_network("hubmere", rules, harness.actor(), done))

    with pytest.raises(Refusal):
        converse(harness, signed_in, address="192.168.0.1")
    assert converse(harness, signed_in, address="10.1.2.3") == [f"OK {ROOT_RULE}"]


def test_disabled_hub_and_large_event_are_refused(harness: BrokerHarness) -> None:
    """Status and size limit are decided by the broker too."""
    signed_in = f"SIGN-IN {connection_string(harness)}"
    large = converse(harness, signed_in, f"PUBLISH orders - {'x' * (harness.hub.publication_bytes + 1)}")
    spec = HubSpec(partition_count=1, status=Status.SEND_DISABLED)
    harness.do(lambda done: harness.manager.update_hub("hubmere", "orders", spec, harness.actor(), done))

    disabled = converse(harness, signed_in, "PUBLISH orders - x")

    assert large[1].startswith("ERROR ")
    assert disabled[1].startswith("ERROR ")


def test_rotated_key_cannot_sign_in(harness: BrokerHarness) -> None:
    """The protocol caches nothing that could outlive the rule."""
    signed_in, kind = f"SIGN-IN {connection_string(harness)}", KeyKind.PRIMARY
    harness.do(
        lambda done: harness.manager.regenerate_key("hubmere", None, ROOT_RULE, kind, None, harness.actor(), done)
    )

    assert converse(harness, signed_in)[0].startswith("ERROR ")


def _caller(harness: BrokerHarness, text: str) -> Caller:
    return harness.broker.sign_in("localhost", ConnectionStringCredential(text), address="127.0.0.1", now_s=0)


def _refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        call()
    return refusal.value.text()
