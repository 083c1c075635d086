"""Who is signed in: a cookie names a session, a session names a Principal, and both end when they should.

A session is good while its credential is: keys that are rotated, rules that are deleted, tokens that run out and
addresses that are shut out end it at the next thing it asks for. The cookie's value is random and kept here only as a
digest; the credential stays in memory and never reaches a page. Nothing here reads a clock or a socket.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256

from hubmere.broker.access import Principal
from hubmere.broker.broker import Broker
from hubmere.broker.network import require_address
from hubmere.model.connection_string import ConnectionString
from hubmere.model.errors import InvalidSignature, Refusal, Unauthorized

# Sessions at a time: each is a few hundred bytes; the one that was quiet longest gives way.
MAX_SESSIONS = 1000
# A working day: whoever leaves a browser open over night signs in again in the morning.
IDLE_SECONDS = 12 * 3600.0
_COOKIE_BYTES = 32
# How a connection string shows itself beside an administrator's token.
_CONNECTION_STRING_MARK = "endpoint="

Proof = Callable[[float], Principal]


class SignedOut(Unauthorized):
    """The session has ended: signed out, idle too long, or its credential is good no more."""

    def text(self) -> str:
        return "You are signed out; sign in again."


class Session:
    """One person in one browser. Thread rule: the owner's thread only."""

    __slots__ = ("_principal", "_proof", "_seen_at", "_version", "is_open", "theme")

    def __init__(self, proof: Proof, principal: Principal, version: int, now: float) -> None:
        self._proof = proof
        self._principal = principal
        self._version = version
        self._seen_at = now
        self.is_open = True
        # Light, dark, or as the browser prefers (None).
        self.theme: bool | None = None

    def is_idle(self, now: float) -> bool:
        """Whether it was quiet too long."""
        return now - self._seen_at > IDLE_SECONDS

    @property
    def seen_at(self) -> float:
        """When it was last used."""
        return self._seen_at

    def principal(self, version: int, now: float, now_s: float) -> Principal:
        """Who this is, proven again when an entity changed since; raises SignedOut when it can be no more."""
        if not self.is_open or self.is_idle(now) or self._principal.is_expired(now_s):
            self.is_open = False
            raise SignedOut
        if version != self._version:
            try:
                self._principal = self._proof(now_s)
            except Refusal as refusal:
                self.is_open = False
                raise SignedOut from refusal
            self._version = version
        self._seen_at = now
        return self._principal


class Sessions:
    """The open sessions of a node. Thread rule: the owner's thread only."""

    def __init__(self, broker: Broker, admin_token: str) -> None:
        self._broker = broker
        self._admin_token = admin_token.encode()
        self._by_digest: dict[bytes, Session] = {}
        self._link_code: str | None = secrets.token_urlsafe(_COOKIE_BYTES)

    @property
    def link_code(self) -> str:
        """What the first link to the portal carries; good for one use. Empty once it was used."""
        return self._link_code or ""

    def sign_in(self, credential: str, peer: str, now: float, now_s: float) -> str:
        """A new session for the holder of a connection string or of the administrator's token; its cookie's value."""
        text = credential.strip()
        proof = self._proof_of(text, peer) if _CONNECTION_STRING_MARK in text.lower() else self._admin_proof(text)
        return self._open(proof, now, now_s)

    def redeem(self, code: str, now: float, now_s: float) -> str:
        """A new session of the administrator for the one-time code; its cookie's value."""
        expected = self._link_code
        if expected is None or not hmac.compare_digest(code.encode(errors="replace"), expected.encode()):
            raise InvalidSignature
        self._link_code = None
        return self._open(lambda _: Principal.admin(), now, now_s)

    def find(self, cookie: str, now: float) -> Session | None:
        """The session that a cookie names, None when there is none."""
        digest = _digest(cookie)
        session = self._by_digest.get(digest)
        if session is None or not session.is_open or session.is_idle(now):
            self._by_digest.pop(digest, None)
            return None
        return session

    def _open(self, proof: Proof, now: float, now_s: float) -> str:
        principal = proof(now_s)
        self._make_room(now)
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._by_digest[_digest(cookie)] = Session(proof, principal, self._broker.catalog.view.version, now)
        return cookie

    def _make_room(self, now: float) -> None:
        for digest, session in list(self._by_digest.items()):
            if not session.is_open or session.is_idle(now):
                del self._by_digest[digest]
        if len(self._by_digest) >= MAX_SESSIONS:
            del self._by_digest[min(self._by_digest, key=lambda digest: self._by_digest[digest].seen_at)]

    def _admin_proof(self, token: str) -> Proof:
        if not hmac.compare_digest(token.encode(errors="replace"), self._admin_token):
            raise InvalidSignature
        return lambda _: Principal.admin()

    def _proof_of(self, connection_string: str, peer: str) -> Proof:
        host = ConnectionString.parse(connection_string).host

        def proof(now_s: float) -> Principal:
            namespace = self._broker.namespace_for_host(host).entity
            require_address(namespace, peer)
            return self._broker.access.by_connection_string(namespace, connection_string, now_s)

        return proof


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
