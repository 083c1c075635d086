"""Browser logins: a random cookie identifies a login, and a login holds the authenticated principal.

A login is valid while its credential is: a rotated key, a deleted rule, an expired token or a new address rule ends it
at the next request. Only the digest of the cookie is stored. The credential stays in memory and never reaches a page.
Nothing here reads a clock or a socket.
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

# Maximum number of logins, each a few hundred bytes; beyond it the login that was idle longest is removed.
MAX_LOGINS = 1000
# A browser that stays open overnight must sign in again in the morning.
IDLE_SECONDS = 12 * 3600.0
_COOKIE_BYTES = 32
# Distinguishes a connection string from an administrator token.
_CONNECTION_STRING_MARK = "endpoint="

Authenticate = Callable[[float], Principal]


class SignedOut(Unauthorized):
    """The login has ended: signed out, idle for too long, or its credential is no longer valid."""

    def text(self) -> str:
        return "You are signed out. Sign in again."


class Login:
    """One signed-in browser. Thread rule: the owner's thread only."""

    __slots__ = ("_authenticate", "_catalog_version", "_last_used_at", "_principal", "is_open", "theme")

    def __init__(self, authenticate: Authenticate, principal: Principal, version: int, now: float) -> None:
        self._authenticate = authenticate
        self._principal = principal
        self._catalog_version = version
        self._last_used_at = now
        self.is_open = True
        # True: dark, False: light, None: the preference of the browser.
        self.theme: bool | None = None

    def is_idle(self, now: float) -> bool:
        """Whether it was unused for too long."""
        return now - self._last_used_at > IDLE_SECONDS

    @property
    def last_used_at(self) -> float:
        """Time of the last use."""
        return self._last_used_at

    def principal(self, version: int, now: float, now_s: float) -> Principal:
        """The principal, authenticated again if an entity has changed. Raises SignedOut if the login has ended."""
        if not self.is_open or self.is_idle(now) or self._principal.is_expired(now_s):
            self.is_open = False
            raise SignedOut
        if version != self._catalog_version:
            try:
                self._principal = self._authenticate(now_s)
            except Refusal as refusal:
                self.is_open = False
                raise SignedOut from refusal
            self._catalog_version = version
        self._last_used_at = now
        return self._principal


class Logins:
    """The logins of a node. Thread rule: the owner's thread only."""

    def __init__(self, broker: Broker, admin_token: str) -> None:
        self._broker = broker
        self._admin_token = admin_token.encode()
        self._by_digest: dict[bytes, Login] = {}
        self._link_code: str | None = secrets.token_urlsafe(_COOKIE_BYTES)

    @property
    def link_code(self) -> str:
        """The code in the one-time link; empty after it was used."""
        return self._link_code or ""

    def sign_in(self, credential: str, peer: str, now: float, now_s: float) -> str:
        """Open a login with a connection string or the administrator token. Returns the value of its cookie."""
        text = credential.strip()
        is_connection_string = _CONNECTION_STRING_MARK in text.lower()
        authenticate = self._by_connection_string(text, peer) if is_connection_string else self._by_admin_token(text)
        return self._open(authenticate, now, now_s)

    def redeem(self, code: str, now: float, now_s: float) -> str:
        """Open a login of the administrator with the one-time code. Returns the value of its cookie."""
        expected = self._link_code
        if expected is None or not hmac.compare_digest(code.encode(errors="replace"), expected.encode()):
            raise InvalidSignature
        self._link_code = None
        return self._open(lambda _: Principal.admin(), now, now_s)

    def find(self, cookie: str, now: float) -> Login | None:
        """The login with a cookie; None if there is none or it has ended."""
        digest = _digest(cookie)
        login = self._by_digest.get(digest)
        if login is None or not login.is_open or login.is_idle(now):
            self._by_digest.pop(digest, None)
            return None
        return login

    def _open(self, authenticate: Authenticate, now: float, now_s: float) -> str:
        principal = authenticate(now_s)
        self._remove_ended(now)
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._by_digest[_digest(cookie)] = Login(authenticate, principal, self._broker.catalog.view.version, now)
        return cookie

    def _remove_ended(self, now: float) -> None:
        for digest, login in list(self._by_digest.items()):
            if not login.is_open or login.is_idle(now):
                del self._by_digest[digest]
        if len(self._by_digest) >= MAX_LOGINS:
            del self._by_digest[min(self._by_digest, key=lambda digest: self._by_digest[digest].last_used_at)]

    def _by_admin_token(self, token: str) -> Authenticate:
        if not hmac.compare_digest(token.encode(errors="replace"), self._admin_token):
            raise InvalidSignature
        return lambda _: Principal.admin()

    def _by_connection_string(self, connection_string: str, peer: str) -> Authenticate:
        host = ConnectionString.parse(connection_string).host

        def authenticate(now_s: float) -> Principal:
            namespace = self._broker.namespace_for_host(host).entity
            require_address(namespace, peer)
            return self._broker.access.by_connection_string(namespace, connection_string, now_s)

        return authenticate


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
