"""A new protocol needs no security code: the broker makes every check."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.builders import Bench
from broker.line_protocol import LineConnection
from hubmere.broker import Caller, ConnectionStringCredential
from hubmere.model.connection_string import ConnectionString
from hubmere.model.entity import DefaultAction, KeyKind, NetworkRuleSet, Rights, Status
from hubmere.model.errors import Refusal
from hubmere.model.names import ROOT_RULE, rule_name
from hubmere.model.spec import HubSpec
from hubmere.testing import ManualClock

T = TypeVar("T")

_SOURCE = Path(__file__).with_name("line_protocol.py")
_LINE_LIMIT = 100
# Words of code that decides who may do what; the protocol must not need any of them.
_SECURITY = re.compile(
    r"principal\.(may|require|covers)|Rights|Resource|hmac|require_|\.verify|is_expired|SharedAccessKey"
)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(partitions=1)
    yield made
    made.close()


def connection_string(bench: Bench, rule: str = ROOT_RULE) -> str:
    """The connection string of a rule of the namespace."""
    found = bench.catalog.view.rule(bench.catalog.view.namespace("hubmere"), rule)
    return f"Endpoint=sb://localhost/;SharedAccessKeyName={rule};SharedAccessKey={found.primary_key}"


def a_rule(bench: Bench, name: str, *rights: str) -> str:
    """A new rule; returns its connection string."""
    parsed = Rights.parse(rights)
    bench.do(lambda done: bench.manager.write_rule("hubmere", None, rule_name(name), parsed, bench.actor(), done))
    return connection_string(bench, name)


def run(bench: Bench, work: Awaitable[T]) -> T:
    """Run a coroutine while the memory engine completes its writes."""

    async def pump() -> T:
        task = asyncio.ensure_future(work)
        while not task.done():
            bench.turn.run()
            await asyncio.sleep(0)
        return await task

    return asyncio.run(asyncio.wait_for(pump(), 20))


def converse(bench: Bench, *commands: str, address: str = "127.0.0.1") -> list[str]:
    """The responses of one connection to some commands."""
    connection = LineConnection(bench.broker, ManualClock(), address)

    async def talk() -> list[str]:
        return [line for command in commands for line in await connection.respond(command)]

    return run(bench, talk())


def test_protocol_is_small_and_has_no_security_code() -> None:
    """The broker's surface is complete if a protocol needs only parsing and formatting."""
    source = _SOURCE.read_text(encoding="utf-8")

    assert len(source.splitlines()) < _LINE_LIMIT
    assert _SECURITY.findall(source) == []
    assert re.findall(r"^from hubmere\.broker\.", source, re.MULTILINE) == []


def test_events_go_in_and_come_out_over_a_socket(bench: Bench) -> None:
    """A client that only sends lines can use the broker."""

    async def session() -> list[str]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address = writer.get_extra_info("peername")[0]
            await LineConnection(bench.broker, ManualClock(), address).serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            commands = (
                f"SIGN-IN {connection_string(bench)}",
                "PUBLISH orders device-7 one two",
                "PUBLISH orders - three",
            )
            writer.writelines(f"{command}\n".encode() for command in commands)
            writer.write(b"READ orders $Default 0\nQUIT\n")
            lines = (await reader.read()).decode().splitlines()
            writer.close()
            await writer.wait_closed()
        return lines

    lines = run(bench, session())

    assert lines == [f"OK {ROOT_RULE}", "OK 0", "OK 1", "0 one two", "1 three", "OK 2", "OK bye"]


def test_refusals_are_the_brokers(bench: Bench) -> None:
    """The texts are those that AMQP, Kafka and HTTP clients get, since the same code writes them."""
    listener, sender = a_rule(bench, "listener", "Listen"), a_rule(bench, "sender", "Send")

    signed_out = converse(bench, "PUBLISH orders - x", "READ orders $Default 0")
    reading_only = converse(bench, f"SIGN-IN {listener}", "PUBLISH orders - x", "PUBLISH missing - x")
    sending_only = converse(bench, f"SIGN-IN {sender}", "READ orders $Default 0", "PUBLISH missing - x")

    caller = _caller(bench, listener)
    assert reading_only[1] == f"ERROR {_refusal(lambda: caller.open_publisher('orders', 0))}"
    assert all(line.startswith("ERROR ") for line in signed_out)
    assert "Listen" in sending_only[1]
    assert "could not be found" in sending_only[2]
    assert "could not be found" not in reading_only[2], "a refusal must not reveal which hubs exist"


def test_wrong_key_and_forbidden_address_are_refused(bench: Bench) -> None:
    """Both are checked before anything else."""
    wrong = ConnectionString.parse(connection_string(bench)).text()[:-8] + "AAAAAAA="
    signed_in = f"SIGN-IN {connection_string(bench)}"
    assert converse(bench, f"SIGN-IN {wrong}")[0].startswith("ERROR ")

    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))
    bench.do(lambda done: bench.manager.update_network("hubmere", rules, bench.actor(), done))

    with pytest.raises(Refusal):
        converse(bench, signed_in, address="192.168.0.1")
    assert converse(bench, signed_in, address="10.1.2.3") == [f"OK {ROOT_RULE}"]


def test_disabled_hub_and_large_event_are_refused(bench: Bench) -> None:
    """Status and size limit are decided by the broker too."""
    signed_in = f"SIGN-IN {connection_string(bench)}"
    large = converse(bench, signed_in, f"PUBLISH orders - {'x' * (bench.hub.publication_bytes + 1)}")
    spec = HubSpec(partition_count=1, status=Status.SEND_DISABLED)
    bench.do(lambda done: bench.manager.update_hub("hubmere", "orders", spec, bench.actor(), done))

    disabled = converse(bench, signed_in, "PUBLISH orders - x")

    assert large[1].startswith("ERROR ")
    assert disabled[1].startswith("ERROR ")


def test_rotated_key_signs_in_no_more(bench: Bench) -> None:
    """The protocol keeps nothing that could outlive the rule."""
    signed_in, kind = f"SIGN-IN {connection_string(bench)}", KeyKind.PRIMARY
    bench.do(lambda done: bench.manager.regenerate_key("hubmere", None, ROOT_RULE, kind, None, bench.actor(), done))

    assert converse(bench, signed_in)[0].startswith("ERROR ")


def _caller(bench: Bench, text: str) -> Caller:
    return bench.broker.sign_in("localhost", ConnectionStringCredential(text), address="127.0.0.1", now_s=0)


def _refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        call()
    return refusal.value.text()
