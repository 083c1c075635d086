"""Every frame body and every described type inside one, declared once; reader and writer follow from the declaration.

The numbers in the docstrings are clauses of AMQP 1.0. Of the fields with a default in the specification, those that our
answer echoes keep None for "not given"; those that are limits get the default.
"""

from __future__ import annotations

from typing import TypeAlias

from hubmere.wire.amqp.codec.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    composite,
    described_type,
    wire,
)
from hubmere.wire.amqp.codec.types import Described, Value

UINT_MAX = 0xFFFF_FFFF
USHORT_MAX = 0xFFFF
# 2.8.1 to 2.8.3
ROLE_SENDER = False
ROLE_RECEIVER = True
SND_UNSETTLED, SND_SETTLED, SND_MIXED = 0, 1, 2
RCV_FIRST, RCV_SECOND = 0, 1


# --- definitions: AMQP 1.0, 2.8 and 3.4 ------------------------------------------------------------------------------


@described_type(0x1D, "amqp:error:list")
class Error:
    """Why something ended or was rejected: 2.8.14."""

    condition: str = wire(SYMBOL, mandatory=True)
    description: str | None = wire(STRING)
    info: dict[Value, Value] | None = wire(MAP)


ERROR = composite("error", Error)


@described_type(0x23, "amqp:received:list")
class Received:
    """State of a delivery that has arrived in part: 3.4.1."""

    section_number: int = wire(UINT, mandatory=True)
    section_offset: int = wire(ULONG, mandatory=True)


@described_type(0x24, "amqp:accepted:list")
class Accepted:
    """The outcome of a delivery that was accepted: 3.4.2."""


@described_type(0x25, "amqp:rejected:list")
class Rejected:
    """The outcome of a delivery that is invalid: 3.4.3."""

    error: Error | None = wire(ERROR)


@described_type(0x26, "amqp:released:list")
class Released:
    """The outcome of a delivery that was not processed: 3.4.4."""


@described_type(0x27, "amqp:modified:list")
class Modified:
    """The outcome of a delivery that is returned modified: 3.4.5."""

    delivery_failed: bool | None = wire(BOOLEAN)
    undeliverable_here: bool | None = wire(BOOLEAN)
    message_annotations: dict[Value, Value] | None = wire(MAP)


DeliveryState: TypeAlias = Accepted | Rejected | Released | Modified | Received | Described
ACCEPTED = Accepted()
RELEASED = Released()

# Transactional states and anything else unknown pass as `Described`.
STATE = composite("delivery-state", Accepted, Rejected, Released, Modified, Received, fallback=True)


@described_type(0x28, "amqp:source:list")
class Source:
    """Where the messages of a link come from: 3.5.3."""

    address: Value = wire(ANY)
    durable: int | None = wire(UINT)
    expiry_policy: str | None = wire(SYMBOL)
    timeout: int | None = wire(UINT)
    dynamic: bool | None = wire(BOOLEAN)
    dynamic_node_properties: dict[Value, Value] | None = wire(MAP)
    distribution_mode: str | None = wire(SYMBOL)
    filter: dict[Value, Value] | None = wire(MAP)
    default_outcome: DeliveryState | None = wire(STATE)
    outcomes: tuple[str, ...] | None = wire(SYMBOLS)
    capabilities: tuple[str, ...] | None = wire(SYMBOLS)


@described_type(0x29, "amqp:target:list")
class Target:
    """Where the messages of a link go: 3.5.4."""

    address: Value = wire(ANY)
    durable: int | None = wire(UINT)
    expiry_policy: str | None = wire(SYMBOL)
    timeout: int | None = wire(UINT)
    dynamic: bool | None = wire(BOOLEAN)
    dynamic_node_properties: dict[Value, Value] | None = wire(MAP)
    capabilities: tuple[str, ...] | None = wire(SYMBOLS)


@described_type(0x30, "amqp:coordinator:list")
class Coordinator:
    """The target of a transactional controller link; decoded so that it can be refused."""

    capabilities: tuple[str, ...] | None = wire(SYMBOLS)


SOURCE = composite("source", Source)
TARGET = composite("target", Target, Coordinator)


# --- performatives: AMQP 1.0, 2.7 ------------------------------------------------------------------------------------


@described_type(0x10, "amqp:open:list")
class Open:
    """Opens a connection: 2.7.1."""

    container_id: str = wire(STRING, mandatory=True)
    hostname: str | None = wire(STRING)
    max_frame_size: int = wire(UINT, default=UINT_MAX)
    channel_max: int = wire(USHORT, default=USHORT_MAX)
    idle_time_out: int | None = wire(UINT)
    outgoing_locales: tuple[str, ...] | None = wire(SYMBOLS)
    incoming_locales: tuple[str, ...] | None = wire(SYMBOLS)
    offered_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    desired_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    properties: dict[Value, Value] | None = wire(MAP)


@described_type(0x11, "amqp:begin:list")
class Begin:
    """Begins a session: 2.7.2."""

    remote_channel: int | None = wire(USHORT)
    next_outgoing_id: int = wire(UINT, mandatory=True)
    incoming_window: int = wire(UINT, mandatory=True)
    outgoing_window: int = wire(UINT, mandatory=True)
    handle_max: int = wire(UINT, default=UINT_MAX)
    offered_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    desired_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    properties: dict[Value, Value] | None = wire(MAP)


@described_type(0x12, "amqp:attach:list")
class Attach:
    """Attaches a link: 2.7.3."""

    name: str = wire(STRING, mandatory=True)
    handle: int = wire(UINT, mandatory=True)
    role: bool = wire(BOOLEAN, mandatory=True)
    snd_settle_mode: int | None = wire(UBYTE)
    rcv_settle_mode: int | None = wire(UBYTE)
    source: Source | None = wire(SOURCE)
    target: Target | Coordinator | None = wire(TARGET)
    unsettled: dict[Value, Value] | None = wire(MAP)
    incomplete_unsettled: bool | None = wire(BOOLEAN)
    initial_delivery_count: int | None = wire(UINT)
    max_message_size: int | None = wire(ULONG)
    offered_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    desired_capabilities: tuple[str, ...] | None = wire(SYMBOLS)
    properties: dict[Value, Value] | None = wire(MAP)


@described_type(0x13, "amqp:flow:list")
class Flow:
    """Updates windows and credit: 2.7.4."""

    next_incoming_id: int | None = wire(UINT)
    incoming_window: int = wire(UINT, mandatory=True)
    next_outgoing_id: int = wire(UINT, mandatory=True)
    outgoing_window: int = wire(UINT, mandatory=True)
    handle: int | None = wire(UINT)
    delivery_count: int | None = wire(UINT)
    link_credit: int | None = wire(UINT)
    available: int | None = wire(UINT)
    drain: bool | None = wire(BOOLEAN)
    echo: bool | None = wire(BOOLEAN)
    properties: dict[Value, Value] | None = wire(MAP)


@described_type(0x14, "amqp:transfer:list")
class Transfer:
    """Carries a delivery or a piece of one, which follows it in the frame: 2.7.5."""

    handle: int = wire(UINT, mandatory=True)
    delivery_id: int | None = wire(UINT)
    delivery_tag: bytes | None = wire(BINARY)
    message_format: int | None = wire(UINT)
    settled: bool | None = wire(BOOLEAN)
    more: bool | None = wire(BOOLEAN)
    rcv_settle_mode: int | None = wire(UBYTE)
    state: DeliveryState | None = wire(STATE)
    resume: bool | None = wire(BOOLEAN)
    aborted: bool | None = wire(BOOLEAN)
    batchable: bool | None = wire(BOOLEAN)


@described_type(0x15, "amqp:disposition:list")
class Disposition:
    """Reports the state of deliveries: 2.7.6."""

    role: bool = wire(BOOLEAN, mandatory=True)
    first: int = wire(UINT, mandatory=True)
    last: int | None = wire(UINT)
    settled: bool | None = wire(BOOLEAN)
    state: DeliveryState | None = wire(STATE)
    batchable: bool | None = wire(BOOLEAN)


@described_type(0x16, "amqp:detach:list")
class Detach:
    """Detaches a link: 2.7.7."""

    handle: int = wire(UINT, mandatory=True)
    closed: bool | None = wire(BOOLEAN)
    error: Error | None = wire(ERROR)


@described_type(0x17, "amqp:end:list")
class End:
    """Ends a session: 2.7.8."""

    error: Error | None = wire(ERROR)


@described_type(0x18, "amqp:close:list")
class Close:
    """Closes a connection: 2.7.9."""

    error: Error | None = wire(ERROR)


# --- SASL: AMQP 1.0, 5.3.3 -------------------------------------------------------------------------------------------


@described_type(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    """The mechanisms that the server offers: 5.3.3.1."""

    mechanisms: tuple[str, ...] = wire(SYMBOLS, mandatory=True)


@described_type(0x41, "amqp:sasl-init:list")
class SaslInit:
    """The mechanism that the client chose, with its initial response: 5.3.3.2."""

    mechanism: str = wire(SYMBOL, mandatory=True)
    initial_response: bytes | None = wire(BINARY)
    hostname: str | None = wire(STRING)


@described_type(0x42, "amqp:sasl-challenge:list")
class SaslChallenge:
    """A challenge of the server: 5.3.3.3."""

    challenge: bytes = wire(BINARY, mandatory=True)


@described_type(0x43, "amqp:sasl-response:list")
class SaslResponse:
    """The response to a challenge: 5.3.3.4."""

    response: bytes = wire(BINARY, mandatory=True)


@described_type(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    """How the exchange ended: 5.3.3.5."""

    code: int = wire(UBYTE, mandatory=True)
    additional_data: bytes | None = wire(BINARY)


# --- message sections that are lists: AMQP 1.0, 3.2 ------------------------------------------------------------------


@described_type(0x70, "amqp:header:list")
class Header:
    """Delivery details of a message: 3.2.1."""

    durable: bool | None = wire(BOOLEAN)
    priority: int | None = wire(UBYTE)
    ttl: int | None = wire(UINT)
    first_acquirer: bool | None = wire(BOOLEAN)
    delivery_count: int | None = wire(UINT)


@described_type(0x73, "amqp:properties:list")
class Properties:
    """The immutable properties of a message: 3.2.4."""

    message_id: Value = wire(ANY)
    user_id: bytes | None = wire(BINARY)
    to: Value = wire(ANY)
    subject: str | None = wire(STRING)
    reply_to: Value = wire(ANY)
    correlation_id: Value = wire(ANY)
    content_type: str | None = wire(SYMBOL)
    content_encoding: str | None = wire(SYMBOL)
    absolute_expiry_time: int | None = wire(TIMESTAMP)
    creation_time: int | None = wire(TIMESTAMP)
    group_id: str | None = wire(STRING)
    group_sequence: int | None = wire(UINT)
    reply_to_group_id: str | None = wire(STRING)
