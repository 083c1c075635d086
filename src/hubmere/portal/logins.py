"""Browser logins: a random cookie identifies a login, and a login holds the `Caller` that the broker signed in.

A login is valid while its credential is: a rotated key, a deleted rule, an expired token or a new address rule ends it
at the next request. Only the digest of the cookie is stored. The credential stays in memory and never reaches a page.
Nothing here reads a clock or a socket.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256

from hubmere.broker import AdminToken, Broker, Caller, ConnectionStringCredential
from hubmere.model.connection_string import ConnectionString
from hubmere.model.errors import InvalidSignature, Refusal, Unauthorized

# Maximum number of logins, each a few hundred bytes; beyond it the login that was idle longest is removed.
MAX_LOGINS = 1000
# A browser that stays open overnight must sign in again in the morning.
IDLE_SECONDS = 12 * 3600.0
_COOKIE_BYTES = 32
# Distinguishes a connection string from an administrator token.
_CONNECTION_STRING_MARK = "endpoint="

# Signs the person in at a time of day, in seconds; raises a refusal if the credential is not valid then.
SignIn = Callable[[float], Caller]


class SignedOut(Unauthorized):
    """The login has ended: signed out, idle for too long, or its credential is no longer valid."""

    def text(self) -> str:
        return "You are signed out. Sign in again."


class Login:
    """One signed-in browser. Thread rule: the owner's thread only."""

    __slots__ = ("_caller", "_last_used_at", "_sign_in", "is_open", "theme")

    def __init__(self, sign_in: SignIn, caller: Caller, now: float) -> None:
        self._sign_in = sign_in
        self._caller = caller
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

    def caller(self, now: float, now_s: float) -> Caller:
        """The caller, signed in again if an entity has changed. Raises SignedOut if the login has ended."""
        if not self.is_open or self.is_idle(now):
            self.is_open = False
            raise SignedOut
        if not self._caller.is_current(now_s):
            try:
                self._caller = self._sign_in(now_s)
            except Refusal as refusal:
                self.is_open = False
                raise SignedOut from refusal
        self._last_used_at = now
        return self._caller


class Logins:
    """The logins of a node. Thread rule: the owner's thread only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_digest: dict[bytes, Login] = {}
        self._link_code: str | None = secrets.token_urlsafe(_COOKIE_BYTES)

    @property
    def link_code(self) -> str:
        """The code in the one-time link; empty after it was used."""
        return self._link_code or ""

    def sign_in(self, credential: str, peer: str, now: float, now_s: float) -> str:
        """Open a login with a connection string or the administrator token. Returns the value of its cookie."""
        text, broker = credential.strip(), self._broker
        if _CONNECTION_STRING_MARK not in text.lower():
            return self._open(lambda _: broker.sign_in_admin(AdminToken(text)), now, now_s)
        host, shown = ConnectionString.parse(text).host, ConnectionStringCredential(text)
        return self._open(lambda at_s: broker.sign_in(host, shown, address=peer, now_s=at_s), now, now_s)

    def redeem(self, code: str, now: float, now_s: float) -> str:
        """Open a login of the administrator with the one-time code. Returns the value of its cookie."""
        expected = self._link_code
        if expected is None or not hmac.compare_digest(code.encode(errors="replace"), expected.encode()):
            raise InvalidSignature
        self._link_code = None
        return self._open(lambda _: self._broker.administrator(), now, now_s)

    def find(self, cookie: str, now: float) -> Login | None:
        """The login with a cookie; None if there is none or it has ended."""
        digest = _digest(cookie)
        login = self._by_digest.get(digest)
        if login is None or not login.is_open or login.is_idle(now):
            self._by_digest.pop(digest, None)
            return None
        return login

    def _open(self, sign_in: SignIn, now: float, now_s: float) -> str:
        caller = sign_in(now_s)
        self._remove_ended(now)
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._by_digest[_digest(cookie)] = Login(sign_in, caller, now)
        return cookie

    def _remove_ended(self, now: float) -> None:
        for digest, login in list(self._by_digest.items()):
            if not login.is_open or login.is_idle(now):
                del self._by_digest[digest]
        if len(self._by_digest) >= MAX_LOGINS:
            del self._by_digest[min(self._by_digest, key=lambda digest: self._by_digest[digest].last_used_at)]


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
