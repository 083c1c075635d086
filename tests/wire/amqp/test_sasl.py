"""The SASL exchange between engines, and with the variants of existing clients."""

from __future__ import annotations

import pytest

from hubmere.wire.amqp import (
    ClientCredentials,
    Condition,
    Connection,
    EngineOptions,
    LocalProtocolError,
    Phase,
    RemoteProtocolError,
    Role,
)
from hubmere.wire.amqp.codec.frames import FRAME_TYPE_SASL, HEADER_AMQP, HEADER_SASL, frame
from hubmere.wire.amqp.codec.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from hubmere.wire.amqp.connection import MAX_PENDING_BYTES
from hubmere.wire.amqp.sasl import EXTERNAL, MSSBCBS, PLAIN, read_plain
from hubmere.wire.amqp.signals import ConnectionFailed, CredentialsOffered
from wire.amqp.builders import EnginePair, an_open, bodies, feed, frames_in, kinds, only


def a_client(credentials: ClientCredentials) -> EngineOptions:
    """Options of a client that authenticates."""
    return EngineOptions(container_id="client", hostname="host", credentials=credentials)


def an_init(mechanism: str, response: bytes | None = None) -> bytes:
    """A SASL init frame."""
    return frame(SaslInit(mechanism, response), 0, FRAME_TYPE_SASL)


def test_server_offers_its_mechanisms_at_once() -> None:
    """.NET needs MSSBCBS, Python and Java need ANONYMOUS; other clients use the first one that they support."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    server.receive_data(HEADER_SASL, 0.0)

    data = server.data_to_send()
    assert data.startswith(HEADER_SASL)
    assert bodies(data) == [SaslMechanisms((MSSBCBS, PLAIN, "ANONYMOUS", EXTERNAL))]


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", MSSBCBS])
@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_init_that_is_pipelined_after_the_header_succeeds(mechanism: str, chunk: int) -> None:
    """Java sends init, the second header and the open before it has read the offered mechanisms."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = feed(server, HEADER_SASL + an_init(mechanism) + HEADER_AMQP + an_open(), chunk)

    sent = frames_in(server.data_to_send())
    assert kinds(signals) == ["ConnectionOpened"]
    assert [payload for _channel, body, payload in sent if body is None] == [HEADER_SASL, HEADER_AMQP]
    assert SaslOutcome(0) in [body for _channel, body, _payload in sent]


def test_correct_password_is_accepted(pair: EnginePair) -> None:
    """PLAIN has the name and the key of an access rule; the caller verifies them."""
    pair = EnginePair(chunk=pair.chunk, client_options=a_client(ClientCredentials.plain("Root", "kéy")))
    pair.client.open()
    signals, _ = pair.exchange()
    offered = only(signals, CredentialsOffered)

    assert pair.server.accept_credentials(0.0) == []
    pair.exchange()

    assert (offered.mechanism, offered.user, offered.password) == (PLAIN, "Root", "kéy")
    assert offered.hostname == "host"
    assert "kéy" not in repr(offered)
    assert pair.client.phase is pair.server.phase is Phase.OPENED


def test_wrong_password_ends_with_an_outcome_and_no_header(pair: EnginePair) -> None:
    """The client learns only that its key is wrong."""
    pair = EnginePair(chunk=pair.chunk, client_options=a_client(ClientCredentials.plain("Root", "wrong")))
    pair.client.open()
    pair.exchange()

    pair.server.refuse_credentials()
    _, client_signals = pair.exchange()

    assert bodies(pair.to_client) == [SaslOutcome(1)]
    assert pair.server.is_closed
    assert only(client_signals, ConnectionFailed).violation.condition is Condition.UNAUTHORIZED_ACCESS


@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_input_after_credentials_waits_for_their_verification(chunk: int) -> None:
    """A client may pipeline its open; it must not be processed before the key is verified."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    early = feed(server, HEADER_SASL + an_init(PLAIN, b"\x00u\x00p") + HEADER_AMQP + an_open(), chunk)
    late = server.accept_credentials(0.0)

    assert kinds(early) == ["CredentialsOffered"]
    assert kinds(late) == ["ConnectionOpened"]


def test_input_after_credentials_is_limited() -> None:
    """An unauthenticated client must not fill the memory meanwhile."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)
    server.receive_data(HEADER_SASL + an_init(PLAIN, b"\x00u\x00p"), 0.0)
    server.data_to_send()

    signals: list[object] = []
    for _ in range(MAX_PENDING_BYTES // 1000 + 1):
        signals += server.receive_data(b"\x00" * 1000, 0.0)

    assert [type(signal) for signal in signals] == [ConnectionFailed]
    assert bodies(server.data_to_send()) == [SaslOutcome(1)]


def test_external_must_be_verified_by_the_caller() -> None:
    """Only the layer with the TLS session knows whether the peer showed a certificate."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    signals = server.receive_data(HEADER_SASL + an_init(EXTERNAL), 0.0)

    assert only(signals, CredentialsOffered).mechanism == EXTERNAL


REFUSED = {
    "unknown mechanism": an_init("GSSAPI"),
    "mechanism that is not offered": an_init("ANONYMOUS"),
    "password of two parts": an_init(PLAIN, b"u\x00p"),
    "no password at all": an_init(PLAIN),
    "password that is not UTF-8": an_init(PLAIN, b"\x00u\x00\xff"),
    "response without a challenge": frame(SaslResponse(b""), 0, FRAME_TYPE_SASL),
    "the server's own frame": frame(SaslOutcome(0), 0, FRAME_TYPE_SASL),
    "an AMQP frame": an_open(),
    "bytes behind the init": b"\x00\x00\x00\x17" + an_init(PLAIN, b"\x00\x00")[4:] + b"\x40",
    "garbage": b"\x00\x00\x00\x09\x02\x01\x00\x00\xff",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_init_ends_with_an_outcome(data: bytes) -> None:
    """Every error has the same short answer."""
    server = Connection(Role.SERVER, EngineOptions(mechanisms=(PLAIN,)), 0.0)
    server.receive_data(HEADER_SASL, 0.0)
    server.data_to_send()

    signals = server.receive_data(data, 0.0)

    assert kinds(signals) == ["ConnectionFailed"]
    assert bodies(server.data_to_send()) == [SaslOutcome(1)]
    assert server.is_closed


def test_wrong_header_after_sasl_is_answered_with_the_right_one() -> None:
    """SASL cannot be negotiated twice."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)
    server.receive_data(HEADER_SASL + an_init("ANONYMOUS"), 0.0)
    server.data_to_send()

    server.receive_data(HEADER_SASL, 0.0)

    assert server.data_to_send() == HEADER_AMQP


def test_verification_without_credentials_is_an_error() -> None:
    """The client has sent no credentials."""
    server = Connection(Role.SERVER, EngineOptions(), 0.0)

    with pytest.raises(LocalProtocolError):
        server.accept_credentials(0.0)
    with pytest.raises(LocalProtocolError):
        server.refuse_credentials()


def test_client_gives_up_when_its_mechanism_is_not_offered() -> None:
    """It has only one kind of credentials."""
    pair = EnginePair(
        client_options=a_client(ClientCredentials.plain("u", "p")),
        server_options=EngineOptions(mechanisms=("ANONYMOUS",)),
    )
    pair.client.open()

    _, client_signals = pair.exchange()

    assert only(client_signals, ConnectionFailed).violation.condition is Condition.UNAUTHORIZED_ACCESS


def test_client_fails_on_a_challenge() -> None:
    """Mechanisms with several rounds are not supported on either side."""
    client = Connection(Role.CLIENT, a_client(ClientCredentials()), 0.0)
    client.open()

    signals = client.receive_data(HEADER_SASL + frame(SaslChallenge(b"?"), 0, FRAME_TYPE_SASL), 0.0)

    assert only(signals, ConnectionFailed).violation.condition is Condition.NOT_ALLOWED


def test_authorisation_identity_is_ignored() -> None:
    """RFC 4616 allows one; the rights are those of the rule that the key belongs to."""
    assert read_plain(b"someone\x00user\x00password") == ("user", "password")
    with pytest.raises(RemoteProtocolError):
        read_plain(b"")
