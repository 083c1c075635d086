"""SASL handshake and authentication (reference: kafka 2.5).

PLAIN accepts the user `$ConnectionString` with a whole connection string, whose host names the namespace, or a rule's
name with its key for the node's own namespace. OAUTHBEARER (RFC 7628, KIP-255) accepts a token of an OAuth issuer. The
namespace is the one that the client names with the extension `host`, else the one that the token was issued for, else
the node's own. A refused client gets the reason, then its connection is closed.

Sign-in also chooses the advertised host name, which later responses give as the address of the broker.
"""

from ipaddress import ip_address
from typing import Final

from hubmere.broker import (
    BearerToken,
    Caller,
    ConnectionStringCredential,
    Credential,
    KeysPending,
    Principal,
    SharedKey,
)
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.errors import InvalidArgument, MalformedToken, Refusal
from hubmere.model.names import fold
from hubmere.model.security.connection_string import ConnectionString
from hubmere.wire.kafka.connection import BARE_TOKEN_VERSION, Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, OAUTHBEARER)

# The user name for which the password is a connection string.
CONNECTION_STRING_USER: Final = "$ConnectionString"
_LOCALHOST: Final = "localhost"
_BEARER_FORM: Final = "An OAUTHBEARER response is 'n,,', 'auth=Bearer' with a token, and two separators (RFC 7628)."
_MAX_PAIRS: Final = 32


def handshake(session: KafkaSession, request: Request) -> None:
    """Choose a mechanism; also before a client authenticates again on an open connection."""
    body: SaslHandshakeRequest = request.body
    is_known = body.mechanism in MECHANISMS
    session.mechanism = body.mechanism if is_known else None
    code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    session.respond(request, SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS))
    if not is_known:
        session.disconnect("it asks for an unknown SASL mechanism")
    elif request.version == 0:
        session.engine.expects_bare_tokens = True


def authenticate(session: KafkaSession, request: Request) -> None:
    """Authenticate the client, or authenticate it again (KIP-368)."""
    body: SaslAuthenticateRequest = request.body
    mechanism, session.mechanism = session.mechanism, None
    if mechanism is None:
        _refuse(session, request, ErrorCode.ILLEGAL_SASL_STATE, "A handshake comes before authentication.")
        return
    try:
        caller, host = _sign_in(session, mechanism, body.auth_bytes)
    except KeysPending as pending:
        # The requests behind this one wait, as behind a response that is built in slices.
        session.pressure.is_slicing = session.pressure.is_check_due = True
        pending.wait(lambda: _authenticate_later(session, request, mechanism))
    except Refusal as refusal:
        _refuse(session, request, ErrorCode.SASL_AUTHENTICATION_FAILED, refusal.text())
    else:
        _accept(session, request, caller, host)


def _authenticate_later(session: KafkaSession, request: Request, mechanism: str) -> None:
    """Authenticate the client after the keys of its issuer have been fetched, or could not be."""
    if session.is_lost:
        return

    def work() -> None:
        session.pressure.is_slicing = False
        try:
            caller, host = _sign_in(session, mechanism, request.body.auth_bytes)
        except Refusal as refusal:
            _refuse(session, request, ErrorCode.SASL_AUTHENTICATION_FAILED, refusal.text())
        else:
            _accept(session, request, caller, host)

    session.resume(work)


def _accept(session: KafkaSession, request: Request, caller: Caller, host: str) -> None:
    session.on_signed_in(caller, host)
    session.client_id = session.client_id or request.client_id or ""
    lifetime_ms = _lifetime_ms(caller.principal, session.now_ms)
    session.respond(request, SaslAuthenticateResponse(error_code=ErrorCode.NONE, session_lifetime_ms=lifetime_ms))


def _refuse(session: KafkaSession, request: Request, code: ErrorCode, why: str) -> None:
    # The response to a bare token cannot carry an error: the client sees the closed connection.
    if request.version != BARE_TOKEN_VERSION:
        session.respond(request, SaslAuthenticateResponse(error_code=code, error_message=why))
    session.disconnect(f"it failed to authenticate: {why}")


def _sign_in(session: KafkaSession, mechanism: str, token: bytes) -> tuple[Caller, str]:
    """The caller, and the host name under which the client finds the node."""
    host, credential = read_bearer(token) if mechanism == OAUTHBEARER else _read_credential(token)
    if session.is_signed_in:
        caller = session.caller
        caller.reauthenticate(host, credential, session.now_s)
    else:
        caller = session.context.broker.sign_in(
            host, credential, address=session.wire.peer, now_s=session.now_s, is_kafka=True
        )
        caller.open_connection()
    return caller, _advertised_host(session, host, caller.namespace.name)


def _read_credential(token: bytes) -> tuple[str | None, Credential]:
    """The host that a client names, if it names one, and its credential."""
    user, password = read_plain(token)
    if user != CONNECTION_STRING_USER:
        return None, SharedKey(user, password)
    try:
        return ConnectionString.parse(password).host, ConnectionStringCredential(password)
    except InvalidArgument as refusal:
        raise MalformedToken(refusal.text()) from None


def read_plain(token: bytes) -> tuple[str, str]:
    """User and password of `authzid NUL user NUL password` (RFC 4616); some clients repeat the user as authzid."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise MalformedToken("A PLAIN token is UTF-8.") from None
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        raise MalformedToken("A PLAIN token is an identity (empty, or the user again), a user and a password.")
    return parts[1], parts[2]


def read_bearer(response: bytes) -> tuple[str | None, BearerToken]:
    """The host and the token of `n,,^Ahost=...^Aauth=Bearer ...^A^A` (RFC 7628, 3.1); the host is optional."""
    try:
        header, *pairs, last, end = response.decode().split("\x01")
    except (UnicodeDecodeError, ValueError):
        raise MalformedToken(_BEARER_FORM) from None
    named = dict(pair.partition("=")[::2] for pair in pairs)
    scheme, _, token = named.get("auth", "").partition(" ")
    if not header.startswith(("n,", "y,")) or last or end or scheme.lower() != "bearer" or len(pairs) > _MAX_PAIRS:
        raise MalformedToken(_BEARER_FORM)
    return named.get("host"), BearerToken(token.strip())


def _advertised_host(session: KafkaSession, host: str | None, namespace: str) -> str:
    """The host name in metadata: the one that the client used if it is the node's, else the configured one.

    If the listener advertises a name, `localhost` and addresses that the client used are ignored: behind a port mapping
    they may mean another machine.
    """
    addresses, listener = session.context.addresses, session.listener
    is_explicit = addresses.advertised_of(listener) is not None
    if host is not None and (fold(host) in map(fold, addresses.hostnames) or (not is_explicit and _is_local(host))):
        return host
    return addresses.host_of(namespace, listener)


def _is_local(host: str) -> bool:
    if fold(host) == _LOCALHOST:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _lifetime_ms(principal: Principal, now_ms: int) -> int:
    """How long the credential is still valid; 0 for keys, which do not expire."""
    return 0 if principal.expires_at_s is None else max(principal.expires_at_s * 1000 - now_ms, 1)
