"""The portal's ASGI application: authenticates requests and loads the pages on demand.

The node mounts it under `/portal`. Without a valid cookie a request gets the sign-in page and nothing else. To prevent
cross-site requests, every WebSocket and every POST must have an Origin header that matches the Host header, and a
request that names another origin is refused (RFC 6454; the SameSite attribute alone does not separate the ports of one
host). The user-interface library takes most of a second to import and about 45 MB of memory, so it is imported in a
thread when the portal is first used.
"""

import asyncio
import gc
import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, quote, urlencode

from hubmere.broker import Broker
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.monitoring.history import HistoryStore
from hubmere.model.security.sign_in import SignInFailed, SignInProvider
from hubmere.portal.history.recorder import Recorder
from hubmere.portal.history.sampler import Sampler
from hubmere.portal.node_facts import NodeFacts
from hubmere.portal.sign_in import sign_in_page
from hubmere.portal.sign_in.logins import Login, Logins
from hubmere.portal.sign_in.provider_sign_in import LIFETIME_S, ProviderSignIns
from hubmere.portal.sign_in.renewals import Renewals

if TYPE_CHECKING:
    from hubmere.model.capture.files import CapturedFiles

log = logging.getLogger("hubmere.portal")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

# Key in the ASGI scope under which pages find the PortalSession of the request.
SESSION_KEY = "hubmere.portal_session"
SIGN_IN_PATH = "/sign-in"
# A program with the administrator token gets a new one-time link here (`hubmere portal`).
LINK_PATH = "/sign-in-link"
# Leads to the page of an identity provider, and where that one sends the person back.
PROVIDER_PATH = f"{SIGN_IN_PATH}/with"
CALLBACK_PATH = f"{SIGN_IN_PATH}/callback"
_BEARER = "bearer"
_PAGES_MODULE = "hubmere.portal.nicegui_app"
_NEXT = "next"
_PROVIDER = "provider"
# All pages of namespaces are below this path.
_PAGES_PREFIX = "/n/"
_MAX_NEXT = 2000
_TOKEN = "token"  # noqa: S105  the name of a parameter
_FORBIDDEN = 403
# RFC 6455, 7.4.1: policy violation.
_WS_POLICY = 1008
_ASSETS_PATH = "/_nicegui/"
# The path of an asset contains its version, so its content never changes.
_CACHE_FOREVER = b"private, max-age=31536000, immutable"

# The page library compiles its templates in the browser, hence the two `unsafe` keywords. All content has this origin.
_POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS: Headers = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)
_HTML_HEADERS: Headers = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"))


class Pages(Protocol):
    """The pages, after the page library has been imported."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request or one WebSocket."""

    async def stop(self) -> None:
        """Close every open page."""


Load = Callable[[], Coroutine[Any, Any, Pages]]


class Portal:
    """The portal of a node.

    Thread rule: the node's loop only.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        addresses: Addresses,
        history: HistoryStore,
        facts: NodeFacts,
        open_captured: "Callable[[], CapturedFiles]",
        *,
        providers: Sequence[SignInProvider] = (),
        load: Load | None = None,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._addresses = addresses
        self._facts = facts
        self._open_captured = open_captured
        self._logins = Logins(broker)
        self._provider_sign_ins = ProviderSignIns(broker, clock, providers)
        self._renewals = Renewals(broker, clock)
        self._sampler = Sampler(clock)
        self._recorder = Recorder(broker, clock, self._sampler, history)
        self._load_pages = load or _load_pages
        self._loading: asyncio.Task[Pages] | None = None

    @property
    def first_link(self) -> str:
        """Path and query of the one-time link that signs the administrator in."""
        return f"/portal/?{_TOKEN}={self._logins.link_code}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request or one WebSocket."""
        login = await self._login_of(scope)
        if scope["type"] == "websocket":
            await self._serve_websocket(login, scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if path == LINK_PATH and scope["method"] == "POST":
            # Browsers send no bearer token by themselves, so this cannot be a cross-site request.
            await self._serve_link(scope, send)
        elif not _is_same_origin(scope) and (scope["method"] == "POST" or _header(scope, b"origin") is not None):
            await _respond(send, _FORBIDDEN, b"Cross-origin request refused: only pages of this portal may send it.")
        elif path == SIGN_IN_PATH:
            await self._serve_sign_in(scope, receive, send)
        elif path == PROVIDER_PATH:
            await self._begin_at_provider(scope, send)
        elif path == CALLBACK_PATH:
            await self._finish_at_provider(scope, send)
        elif path == "/" and scope["query_string"].startswith(f"{_TOKEN}=".encode()):
            await self._redeem(scope, send)
        elif login is None:
            await _redirect(send, f"{scope['root_path']}{sign_in_url(path, scope['query_string'].decode('latin-1'))}")
        else:
            await self._serve_page(login, scope, receive, send)

    async def record_history(self) -> None:
        """Record the history of the node's metrics until cancelled."""
        await self._recorder.run()

    async def stop(self) -> None:
        """Close all open pages because the node stops."""
        await self._renewals.stop()
        loading, self._loading = self._loading, None
        if loading is None:
            return
        if not loading.done():
            loading.cancel()
        [outcome] = await asyncio.gather(loading, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.stop()

    # --- signing in ---

    async def _serve_sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Load the other pages now: the visitor needs them as soon as the sign-in succeeds.
        self._start_loading()
        if scope["method"] != "POST":
            wanted = parse_qs(scope["query_string"].decode("latin-1")).get(_NEXT, [""])[0]
            cookie = _cookies(scope).get(_cookie_name(scope), "")
            notice = self._logins.end_reason(cookie, self._clock.monotonic())
            await _respond(send, 200, self._sign_in_page(scope, notice=notice, next_page=_local_page(wanted)))
            return
        form = await sign_in_page.read_form(receive)
        if form is None:
            await _respond(send, 413, b"The form is too large for a connection string.")
            return
        credential, next_page = form
        try:
            cookie = self._logins.sign_in(credential, _peer(scope), *self._times())
        except Refusal as refusal:
            log.info("refused a sign-in: %s", refusal.text(), extra={"peer": _peer(scope)})
            page = self._sign_in_page(scope, refusal.text(), next_page=_local_page(next_page))
            await _respond(send, 401, page)
            return
        await self._set_cookie(scope, send, cookie, _local_page(next_page))

    async def _serve_link(self, scope: Scope, send: Send) -> None:
        """Answer with path and query of a new one-time link."""
        scheme, _, token = (_header(scope, b"authorization") or "").partition(" ")
        try:
            self._logins.renew_link(token if scheme.lower() == _BEARER else "")
        except Refusal as refusal:
            log.info("refused a one-time link: %s", refusal.text(), extra={"peer": _peer(scope)})
            await _respond(send, 401, b"A new sign-in link needs the administrator's token.")
            return
        log.info("made a new one-time link", extra={"peer": _peer(scope)})
        await _respond(send, 200, self.first_link.encode())

    async def _redeem(self, scope: Scope, send: Send) -> None:
        """Sign in with the one-time link. The redirect removes the code from the address bar."""
        self._start_loading()
        code = parse_qs(scope["query_string"].decode("latin-1")).get(_TOKEN, [""])[0]
        try:
            cookie = self._logins.redeem(code, *self._times())
        except Refusal:
            log.info("refused an invalid or used one-time link", extra={"peer": _peer(scope)})
            page = self._sign_in_page(scope, "This link has already been used, or it is incomplete.")
            await _respond(send, 401, page)
            return
        await self._set_cookie(scope, send, cookie)

    def _sign_in_page(self, scope: Scope, error: str | None = None, *, notice: str = "", next_page: str = "") -> bytes:
        prefix = scope["root_path"]
        providers = [
            (name, f"{prefix}{PROVIDER_PATH}?{urlencode({_PROVIDER: name, _NEXT: next_page})}")
            for name in self._provider_sign_ins.names
        ]
        action = f"{prefix}{SIGN_IN_PATH}"
        return sign_in_page.render(action, error, notice=notice, next_page=next_page, providers=providers)

    async def _begin_at_provider(self, scope: Scope, send: Send) -> None:
        """Send the browser to the page of an identity provider."""
        self._start_loading()
        query = _query(scope)
        next_page = _local_page(query.get(_NEXT, ""))
        redirect_uri = f"{_origin(scope)}{scope['root_path']}{CALLBACK_PATH}"
        try:
            url, secret = await self._provider_sign_ins.begin(query.get(_PROVIDER, ""), redirect_uri, next_page)
        except SignInFailed as failure:
            await _respond(send, 502, self._sign_in_page(scope, failure.text(), next_page=next_page))
            return
        await _redirect(send, url, [(b"set-cookie", _provider_cookie(scope, secret, LIFETIME_S))])

    async def _finish_at_provider(self, scope: Scope, send: Send) -> None:
        """Sign in a person whom an identity provider has sent back."""
        self._start_loading()
        secret = _cookies(scope).get(_provider_cookie_name(scope), "")
        try:
            person = await self._provider_sign_ins.finish(_query(scope), secret)
            cookie = self._logins.sign_in_person(person.access_token, person.name, _peer(scope), *self._times())
            if (login := self._logins.find(cookie, self._clock.monotonic())) is not None:
                self._renewals.follow(login, person.provider, person.refresh_token, _peer(scope))
        except Refusal as refusal:
            log.info("refused a sign-in at an identity provider: %s", refusal.text(), extra={"peer": _peer(scope)})
            await _respond(send, 401, self._sign_in_page(scope, refusal.text()))
            return
        ended = (b"set-cookie", _provider_cookie(scope, "", 0))
        await self._set_cookie(scope, send, cookie, _local_page(person.next_page), [ended])

    async def _set_cookie(self, scope: Scope, send: Send, cookie: str, next_page: str = "", more: Headers = ()) -> None:
        log.info("signed in", extra={"peer": _peer(scope)})
        secure = "; Secure" if scope["scheme"] == "https" else ""
        path = scope["root_path"]
        text = f"{_cookie_name(scope)}={cookie}; Path={path}; HttpOnly; SameSite=Lax{secure}"
        await _redirect(send, f"{path}{next_page or '/'}", [(b"set-cookie", text.encode()), *more])

    async def _login_of(self, scope: Scope) -> Login | None:
        """The login that the request's cookie refers to; None if it has ended or its credential is no longer valid."""
        cookie = _cookies(scope).get(_cookie_name(scope))
        login = None if cookie is None else self._logins.find(cookie, self._clock.monotonic())
        if login is None:
            return None
        await self._renewals.ensure(login)
        try:
            login.caller(*self._times())
        except Refusal:
            return None
        return login

    def _times(self) -> tuple[float, float]:
        return self._clock.monotonic(), self._clock.now_ms() / 1000

    # --- pages ---

    async def _serve_websocket(self, login: Login | None, scope: Scope, receive: Receive, send: Send) -> None:
        if login is None or not _is_same_origin(scope):
            await send({"type": "websocket.close", "code": _WS_POLICY})
            return
        pages = await self._start_loading()
        await pages.serve(scope, receive, send)

    async def _serve_page(self, login: Login, scope: Scope, receive: Receive, send: Send) -> None:
        pages = await self._start_loading()
        # The pages have loaded it; a node whose portal nobody opens does not need it.
        from hubmere.portal.sign_in.portal_session import PortalSession

        scope[SESSION_KEY] = PortalSession(
            broker=self._broker,
            clock=self._clock,
            addresses=self._addresses,
            sampler=self._sampler,
            recorder=self._recorder,
            facts=self._facts,
            captured=self._open_captured(),
            login=login,
            peer=_peer(scope),
        )
        is_asset = scope["path"].startswith(f"{scope['root_path']}{_ASSETS_PATH}")

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name != b"cache-control"]
                caching = _CACHE_FOREVER if is_asset and message["status"] == 200 else b"no-store"
                message["headers"] = [*kept, (b"cache-control", caching), *_SECURITY_HEADERS]
            await send(message)

        await pages.serve(scope, receive, send_with_headers)

    def _start_loading(self) -> asyncio.Task[Pages]:
        """Start to load the pages if that has not happened yet. After a failure, the next request tries again."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(self._load_pages())
            self._loading.add_done_callback(_log_failure)
        return self._loading


def sign_in_url(path: str, query: str) -> str:
    """The URL of the sign-in page that leads back to a page, relative to the portal."""
    page = _local_page(f"{quote(path)}?{query}" if query else quote(path))
    return f"{SIGN_IN_PATH}?{urlencode({_NEXT: page})}" if page else SIGN_IN_PATH


def _local_page(page: str) -> str:
    """A page of this portal, relative to it; empty for anything else, which may lead to another site."""
    is_page = page.startswith(_PAGES_PREFIX) and page.isascii() and page.isprintable() and len(page) <= _MAX_NEXT
    return page if is_page and "\\" not in page else ""


async def _load_pages() -> Pages:
    module = await asyncio.to_thread(importlib.import_module, _PAGES_MODULE)
    pages: Pages = await module.start()
    # The modules stay as long as the node: full collections need not visit their objects (`node.runtime.collector`).
    gc.freeze()
    return pages


def _log_failure(loading: "asyncio.Task[Pages]") -> None:
    """Log a failed load; the request that started it may not be waiting for the result."""
    if not loading.cancelled() and loading.exception() is not None:
        log.error("failed to load the portal's pages", exc_info=loading.exception())


# --- requests and responses ------------------------------------------------------------------------------------------


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _is_same_origin(scope: Scope) -> bool:
    """Whether the Origin header of a request matches its Host header and scheme."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin is None or host is None:
        return False
    scheme, _, authority = origin.partition("://")
    is_secure = scope["scheme"] in ("https", "wss")
    return authority.lower() == host.lower() and scheme == ("https" if is_secure else "http")


def _cookie_name(scope: Scope) -> str:
    """A cookie name that contains the port: browsers share cookies between all ports of a host."""
    server = scope.get("server") or ("", 0)
    return f"hubmere-portal-{server[1]}"


def _provider_cookie_name(scope: Scope) -> str:
    return f"{_cookie_name(scope)}-provider"


def _provider_cookie(scope: Scope, secret: str, seconds: int) -> bytes:
    """The cookie by which the browser is known that began a sign-in; `seconds` of 0 deletes it."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    path = f"{scope['root_path']}{SIGN_IN_PATH}"
    text = f"{_provider_cookie_name(scope)}={secret}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    return text.encode()


def _query(scope: Scope) -> Mapping[str, str]:
    return {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}


def _origin(scope: Scope) -> str:
    """The origin under which the browser sees the portal."""
    return f"{scope['scheme']}://{_header(scope, b'host') or ''}"


def _cookies(scope: Scope) -> Mapping[str, str]:
    """The cookies of a request. Malformed cookies of other programs on the host do not hide ours."""
    pairs = (part.partition("=") for part in (_header(scope, b"cookie") or "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _respond(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    all_headers = [*_HTML_HEADERS, *_SECURITY_HEADERS, length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, target: str, headers: Headers = ()) -> None:
    await _respond(send, 303, b"", [(b"location", target.encode()), *headers])
