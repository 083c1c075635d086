"""SCRAM for Kafka: the exchange of RFC 7677, and servers that do not know the password."""

import pytest

from hubmere.cluster.upstream.scram import ScramClient, ScramFailed

_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
_LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def a_client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")


def test_exchange_equals_that_of_the_specification() -> None:
    """RFC 7677, section 3, byte by byte."""
    client = a_client()

    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.final(_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(_LAST)


@pytest.mark.parametrize(
    "challenge", [b"", b"r=other,s=W22Z,i=4096", b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999", b"e=unknown-user"]
)
def test_invalid_challenge_is_refused(challenge: bytes) -> None:
    """A server can neither replay an exchange nor keep the gateway busy for minutes."""
    with pytest.raises(ScramFailed):
        a_client().final(challenge)


@pytest.mark.parametrize("last", [b"e=invalid-proof", b"v=AAAA", b""])
def test_server_that_does_not_know_the_password_is_refused(last: bytes) -> None:
    """The brokers must authenticate too."""
    client = a_client()
    client.final(_FIRST)

    with pytest.raises(ScramFailed):
        client.verify(last)
