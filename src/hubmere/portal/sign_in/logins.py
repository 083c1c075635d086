"""Browser logins: a random cookie identifies a login, and a login holds the `Caller` that the broker signed in.

A login is valid while its credential is: a rotated key, a deleted rule, an expired token or a new address rule ends it
at the next request, and it remembers why it has ended. Only the digest of the cookie is stored. The credential stays in
memory and never reaches a page.
Nothing here reads a clock or a socket.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256

from hubmere.broker import AdminToken, BearerToken, Broker, Caller, ConnectionStringCredential
from hubmere.model.errors import ExpiredToken, InvalidSignature, Refusal, RoleMissing, Unauthorized
from hubmere.model.security.connection_string import ConnectionString

# Maximum number of logins, each a few hundred bytes; beyond it the login that was idle longest is removed.
MAX_LOGINS = 1000
# A browser that stays open overnight must sign in again in the morning.
IDLE_SECONDS = 12 * 3600.0
# A token that expires within this time is renewed, if its provider allows it.
RENEW_WITHIN_S = 60.0
_COOKIE_BYTES = 32
# Distinguishes a connection string from an administrator token.
_CONNECTION_STRING_MARK = "endpoint="

_END_SIGNED_OUT = "You have signed out."
_END_IDLE = f"You were signed out after {IDLE_SECONDS / 3600:.0f} hours without use."
_END_CREDENTIAL = (
    "You were signed out because your credential is no longer valid: its key was regenerated, its rule was changed or "
    "deleted, or the network rules no longer allow your address."
)
_END_EXPIRED = "You were signed out because your sign-in at the identity provider has expired."
_END_NO_ROLE = "You were signed out because no role is assigned to you any more."
_NO_ROLE = (
    "You are signed in at the identity provider as {name}, but no role is assigned to you here. Ask an owner for a "
    "role assignment for your object id {id}."
)
_NOT_A_CREDENTIAL = (
    "This is neither a connection string nor the administrator token of this node. A connection string starts with "
    "Endpoint=sb:// and has a SharedAccessKeyName and a SharedAccessKey."
)
_WRONG_KEY = (
    "The node does not accept this connection string: its rule does not exist here, or its key was regenerated. Copy "
    "it again from the Access page or from the ready file."
)

# Signs the person in at a time of day, in seconds; raises a refusal if the credential is not valid then.
SignIn = Callable[[float], Caller]


class SignedOut(Unauthorized):
    """The login has ended: signed out, idle for too long, or its credential is no longer valid."""

    def text(self) -> str:
        return "You are signed out. Sign in again."


class NotSignedIn(Unauthorized):
    """The text that the person entered proves nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def text(self) -> str:
        return self.reason


class Login:
    """One signed-in browser. Thread rule: the owner's thread only."""

    __slots__ = ("_caller", "_last_used_at", "_sign_in", "end_reason", "name", "on_expiring", "theme")

    def __init__(self, sign_in: SignIn, caller: Caller, now: float, name: str = "") -> None:
        # The name of a person who has signed in at an identity provider.
        self.name = name
        self._sign_in = sign_in
        self._caller = caller
        self._last_used_at = now
        # Why the login has ended; empty while it is open.
        self.end_reason = ""
        # True: dark, False: light, None: the preference of the browser.
        self.theme: bool | None = None
        # Called while the token is about to expire, so that it can be renewed.
        self.on_expiring: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return not self.end_reason

    def sign_out(self) -> None:
        """End the login because the person asked for it."""
        self.end_reason = _END_SIGNED_OUT

    def is_idle(self, now: float) -> bool:
        """Whether it was unused for too long."""
        return now - self._last_used_at > IDLE_SECONDS

    @property
    def last_used_at(self) -> float:
        """Time of the last use."""
        return self._last_used_at

    def is_expiring(self, now_s: float) -> bool:
        """Whether the token of a person has expired, or will soon."""
        expires_at_s = self._caller.principal.expires_at_s
        return expires_at_s is not None and expires_at_s - now_s < RENEW_WITHIN_S

    def renew(self, sign_in: SignIn, now_s: float) -> bool:
        """Use another token from now on; False if it is of another person. Raises the refusal if it is not valid."""
        fresh = sign_in(now_s)
        if _person_id(fresh) != _person_id(self._caller):
            return False
        self._caller, self._sign_in = fresh, sign_in
        return True

    def caller(self, now: float, now_s: float) -> Caller:
        """The caller, signed in again if an entity has changed. Raises SignedOut if the login has ended."""
        if self.is_open and self.is_idle(now):
            self.end_reason = _END_IDLE
        if not self.is_open:
            raise SignedOut
        if self.on_expiring is not None and self.is_expiring(now_s):
            self.on_expiring()
        if not self._caller.is_current(now_s):
            try:
                self._caller = self._sign_in(now_s)
            except Refusal as refusal:
                self.end_reason = _end_reason(refusal)
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

    def renew_link(self, credential: str) -> str:
        """Make a new code for the one-time link, for a client with the administrator token. An unused code ends."""
        self._broker.sign_in_admin(AdminToken(credential))
        self._link_code = secrets.token_urlsafe(_COOKIE_BYTES)
        return self._link_code

    def sign_in(self, credential: str, peer: str, now: float, now_s: float) -> str:
        """Open a login with a connection string or the administrator token. Returns the value of its cookie."""
        text, broker = credential.strip(), self._broker
        if _CONNECTION_STRING_MARK not in text.lower():
            try:
                return self._open(lambda _: broker.sign_in_admin(AdminToken(text)), now, now_s)
            except Unauthorized:
                raise NotSignedIn(_NOT_A_CREDENTIAL) from None
        host, shown = ConnectionString.parse(text).host, ConnectionStringCredential(text)
        try:
            return self._open(lambda at_s: broker.sign_in(host, shown, address=peer, now_s=at_s), now, now_s)
        except InvalidSignature:
            raise NotSignedIn(_WRONG_KEY) from None

    def sign_in_person(self, access_token: str, name: str, peer: str, now: float, now_s: float) -> str:
        """Open a login with an access token of an identity provider. Returns the value of its cookie."""
        shown, broker = BearerToken(access_token), self._broker
        try:
            return self._open(lambda at_s: broker.sign_in_person(shown, address=peer, now_s=at_s), now, now_s, name)
        except RoleMissing:
            raise NotSignedIn(_NO_ROLE.format(name=name, id=broker.access.identities.id_of(access_token))) from None

    def redeem(self, code: str, now: float, now_s: float) -> str:
        """Open a login of the administrator with the one-time code. Returns the value of its cookie."""
        expected = self._link_code
        if expected is None or not hmac.compare_digest(code.encode(errors="replace"), expected.encode()):
            raise InvalidSignature
        self._link_code = None
        return self._open(lambda _: self._broker.administrator(), now, now_s)

    def find(self, cookie: str, now: float) -> Login | None:
        """The login with a cookie; None if there is none or it has ended."""
        login = self._by_digest.get(_digest(cookie))
        return login if login is not None and login.is_open and not login.is_idle(now) else None

    def end_reason(self, cookie: str, now: float) -> str:
        """Why the login with a cookie has ended; empty if it is open or unknown."""
        login = self._by_digest.get(_digest(cookie))
        if login is None:
            return ""
        return _END_IDLE if login.is_open and login.is_idle(now) else login.end_reason

    def _open(self, sign_in: SignIn, now: float, now_s: float, name: str = "") -> str:
        caller = sign_in(now_s)
        self._make_room()
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._by_digest[_digest(cookie)] = Login(sign_in, caller, now, name)
        return cookie

    def _make_room(self) -> None:
        """Remove a login if there are too many: one that has ended, else the one that was idle longest."""
        if len(self._by_digest) >= MAX_LOGINS:
            logins = self._by_digest
            del logins[min(logins, key=lambda digest: (logins[digest].is_open, logins[digest].last_used_at))]


def _end_reason(refusal: Refusal) -> str:
    if isinstance(refusal, ExpiredToken):
        return _END_EXPIRED
    return _END_NO_ROLE if isinstance(refusal, RoleMissing) else _END_CREDENTIAL


def _person_id(caller: Caller) -> str:
    identity = caller.principal.identity
    return "" if identity is None else identity.id


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
