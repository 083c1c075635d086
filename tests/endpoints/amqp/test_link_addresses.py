"""Addresses and filters of every SDK become hub, partition, group and position."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.endpoints.amqp.links.link_addresses import (
    HubAddress,
    ServiceNode,
    parse_address,
    parse_selector,
    position_of,
    reader_address,
)
from hubmere.model.errors import InvalidArgument
from hubmere.model.position import Position
from hubmere.wire.amqp.codec.types import Described, Symbol, ULong, Value


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "/orders",
        "orders/",
        "amqps://host/orders",
        "amqps://host:5671/orders",
        "amqp://localhost:5672/orders",
        "sb://ns.example.com/orders?x=1",
        "%6Frders",
    ],
)
def test_every_form_of_a_hub_address_is_accepted(text: str) -> None:
    """Each SDK writes the same hub in its own way."""
    assert parse_address(text) == HubAddress(hub="orders")


@pytest.mark.parametrize("text", ["//orders", "///orders", "orders//", "//ns/orders", "/orders"])
def test_readable_address_is_suggested_for_any_address(text: str) -> None:
    """This holds for any text."""
    address = parse_address(text)
    assert isinstance(address, HubAddress)

    assert reader_address(text, address) == "orders/ConsumerGroups/$Default/Partitions/0"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("orders/Partitions/1", HubAddress(hub="orders", partition="1")),
        ("ORDERS/partitions/1", HubAddress(hub="ORDERS", partition="1")),
        ("/orders/Publishers/device%207", HubAddress(hub="orders", publisher="device 7")),
        ("orders/ConsumerGroups/$Default/Partitions/0", HubAddress(hub="orders", group="$Default", partition="0")),
        ("orders/consumergroups/%24default/PARTITIONS/0", HubAddress(hub="orders", group="$default", partition="0")),
        ("amqps://h:1/orders/ConsumerGroups/cg/Partitions/31", HubAddress(hub="orders", group="cg", partition="31")),
        ("orders/ConsumerGroups/cg", HubAddress(hub="orders", group="cg")),
        ("a/b/ConsumerGroups/cg/Partitions/2", HubAddress(hub="a/b", group="cg", partition="2")),
        ("a/b", HubAddress(hub="a/b")),
        ("partitions/1", HubAddress(hub="partitions/1")),
    ],
)
def test_parts_of_an_address_are_distinguished(text: str, address: HubAddress) -> None:
    """Keywords are case-insensitive and read from the end, because a hub name may contain a slash."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("$cbs", ServiceNode.CLAIMS),
        ("$CBS", ServiceNode.CLAIMS),
        ("amqps://host/$cbs", ServiceNode.CLAIMS),
        ("$management", ServiceNode.MANAGEMENT),
        ("orders/$management", ServiceNode.MANAGEMENT),
    ],
)
def test_service_nodes_are_recognised(text: str, node: ServiceNode) -> None:
    """Two addresses are not hubs."""
    assert parse_address(text) is node


@pytest.mark.parametrize("value", [None, "", "/", "amqps://host", b"orders", 7, "x" * 5000])
def test_address_that_names_nothing_is_refused(value: Value) -> None:
    """An address is a text of limited length."""
    with pytest.raises(InvalidArgument):
        parse_address(value)


@given(st.text(max_size=200))
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    """No address may close a connection."""
    with contextlib.suppress(InvalidArgument):
        assert isinstance(parse_address(text), ServiceNode | HubAddress)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("amqp.annotation.x-opt-offset > '-1'", Position.first()),
        ("amqp.annotation.x-opt-offset >= '-1'", Position.first()),
        ("amqp.annotation.x-opt-offset > '@latest'", Position.latest()),
        ("amqp.annotation.x-opt-offset > @latest", Position.latest()),
        ("amqp.annotation.x-opt-offset > '42'", Position.offset(42)),
        ("amqp.annotation.x-opt-offset >= '42'", Position.offset(42, inclusive=True)),
        ("  AMQP.annotation.x-opt-offset>42 ", Position.offset(42)),
        ("amqp.annotation.x-opt-sequence-number > '7'", Position.sequence(7)),
        ("amqp.annotation.x-opt-sequence-number >= 7", Position.sequence(7, inclusive=True)),
        ("amqp.annotation.x-opt-sequence-number > '-1'", Position.first()),
        ("amqp.annotation.x-opt-enqueued-time > '1700000000000'", Position.time(1_700_000_000_000)),
        ("amqp.annotation.x-opt-enqueued-time >= '1700000000000.5'", Position.time(1_700_000_000_000, inclusive=True)),
        ("amqp.annotation.x-opt-enqueuedtimeutc > 1700000000000", Position.time(1_700_000_000_000)),
    ],
)
def test_every_selector_of_the_sdks_is_accepted(text: str, position: Position) -> None:
    """Values are quoted or bare, with both operators, three kinds of position and one older name."""
    assert parse_selector(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x-opt-offset > '1'",
        "amqp.annotation.x-opt-offset < '1'",
        "amqp.annotation.x-opt-offset > 'one'",
        "amqp.annotation.x-opt-offset > ''",
        "amqp.annotation.x-opt-other > '1'",
        "amqp.annotation.x-opt-offset > '1' AND 1=1",
        "amqp.annotation.x-opt-sequence-number > '@latest'",
        "amqp.annotation.x-opt-offset > '99999999999999999999'",
    ],
)
def test_invalid_selector_is_refused(text: str) -> None:
    """Starting at another position than requested would lose or repeat events."""
    with pytest.raises(InvalidArgument):
        parse_selector(text)


_OFFSET_7 = "amqp.annotation.x-opt-offset > '7'"


@pytest.mark.parametrize(
    "filters",
    [
        {
            Symbol("apache.org:selector-filter:string"): Described(
                Symbol("apache.org:selector-filter:string"), _OFFSET_7
            )
        },
        {Symbol("apache.org:selector-filter:string"): Described(ULong(0x468C00000004), _OFFSET_7)},
        {Symbol("apache.org:selector-filter:string"): Described(ULong(0x137000000A), _OFFSET_7)},
        {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), _OFFSET_7)},
        {Symbol("jms-selector"): Described(ULong(0x468C00000004), _OFFSET_7)},
        {Symbol("anything"): _OFFSET_7},
        {Symbol("anything"): Described(Symbol("selector"), _OFFSET_7.encode())},
    ],
)
def test_selector_is_recognised_by_descriptor_or_by_its_text(filters: dict[Value, Value]) -> None:
    """The key of the filter map differs from client to client."""
    assert position_of(filters) == Position.offset(7)


@pytest.mark.parametrize(
    "filters", [None, {}, {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])}]
)
def test_without_a_selector_a_reader_starts_at_the_oldest_event(filters: dict[Value, Value] | None) -> None:
    """AMQP 1.0, 3.5.3: filters that are not supported are omitted from the answer."""
    assert position_of(filters) == Position.first()


@pytest.mark.parametrize(
    "filters",
    [
        {Symbol("a"): _OFFSET_7, Symbol("b"): _OFFSET_7},
        {Symbol("a"): Described(Symbol("apache.org:selector-filter:string"), 7)},
        {Symbol("a"): Described(Symbol("apache.org:selector-filter:string"), "color = 'red'")},
    ],
)
def test_contradicting_selectors_are_refused(filters: dict[Value, Value]) -> None:
    """A reader that asked for a part of the events must not get all of them."""
    with pytest.raises(InvalidArgument):
        position_of(filters)
