"""The authorization endpoint of the local issuer: a plain page on which a test user signs in (RFC 6749, 4.1; RFC 7636).

1. `begin` checks the client, the redirect address and the code challenge, and shows the page.
2. `sign_in` checks the password and sends the browser back with a code.
3. `redeem` gives the user for a code, once, to the client that knows the code verifier.

The only client is the node's own portal. A wrong client or redirect address is shown as a page and never followed;
other errors go back to the client, as the protocol asks.
"""

import base64
import hmac
import html
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlencode, urlsplit

from starlette.responses import HTMLResponse, RedirectResponse, Response

from hubmere.endpoints.http.identity.directory import Directory, User

# Time to enter a password, and to exchange a code.
PAGE_LIFETIME_S = 600.0
CODE_LIFETIME_S = 60.0
# Pages and codes at a time, each below 1 KB; the oldest one goes when there are too many.
MAX_PENDING = 1000
# Wrong passwords on one page; then the person has to begin again.
MAX_ATTEMPTS = 10
_RANDOM_BYTES = 32
_SEE_OTHER = 303
_MAX_TEXT = 2048
_HEADERS = {"Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Hubmere: local sign-in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:24rem;margin:4rem auto;padding:0 1rem}}
input,button{{display:block;width:100%;margin:.25rem 0 1rem;padding:.6rem;box-sizing:border-box;font:inherit}}
[role=alert]{{font-weight:600}}</style>
<main><h1>Local sign-in</h1><p>This is the issuer of a Hubmere node for development and tests. Sign in as one of the
users of its settings.</p>{alert}{form}</main></html>"""
_FORM = """<form method="post"><input type="hidden" name="request" value="{request}">
<label>User <input name="username" autocomplete="username" required autofocus></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button>Sign in</button></form>"""

Form = Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class _Authorization:
    """A sign-in: first a page that waits for a user, then a code that waits for the client."""

    redirect_uri: str
    state: str
    nonce: str
    challenge: str
    scope: str
    expires_at: float
    attempts: int = 0
    user: User | None = field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeemedCode:
    """The user who signed in, and what the client asked for at the beginning."""

    user: User
    scope: str
    nonce: str


class Authorizations:
    """Sign-ins that are under way. Thread rule: the node's loop only; time is monotonic.

    `accepts_redirect` says whether an address is that of the client.
    """

    def __init__(self, directory: Directory, client_id: str, accepts_redirect: Callable[[str], bool]) -> None:
        self._directory = directory
        self._client_id = client_id
        self._accepts_redirect = accepts_redirect
        self._pending: dict[str, _Authorization] = {}

    def begin(self, form: Form, now: float) -> Response:
        """The page for a request, or why it is refused."""
        redirect_uri = form.get("redirect_uri", "")
        if form.get("client_id") != self._client_id:
            return _page("No client has this client_id: only the portal of the node signs in here.", status=400)
        if len(redirect_uri) > _MAX_TEXT or not self._accepts_redirect(redirect_uri):
            return _page("The redirect address is not that of the portal of this node.", status=400)
        state = form.get("state", "")
        if form.get("response_type") != "code":
            return _send_back(redirect_uri, error="unsupported_response_type", state=state)
        if form.get("code_challenge_method") != "S256" or not form.get("code_challenge"):
            return _send_back(redirect_uri, error="invalid_request", state=state, error_description="PKCE with S256")
        if any(len(text) > _MAX_TEXT for text in form.values()):
            return _send_back(redirect_uri, error="invalid_request", state=state[:_MAX_TEXT])
        request = self._keep(
            _Authorization(
                redirect_uri=redirect_uri,
                state=state,
                nonce=form.get("nonce", ""),
                challenge=form["code_challenge"],
                scope=form.get("scope", ""),
                expires_at=now + PAGE_LIFETIME_S,
            ),
            now,
        )
        return _page("", request)

    def sign_in(self, form: Form, now: float) -> Response:
        """Check a password; a user who knows it goes back to the client with a code."""
        request = form.get("request", "")
        waiting = self._find(request, now)
        if waiting is None or waiting.user is not None:
            return _page("This page has expired. Begin again where you came from.", status=400)
        user = self._directory.user_with_password(form.get("username", ""), form.get("password", ""))
        if user is None:
            waiting.attempts += 1
            if waiting.attempts >= MAX_ATTEMPTS:
                del self._pending[request]
                return _send_back(waiting.redirect_uri, error="access_denied", state=waiting.state)
            return _page("The user is unknown, or the password is wrong.", request, status=401)
        del self._pending[request]
        waiting.user, waiting.expires_at = user, now + CODE_LIFETIME_S
        return _send_back(waiting.redirect_uri, code=self._keep(waiting, now), state=waiting.state)

    def redeem(self, form: Form, now: float) -> RedeemedCode | None:
        """The user of a code; None if the code, the client, the address or the verifier is wrong."""
        code = form.get("code", "")
        waiting = self._find(code, now)
        if waiting is None or waiting.user is None:
            return None
        # A code is used once, by any client.
        del self._pending[code]
        digest = sha256(form.get("code_verifier", "").encode(errors="replace")).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=")
        is_same = form.get("client_id") == self._client_id and form.get("redirect_uri") == waiting.redirect_uri
        if not is_same or not hmac.compare_digest(challenge, waiting.challenge.encode(errors="replace")):
            return None
        return RedeemedCode(user=waiting.user, scope=waiting.scope, nonce=waiting.nonce)

    def _keep(self, authorization: _Authorization, now: float) -> str:
        for key in [key for key, one in self._pending.items() if now >= one.expires_at]:
            del self._pending[key]
        if len(self._pending) >= MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        key = secrets.token_urlsafe(_RANDOM_BYTES)
        self._pending[key] = authorization
        return key

    def _find(self, key: str, now: float) -> _Authorization | None:
        found = self._pending.get(key)
        return found if found is not None and now < found.expires_at else None


def _send_back(redirect_uri: str, **answer: str) -> Response:
    joint = "&" if urlsplit(redirect_uri).query else "?"
    return RedirectResponse(f"{redirect_uri}{joint}{urlencode(answer)}", _SEE_OTHER, _HEADERS)


def _page(problem: str, request: str = "", status: int = 200) -> Response:
    alert = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    form = _FORM.format(request=html.escape(request, quote=True)) if request else ""
    return HTMLResponse(_PAGE.format(alert=alert, form=form), status, _HEADERS)
