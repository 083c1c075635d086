"""An OpenID Connect provider as the portal uses it: its discovery document, its sign-in page, its token endpoint.

OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE). Requests are made in worker threads with the limits of
`issuer_keys`. A code, a verifier, a secret or a token is never part of a text or of a log line.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from hubmere.endpoints.issuer_keys import DISCOVERY, FETCH_SECONDS, FetchFailed, get, post_form
from hubmere.model.clock import Clock
from hubmere.model.security.sign_in import SignInFailed, SignInTokens

log = logging.getLogger("hubmere.identity")

# Endpoints of a provider hardly ever change.
_DISCOVERY_LIFE_S = 3600.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_TOKEN_CHARACTERS = 16 * 1024
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """How the portal is registered at a provider; a public client has no secret."""

    name: str
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: Sequence[str] = ()
    ca_file: str | None = None


class OpenIdProvider:
    """One provider (`model.security.sign_in.SignInProvider`). Thread rule: the node's loop only."""

    def __init__(self, settings: ProviderSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._document: Mapping[str, Any] = {}
        self._read_at = -_DISCOVERY_LIFE_S

    @property
    def name(self) -> str:
        """The name on the sign-in page."""
        return self._settings.name

    @property
    def issuer(self) -> str:
        """The issuer in its tokens."""
        return self._settings.issuer

    @property
    def client_id(self) -> str:
        """The id of the portal at the provider."""
        return self._settings.client_id

    async def authorization_url(self, parameters: Mapping[str, str]) -> str:
        """The address of the provider's sign-in page."""
        endpoint = await self._endpoint("authorization_endpoint")
        own = {"response_type": "code", "client_id": self.client_id, "scope": " ".join(self._settings.scopes)}
        return (
            f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode({**own, **parameters}, quote_via=quote)}"
        )

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> SignInTokens:
        """Exchange an authorization code for tokens."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
            "code_verifier": verifier,
        }
        answer = await self._request_tokens(form, "the authorization code")
        tokens = [_token(answer, name) for name in ("access_token", "id_token")]
        if not all(tokens):
            raise self._report_failure("its answer has no access token and ID token; the scopes must contain openid")
        return SignInTokens(access_token=tokens[0], id_token=tokens[1], refresh_token=_token(answer, "refresh_token"))

    async def refresh(self, refresh_token: str) -> SignInTokens:
        """Exchange a refresh token for another access token."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": self.client_id}
        answer = await self._request_tokens(form, "the refresh token")
        if not (access_token := _token(answer, "access_token")):
            raise self._report_failure("its answer to a refresh token has no access token")
        return SignInTokens(access_token=access_token, id_token="", refresh_token=_token(answer, "refresh_token"))

    async def _request_tokens(self, form: dict[str, str], what: str) -> Mapping[str, Any]:
        if self._settings.client_secret:
            form["client_secret"] = self._settings.client_secret
        endpoint = await self._endpoint("token_endpoint")
        status, body = await self._ask(post_form, endpoint, form, self._settings.ca_file)
        answer = _read_object(body)
        if status != _OK:
            raise self._report_failure(f"it refused {what} ({_error_of(answer)})")
        return answer

    async def _endpoint(self, name: str) -> str:
        now = self._clock.monotonic()
        if now - self._read_at >= _DISCOVERY_LIFE_S:
            url = self.issuer.rstrip("/") + DISCOVERY
            document = _read_object(await self._ask(get, url, self._settings.ca_file))
            if document.get("issuer") != self.issuer:
                raise self._report_failure("its discovery document names another issuer")
            self._document, self._read_at = document, now
        endpoint = self._document.get(name)
        if not isinstance(endpoint, str) or not self._is_protected(endpoint):
            raise self._report_failure(f"its discovery document has no {name} with an https address")
        return endpoint

    def _is_protected(self, url: str) -> bool:
        parts = urlsplit(url)
        is_near = parts.scheme == "http" and (parts.hostname in _LOOPBACK or self.issuer.startswith("http://"))
        return bool(parts.hostname) and (parts.scheme == "https" or is_near)

    async def _ask(self, ask: Any, *arguments: Any) -> Any:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await asyncio.to_thread(ask, *arguments)
        except FetchFailed as why:
            raise self._report_failure(str(why)) from why
        except TimeoutError:
            raise self._report_failure(f"it does not answer within {FETCH_SECONDS:g} s") from None

    def _report_failure(self, why: str) -> SignInFailed:
        log.warning("nobody can sign in at %s: %s", self.issuer, why)
        return SignInFailed(f"Signing in at {self.name} is not possible: {why}. Try again, or ask your administrator.")


def _token(answer: Mapping[str, Any], name: str) -> str:
    """A token in an answer; empty if there is none, or if it is too long to be one."""
    token = answer.get(name)
    return token if isinstance(token, str) and len(token) <= _MAX_TOKEN_CHARACTERS else ""


def _read_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error_of(answer: Mapping[str, Any]) -> str:
    """The error code of RFC 6749, 5.2; a description may repeat what was sent, and is not shown."""
    code = answer.get("error")
    return code if isinstance(code, str) and code.isascii() and code.isprintable() and len(code) <= 64 else "no reason"
