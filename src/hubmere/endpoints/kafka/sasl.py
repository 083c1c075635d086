"""Handshake and authenticate: who is there (reference: kafka 2.5).

PLAIN takes the user `$ConnectionString` with a whole connection string, whose host says which namespace is meant, or a
rule's name with its key for the node's own namespace. OAUTHBEARER is offered, since clients look for it, and refused
with the reason: no issuer is configured. A refused peer is told why, then its connection is closed.
"""

from ipaddress import ip_address
from typing import Final

from hubmere.broker.access import Principal
from hubmere.broker.live import LiveNamespace
from hubmere.broker.network import require_address
from hubmere.endpoints.kafka.session import KafkaSession, log
from hubmere.model.connection_string import ConnectionString
from hubmere.model.errors import InvalidArgument, LimitReached, MalformedToken, Refusal, UnsupportedToken
from hubmere.model.names import fold
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

# The user name that says: the password is a connection string.
CONNECTION_STRING_USER: Final = "$ConnectionString"
_LOCALHOST: Final = "localhost"


def handshake(session: KafkaSession, request: Request) -> None:
    """The client names a mechanism; also in mid-stream, before it signs in anew."""
    body: SaslHandshakeRequest = request.body
    is_known = body.mechanism in MECHANISMS
    session.sign_in.mechanism = body.mechanism if is_known else None
    code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    session.respond(request, SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS))
    if not is_known:
        session.drop("it wants an unknown SASL mechanism")
    elif request.version == 0:
        session.engine.expects_bare_tokens = True


def authenticate(session: KafkaSession, request: Request) -> None:
    """The client proves who it is."""
    body: SaslAuthenticateRequest = request.body
    mechanism, session.sign_in.mechanism = session.sign_in.mechanism, None
    if mechanism is None:
        _refuse(session, request, ErrorCode.ILLEGAL_SASL_STATE, "A handshake comes before authentication.")
        return
    try:
        namespace, principal, host = _sign_in(session, mechanism, body.auth_bytes)
    except Refusal as refusal:
        _refuse(session, request, ErrorCode.SASL_AUTHENTICATION_FAILED, refusal.text())
        return
    session.signed_in(namespace, principal, host)
    session.client_id = session.client_id or request.client_id or ""
    lifetime_ms = _lifetime_ms(principal, session.now_ms)
    session.respond(request, SaslAuthenticateResponse(error_code=ErrorCode.NONE, session_lifetime_ms=lifetime_ms))


def _refuse(session: KafkaSession, request: Request, code: ErrorCode, why: str) -> None:
    log.info("sign-in from %s is refused: %s", session.wire.peer, why)
    # A bare token has no place for an error: the closed connection says it all.
    if request.version != BARE_TOKEN_VERSION:
        session.respond(request, SaslAuthenticateResponse(error_code=code, error_message=why))
    session.drop("it could not sign in")


def _sign_in(session: KafkaSession, mechanism: str, token: bytes) -> tuple[LiveNamespace, Principal, str]:
    if mechanism == OAUTHBEARER:
        raise UnsupportedToken(OAUTHBEARER)
    broker = session.shared.broker
    user, password = read_plain(token)
    asked = _host_of(password) if user == CONNECTION_STRING_USER else None
    namespace = broker.namespace_for_host(asked)
    require_address(namespace.entity, session.wire.peer)
    if user == CONNECTION_STRING_USER:
        principal = broker.access.by_connection_string(namespace.entity, password, session.now_ms / 1000)
    else:
        principal = broker.access.by_key(namespace.entity, user, password)
    _check_same(session, principal)
    _require_room(session, namespace)
    return namespace, principal, _advertised(session, asked, namespace)


def read_plain(token: bytes) -> tuple[str, str]:
    """User and password of `authzid NUL user NUL password` (RFC 4616); some clients repeat the user as authzid."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise MalformedToken("A PLAIN token is UTF-8.") from None
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        raise MalformedToken("A PLAIN token is an identity (empty, or the user again), a user and a password.")
    return parts[1], parts[2]


def _host_of(connection_string: str) -> str:
    try:
        return ConnectionString.parse(connection_string).host
    except InvalidArgument as refusal:
        raise MalformedToken(refusal.text()) from None


def _check_same(session: KafkaSession, principal: Principal) -> None:
    """KIP-368: who signs in anew on a connection must be who it was."""
    if session.is_signed_in:
        was = session.principal
        if (was.namespace, was.rule, was.hub) != (principal.namespace, principal.rule, principal.hub):
            raise MalformedToken("A connection cannot change hands: sign in as the same principal.")


def _require_room(session: KafkaSession, namespace: LiveNamespace) -> None:
    limit = namespace.limits.all_connections(namespace.entity.capacity)
    if not session.is_signed_in and limit is not None and namespace.counters.active_connections >= limit:
        namespace.counters.quota_exceeded_errors += 1
        raise LimitReached("connections", limit)


def _advertised(session: KafkaSession, asked: str | None, namespace: LiveNamespace) -> str:
    """The name under which the client finds us again: the one it used if it is ours, else the configured one."""
    addresses = session.shared.addresses
    if asked is not None and (fold(asked) in map(fold, addresses.hostnames) or _is_local(asked)):
        return asked
    return addresses.host_of(namespace.entity.name)


def _is_local(host: str) -> bool:
    if fold(host) == _LOCALHOST:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _lifetime_ms(principal: Principal, now_ms: int) -> int:
    """0 for keys, which have no end; what is left of a token's time otherwise."""
    return 0 if principal.expires_at_s is None else max(principal.expires_at_s * 1000 - now_ms, 1)
