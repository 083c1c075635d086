"""Frames byte for byte, in the form that is known to work with all clients."""

from __future__ import annotations

from typing import Any

import pytest

from hubmere.wire.amqp.codec.composites import read_described, write_described
from hubmere.wire.amqp.codec.frames import FRAME_HEADER, frame, frame_of
from hubmere.wire.amqp.codec.message import AmqpValue, Data, Message, write_message
from hubmere.wire.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Properties,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from hubmere.wire.amqp.codec.types import Int, Long, Symbol, Timestamp, ULong

GOLDEN: list[tuple[str, int, int, Any, str]] = [
    (
        "mechanisms",
        1,
        0,
        SaslMechanisms(("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")),
        "0000003302010000005340c02601e02304a3074d53534243425305504c41494e09414e4f4e594d4f55530845585445524e414c",
    ),
    ("outcome", 1, 0, SaslOutcome(0), "0000001102010000005344c00402500040"),
    (
        "open",
        0,
        0,
        Open("eh", max_frame_size=65536, channel_max=4999, idle_time_out=240000),
        "0000002502000000005310c0180aa1026568407000010000601387700003a9804040404040",
    ),
    (
        "begin",
        0,
        1,
        Begin(1, 1, 5000, 65536, 255),
        "0000002202000001005311c0150860000152017000001388700001000052ff404040",
    ),
    (
        "attach reply",
        0,
        1,
        Attach("L", 1, True, 0, 0, Source("$cbs"), Target("$cbs"), max_message_size=1 << 20),
        "0000004f02000001005312c0420ea1014c52014150005000005328c0110ba1042463627340404040404040404040"
        "005329c00d07a10424636273404040404040404040800000000000100000404040",
    ),
    (
        "flow",
        0,
        1,
        Flow(0, 5000, 1, 65536, 1, 0, 100, 0, None, False),
        "0000002402000001005313c0170b43700000138852017000010000520143526443404240",
    ),
    (
        "accepted",
        0,
        1,
        Disposition(True, 0, None, True, ACCEPTED),
        "0000001702000001005315c00a06414340410053244540",
    ),
    (
        "rejected",
        0,
        1,
        Disposition(True, 0, None, True, Rejected(Error("amqp:not-found", "x"))),
        "0000003302000001005315c0260641434041005325c01b0100531dc01503a30e616d71703a6e6f742d666f756e64a101784040",
    ),
    (
        "refused attach",
        0,
        1,
        Attach("L", 3, False),
        "0000001f02000001005312c0120ea1014c5203424040404040404040404040",
    ),
    (
        "detach",
        0,
        1,
        Detach(3, True, Error("amqp:link:stolen", "x")),
        "0000002d02000001005316c0200352034100531dc01703a310616d71703a6c696e6b3a73746f6c656ea1017840",
    ),
    ("end", 0, 1, End(), "0000000f02000001005317c0020140"),
    ("close", 0, 0, Close(), "0000000f02000000005318c0020140"),
]


@pytest.mark.parametrize(("kind", "channel", "performative", "expected"), [row[1:] for row in GOLDEN])
def test_performative_is_written_as_the_clients_expect_it(
    kind: int, channel: int, performative: Any, expected: str
) -> None:
    """Existing clients index fields by position and refuse other encodings of the same value."""
    written = frame(performative, channel, kind)

    assert written.hex() == expected
    assert read_described(written, 8) == (performative, len(written))


def test_claims_reply_is_written_as_the_clients_expect_it() -> None:
    """The correlation-id keeps the type of the request's message-id."""
    head = Transfer(2, 0, bytes.fromhex("01000000"), 0, False, False, batchable=False)
    message = Message(
        properties=Properties(correlation_id=ULong(1)),
        application_properties={"status-code": Int(202), "status-description": "Accepted"},
        body=AmqpValue(None),
    )

    written = frame_of(write_described(head) + write_message(message), 1)

    assert written.hex() == (
        "0000006d02000001005314c0120b520243a004010000004342424040404042005373c00f0d4040404040530140404040404040"
        "005374c13104a10b7374617475732d636f646571000000caa1127374617475732d6465736372697074696f6ea10841636365707465"
        "6400537740"
    )


def test_event_is_written_as_the_service_writes_it() -> None:
    """All encodings are the shortest, except that of the sequence number, which the kernel writes in 8 bytes."""
    head = Transfer(3, 0, b"", 0, True, False, batchable=True)
    message = Message(
        message_annotations={
            Symbol("x-opt-sequence-number"): Long(5),
            Symbol("x-opt-offset"): "320",
            Symbol("x-opt-enqueued-time"): Timestamp(0x18BCFE56800),
        },
        body=Data((b"hi",)),
    )

    written = frame_of(write_described(head) + write_message(message), 1)

    golden = bytes.fromhex(
        "0000007902000001005314c00e0b520343a0004341424040404041005372c15206a315782d6f70742d73657175656e63652d6e756d62"
        "6572810000000000000005a30c782d6f70742d6f6666736574a103333230a313782d6f70742d656e7175657565642d74696d65"
        "830000018bcfe56800005375a0026869"
    )
    narrow = golden.replace(bytes.fromhex("810000000000000005"), b"\x55\x05").replace(b"\xc1\x52", b"\xc1\x4b")
    assert written == FRAME_HEADER.pack(len(narrow), 2, 0, 1) + narrow[8:]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (
            "005341c01903a309414e4f4e594d4f5553a000a1096c6f63616c686f7374",
            SaslInit("ANONYMOUS", b"", "localhost"),
        ),
        (
            "005341d00000002100000003a309414e4f4e594d4f5553a00500526f6f74a1096c6f63616c686f7374",
            SaslInit("ANONYMOUS", b"\x00Root", "localhost"),
        ),
        ("005341c01302a305504c41494ea00900526f6f7400616263", SaslInit("PLAIN", b"\x00Root\x00abc")),
    ],
)
def test_sasl_init_of_three_clients_is_read(sample: str, expected: SaslInit) -> None:
    """Python, JavaScript and Qpid write the same frame with three different encodings."""
    data = bytes.fromhex(sample)

    body, end = read_described(data)

    assert body == expected
    assert end == len(data)
