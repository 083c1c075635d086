"""The local issuer's endpoints: discovery, keys, tokens, sign-in page, device codes and managed identities.

It is served below `/adfs` on the HTTP and HTTPS ports, because identity libraries accept the tenant `adfs` at any
authority without asking Microsoft about it. `/metadata` is the path of the instance metadata service, from which
virtual machines get tokens of their managed identity. Errors are those of RFC 6749, 5.2 and RFC 8628, 3.5.
"""

import asyncio
import hmac
import html
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote_plus

from starlette.responses import HTMLResponse, Response

from hubmere.endpoints.http.context import Disconnected, Receive, Scope, Send, client_address, content_length, read_body
from hubmere.endpoints.http.identity.authorize import Authorizations
from hubmere.endpoints.http.identity.device_codes import INTERVAL_S, LIFETIME_S, DeviceCodes
from hubmere.endpoints.http.identity.directory import Application, Directory, User
from hubmere.endpoints.http.identity.signing import TOKEN_SECONDS, Signer
from hubmere.endpoints.memory import MemoryBudget
from hubmere.model.clock import Clock

log = logging.getLogger("hubmere.identity")

TENANT = "adfs"
METADATA = "metadata"
DEFAULT_AUDIENCE = "https://eventhubs.azure.net"

_MAX_FORM_BYTES = 64 * 1024
_MAX_FIELDS = 64
_MAX_AUDIENCE_CHARACTERS = 1024
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_IDENTITY_SCOPES = frozenset({"openid", "profile", "email", "offline_access"})
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Hubmere: device sign-in</title>
<style>body{{font:16px sans-serif;max-width:24rem;margin:4rem auto}}input,button{{display:block;width:100%;
margin:.5rem 0 1rem;padding:.5rem;box-sizing:border-box;font:inherit}}</style>
<h1>Device sign-in</h1><p>{message}</p>{form}</html>"""
_FORM = """<form method="post"><label>Code <input name="user_code" value="{code}" autocomplete="off" required></label>
<label>User <input name="username" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button>Sign in</button></form>"""

Form = Mapping[str, str]


class OAuthError(Exception):
    """A request that is refused, with the error code of the protocol."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(code, description)
        self.code = code
        self.description = description
        self.status = status


class LocalIssuer:
    """The ASGI application of the local issuer. Thread rule: the node's loop only.

    `identity_header` is the secret that programs on App Service send with requests for managed identity tokens.
    """

    # The first path segments below which it is served.
    mounts = (TENANT, METADATA)

    def __init__(
        self,
        signer: Signer,
        directory: Directory,
        clock: Clock,
        authorizations: Authorizations,
        *,
        identity_header: str,
    ) -> None:
        self.signer = signer
        self._directory = directory
        self._clock = clock
        self._identity_header = identity_header
        self._codes = DeviceCodes()
        self._authorizations = authorizations
        self._memory = MemoryBudget()
        self._routes: Mapping[tuple[str, str], Callable[[Scope, Form], Response]] = {
            ("GET", f"{TENANT}/.well-known/openid-configuration"): self._discover,
            ("GET", f"{TENANT}/discovery/keys"): self._list_keys,
            ("POST", f"{TENANT}/oauth2/token"): self._issue_token,
            ("POST", f"{TENANT}/oauth2/devicecode"): self._begin_device,
            ("GET", f"{TENANT}/oauth2/authorize"): self._show_authorize_page,
            ("POST", f"{TENANT}/oauth2/authorize"): self._sign_in_user,
            ("GET", f"{TENANT}/device"): self._show_device_page,
            ("POST", f"{TENANT}/device"): self._sign_in_device,
            ("GET", f"{TENANT}/msi/token"): self._issue_app_service_token,
            ("GET", f"{METADATA}/identity/oauth2/token"): self._issue_metadata_token,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(scope, receive)
        except OAuthError as error:
            log.info("refused %s %s: %s", scope.get("method"), scope["path"], error.code)
            body = {"error": error.code, "error_description": error.description}
            response = _json(body, error.status)
        except (Disconnected, asyncio.CancelledError):
            raise
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        if scope["type"] != "http":
            raise OAuthError("invalid_request", "The local issuer has no WebSocket.")
        # Some libraries use the paths of Entra ID's second version whatever discovery says.
        path = "/".join(part for part in scope["path"].lower().split("/") if part not in ("", "v2.0"))
        handler = self._routes.get((scope["method"], path))
        if handler is None:
            raise OAuthError("not_found", "The local issuer has no such endpoint.", 404)
        text = scope["query_string"]
        if scope["method"] == "POST":
            length = content_length(dict(scope["headers"]))
            text = await read_body(receive, length, _MAX_FORM_BYTES, self._memory)
        return handler(scope, _read_form(text))

    # --- OpenID Connect Discovery 1.0, RFC 8414

    def _discover(self, _scope: Scope, _form: Form) -> Response:
        base = self.signer.issuer
        return _json(
            {
                "issuer": base,
                "jwks_uri": f"{base}/discovery/keys",
                "token_endpoint": f"{base}/oauth2/token",
                "device_authorization_endpoint": f"{base}/oauth2/devicecode",
                "authorization_endpoint": f"{base}/oauth2/authorize",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "client_credentials", _DEVICE_GRANT],
                "token_endpoint_auth_methods_supported": [
                    "client_secret_post",
                    "client_secret_basic",
                    "private_key_jwt",
                    "none",
                ],
            }
        )

    def _list_keys(self, _scope: Scope, _form: Form) -> Response:
        return Response(self.signer.key_set.encode(), 200, media_type="application/json")

    # --- the token endpoint

    def _issue_token(self, scope: Scope, form: Form) -> Response:
        grant = form.get("grant_type", "")
        if grant == "client_credentials":
            application = self._client(scope, form)
            return self._token(application, _audience(form), application.client_id)
        if grant in (_DEVICE_GRANT, "device_code"):
            return self._issue_device_token(form)
        if grant == "authorization_code":
            return self._issue_user_token(form)
        raise OAuthError("unsupported_grant_type", f"Use authorization_code, client_credentials or {_DEVICE_GRANT}.")

    def _client(self, scope: Scope, form: Form) -> Application:
        """The application that a request authenticates: by a secret, or by a federated token."""
        client_id, secret = _basic(scope) or (form.get("client_id", ""), form.get("client_secret", ""))
        if form.get("client_assertion_type") == _ASSERTION_TYPE:
            found = self._directory.application(client_id)
            if found is not None and self.signer.is_federated(form.get("client_assertion", ""), found):
                return found
        elif (known := self._directory.application_with_secret(client_id, secret)) is not None:
            return known
        raise OAuthError("invalid_client", "The application is unknown, or its secret or assertion is wrong.", 401)

    def _token(self, holder: Application | User, audience: str, client_id: str, nonce: str = "") -> Response:
        body: dict[str, object] = {
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
            "ext_expires_in": TOKEN_SECONDS,
            "access_token": self.signer.access_token(holder, audience, client_id),
        }
        if isinstance(holder, User):
            body["id_token"] = self.signer.id_token(holder, client_id, nonce)
        log.info("issued a token of '%s' for %s", holder.name, audience)
        return _json(body)

    # --- authorization codes

    def _show_authorize_page(self, _scope: Scope, form: Form) -> Response:
        return self._authorizations.begin(form, self._clock.monotonic())

    def _sign_in_user(self, _scope: Scope, form: Form) -> Response:
        return self._authorizations.sign_in(form, self._clock.monotonic())

    def _issue_user_token(self, form: Form) -> Response:
        found = self._authorizations.redeem(form, self._clock.monotonic())
        if found is None:
            raise OAuthError("invalid_grant", "The code is unknown, used, expired, or of another client or verifier.")
        return self._token(found.user, _audience({"scope": found.scope}), form.get("client_id", ""), found.nonce)

    # --- device codes

    def _begin_device(self, _scope: Scope, form: Form) -> Response:
        client_id = form.get("client_id", "")
        if not client_id or len(client_id) > _MAX_AUDIENCE_CHARACTERS:
            raise OAuthError("invalid_request", "The form has no client_id.")
        code = self._codes.begin(client_id, _audience(form), self._clock.monotonic())
        page = f"{self.signer.issuer}/device"
        return _json(
            {
                "device_code": code.code,
                "user_code": code.user_code,
                "verification_uri": page,
                "verification_url": page,
                "verification_uri_complete": f"{page}?user_code={code.user_code}",
                "expires_in": int(LIFETIME_S),
                "interval": INTERVAL_S,
                "message": f"To sign in, open {page} and enter the code {code.user_code}.",
            }
        )

    def _issue_device_token(self, form: Form) -> Response:
        code = self._codes.find(form.get("device_code") or form.get("code") or "", self._clock.monotonic())
        if code is None or code.client_id != form.get("client_id", ""):
            raise OAuthError("expired_token", "The device code is unknown or has expired.")
        if code.user is None:
            raise OAuthError("authorization_pending", "Nobody has entered the code yet.")
        self._codes.end(code)
        return self._token(code.user, code.audience, code.client_id)

    def _show_device_page(self, _scope: Scope, form: Form) -> Response:
        return _page("Enter the code that your program shows.", form.get("user_code", ""))

    def _sign_in_device(self, _scope: Scope, form: Form) -> Response:
        code = self._codes.find_by_user(form.get("user_code", ""), self._clock.monotonic())
        if code is None:
            return _page("This code is unknown or has expired.", status=400)
        user = self._directory.user_with_password(form.get("username", ""), form.get("password", ""))
        if user is None:
            self._codes.count_attempt(code)
            return _page("The user is unknown, or the password is wrong.", code.user_code, status=401)
        code.user = user
        return HTMLResponse(_PAGE.format(message="You are signed in. You may close this page.", form=""))

    # --- managed identities

    def _issue_metadata_token(self, scope: Scope, form: Form) -> Response:
        """As the instance metadata service of a virtual machine: for programs on this machine only."""
        headers = dict(scope["headers"])
        if headers.get(b"metadata", b"").lower() != b"true" or b"x-forwarded-for" in headers:
            raise OAuthError("invalid_request", "The header 'Metadata: true' is required.")
        if not _is_local(scope):
            raise OAuthError("unauthorized_client", "Only programs on the node's own machine get this token.", 403)
        return self._managed_token(form)

    def _issue_app_service_token(self, scope: Scope, form: Form) -> Response:
        """As the endpoint that App Service names in IDENTITY_ENDPOINT."""
        given = dict(scope["headers"]).get(b"x-identity-header", b"")
        if not hmac.compare_digest(given, self._identity_header.encode()):
            raise OAuthError("unauthorized_client", "The header X-IDENTITY-HEADER is missing or wrong.", 401)
        return self._managed_token(form)

    def _managed_token(self, form: Form) -> Response:
        client_id = form.get("client_id", "")
        application = self._directory.application(client_id) if client_id else self._directory.owner
        if application is None:
            raise OAuthError("invalid_request", "Identity not found: no application has this client_id.")
        audience = _audience(form)
        expires_at_s = self._clock.now_ms() // 1000 + TOKEN_SECONDS
        log.info("issued a token of the managed identity '%s' for %s", application.name, audience)
        return _json(
            {
                "access_token": self.signer.access_token(application, audience, application.client_id),
                "client_id": application.client_id,
                "expires_in": str(TOKEN_SECONDS),
                "expires_on": str(expires_at_s),
                "not_before": str(expires_at_s - TOKEN_SECONDS),
                "resource": audience,
                "token_type": "Bearer",
            }
        )


def _read_form(text: bytes) -> Form:
    try:
        return dict(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise OAuthError("invalid_request", "The form cannot be read.") from None


def _audience(form: Form) -> str:
    """What a token is asked for: `resource`, or the first scope that is not about the user."""
    scopes = [scope for scope in form.get("scope", "").split() if scope not in _IDENTITY_SCOPES]
    wanted = form.get("resource") or (scopes[0].removesuffix("/.default") if scopes else DEFAULT_AUDIENCE)
    if len(wanted) > _MAX_AUDIENCE_CHARACTERS or not wanted.isprintable():
        raise OAuthError("invalid_scope", "The scope is too long or has control characters.")
    return wanted


def _basic(scope: Scope) -> tuple[str, str] | None:
    """Client id and secret of the `Authorization` header (RFC 6749, 2.3.1), if there is one."""
    scheme, _, text = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = b64decode(text, validate=True).decode().partition(":")
    except ValueError:
        raise OAuthError("invalid_client", "The Authorization header cannot be read.", 401) from None
    return unquote_plus(client_id), unquote_plus(secret)


def _is_local(scope: Scope) -> bool:
    try:
        return ip_address(client_address(scope)).is_loopback
    except ValueError:
        return False


def _json(body: Mapping[str, object], status: int = 200) -> Response:
    # RFC 6749, 5.1: tokens are not to be cached.
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    return Response(json.dumps(body).encode(), status, headers, media_type="application/json")


def _page(message: str, code: str = "", status: int = 200) -> Response:
    form = _FORM.format(code=html.escape(code[:32], quote=True))
    headers = {"Cache-Control": "no-store", "X-Frame-Options": "DENY"}
    return HTMLResponse(_PAGE.format(message=message, form=form), status, headers)
