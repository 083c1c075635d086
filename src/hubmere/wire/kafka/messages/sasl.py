"""SaslHandshake (17) and SaslAuthenticate (36): choosing a mechanism, then its tokens.

After a handshake of version 0 the tokens are sent as length-prefixed frames without Kafka headers; the engine returns
them as SaslAuthenticate requests, too.
"""

from hubmere.wire.kafka.schema import BYTES, INT16, INT64, STRING, api, array, struct, wire


@struct
class SaslHandshakeRequest:
    """The mechanism that the client chooses."""

    mechanism: str = wire(STRING)


@struct
class SaslHandshakeResponse:
    """The mechanisms that the server offers."""

    error_code: int = wire(INT16)
    mechanisms: tuple[str, ...] = wire(array(STRING))


@struct
class SaslAuthenticateRequest:
    """A token of the chosen mechanism."""

    auth_bytes: bytes = wire(BYTES)


@struct
class SaslAuthenticateResponse:
    """session_lifetime_ms 0: no need to authenticate again on this connection (KIP-368)."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=True, default=None)
    auth_bytes: bytes = wire(BYTES, default=b"")
    session_lifetime_ms: int = wire(INT64, since=1, default=0)


SASL_HANDSHAKE = api(17, SaslHandshakeRequest, SaslHandshakeResponse, versions=(0, 1), flexible_since=None)
SASL_AUTHENTICATE = api(36, SaslAuthenticateRequest, SaslAuthenticateResponse, versions=(0, 2), flexible_since=2)

APIS = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
