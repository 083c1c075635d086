"""Signing in at an identity provider: authorization code with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).

1. `begin` makes a state, a nonce and a code verifier, keeps them, and gives the address of the provider's page and a
   secret for a cookie of this browser.
2. The person signs in there, and the provider sends the browser back with the state and a code.
3. `finish` accepts a state once, for ten minutes, and from the browser that began. It exchanges the code for tokens and
   verifies the ID token: signature, issuer, audience, times and nonce.

The access token is then a credential as any other: the broker verifies it, and role assignments decide what the person
may do.
"""

import asyncio
import base64
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from hubmere.broker import Broker, KeysPending
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.security.sign_in import SignInFailed, SignInProvider

# Time to enter a password and a second factor.
LIFETIME_S = 600
# Sign-ins at the same time, each below 1 KB; the oldest one goes when there are too many.
MAX_PENDING = 1000
_RANDOM_BYTES = 32
_EXPIRED = "This sign-in has expired, or it was used before. Begin again."
_OTHER_BROWSER = "This sign-in was begun in another browser, or this browser does not keep cookies. Begin again."
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    provider: SignInProvider
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    browser: str = field(repr=False)
    redirect_uri: str
    next_page: str
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who has signed in: a name for display, the tokens and who gave them, and the page that they wanted."""

    name: str
    provider: SignInProvider
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    next_page: str


class ProviderSignIns:
    """The sign-ins that are under way. Thread rule: the owner's thread only."""

    def __init__(self, broker: Broker, clock: Clock, providers: Sequence[SignInProvider]) -> None:
        self._broker = broker
        self._clock = clock
        self._providers = {provider.name: provider for provider in providers}
        self._pending: dict[str, _Pending] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the providers, as the sign-in page shows them."""
        return tuple(self._providers)

    async def begin(self, name: str, redirect_uri: str, next_page: str) -> tuple[str, str]:
        """The address of the provider's page, and the secret for a cookie of this browser."""
        provider = self._providers.get(name)
        if provider is None:
            raise SignInFailed("This identity provider is not one of the node's settings.")
        state, browser, nonce, verifier = (secrets.token_urlsafe(_RANDOM_BYTES) for _ in range(4))
        challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        url = await provider.authorization_url(
            {
                "redirect_uri": redirect_uri,
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        self._make_room()
        self._pending[state] = _Pending(
            provider=provider,
            nonce=nonce,
            verifier=verifier,
            browser=browser,
            redirect_uri=redirect_uri,
            next_page=next_page,
            expires_at=self._clock.monotonic() + LIFETIME_S,
        )
        return url, browser

    async def finish(self, answer: Mapping[str, str], browser: str) -> Person:
        """The person whom the provider has sent back; SignInFailed says why not."""
        pending = self._take(answer.get("state", ""), browser)
        if "error" in answer:
            raise SignInFailed(f"{pending.provider.name} refused the sign-in: {_reason(answer)}.")
        code = answer.get("code", "")
        if not code:
            raise SignInFailed(f"{pending.provider.name} sent no authorization code. Begin again.")
        tokens = await pending.provider.redeem(code, pending.verifier, pending.redirect_uri)
        name = await self._verify(pending, tokens.id_token)
        return Person(
            name=name,
            provider=pending.provider,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            next_page=pending.next_page,
        )

    def _take(self, state: str, browser: str) -> _Pending:
        pending = self._pending.get(state)
        if pending is None:
            raise SignInFailed(_EXPIRED)
        if not hmac.compare_digest(pending.browser.encode(), browser.encode(errors="replace")):
            # The state stays: somebody else must not be able to end the sign-in of the right browser.
            raise SignInFailed(_OTHER_BROWSER)
        del self._pending[state]
        if self._clock.monotonic() >= pending.expires_at:
            raise SignInFailed(_EXPIRED)
        return pending

    async def _verify(self, pending: _Pending, id_token: str) -> str:
        """The name in the ID token; waits for the keys of its issuer if they have to be fetched."""
        try:
            return self._name(pending, id_token)
        except KeysPending as waiting:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.wait(lambda: None if ready.done() else ready.set_result(None))
            await ready
            return self._name(pending, id_token)

    def _name(self, pending: _Pending, id_token: str) -> str:
        provider, now_s = pending.provider, self._clock.now_ms() / 1000
        identities = self._broker.access.identities
        try:
            return identities.verify_id_token(id_token, provider.issuer, provider.client_id, pending.nonce, now_s)
        except KeysPending:
            raise
        except Refusal as refusal:
            raise SignInFailed(f"The ID token of {provider.name} is not valid. {refusal.text()}") from refusal

    def _make_room(self) -> None:
        now = self._clock.monotonic()
        for state in [state for state, pending in self._pending.items() if now >= pending.expires_at]:
            del self._pending[state]
        if len(self._pending) >= MAX_PENDING:
            del self._pending[next(iter(self._pending))]


def _reason(answer: Mapping[str, str]) -> str:
    text = answer.get("error_description") or answer["error"]
    return "".join(character for character in text[:_MAX_SHOWN] if character.isprintable()).rstrip(".")
