"""The portal's door: who gets in, and when its pages are loaded.

An ASGI application that the node mounts under `/portal`. Strangers get the sign-in page and nothing else; a session's
cookie opens the rest. Every WebSocket and every POST must come from a page of this very origin, and no request that
names another origin is answered, so no other site can act in a person's name (RFC 6454; SameSite alone does not tell
ports of one host apart). Pages bring a user-interface
library along that takes most of a second and some 45 MB: it is imported beside the loop when the portal is first used.
"""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qs

from hubmere.broker.broker import Broker
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.portal import sign_in
from hubmere.portal.desk import Desk
from hubmere.portal.sampler import Sampler
from hubmere.portal.sessions import Session, Sessions

log = logging.getLogger("hubmere.portal")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

# Where pages find the desk of whoever asked for them.
DESK = "hubmere.desk"
SIGN_IN_PATH = "/sign-in"
_PAGES_MODULE = "hubmere.portal.running"
_TOKEN = "token"  # noqa: S105  the name of a parameter
_FORBIDDEN = 403
# RFC 6455, 7.4.1: the peer broke a policy.
_WS_POLICY = 1008
_ASSETS = "/_nicegui/"
# Assets carry their version in the path, so they never change under one address.
_FOR_GOOD = b"private, max-age=31536000, immutable"

# The page library builds its templates at run time, hence the two `unsafe` words; everything comes from this origin.
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
    """The pages once they are loaded."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""

    async def stop(self) -> None:
        """Let go of every open page."""


Load = Callable[[], Coroutine[Any, Any, Pages]]


class Portal:
    """The portal of a node.

    Thread rule: the node's loop only.
    """

    def __init__(
        self, broker: Broker, clock: Clock, addresses: Addresses, *, admin_token: str, load: Load | None = None
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._addresses = addresses
        self._sessions = Sessions(broker, admin_token)
        self._sampler = Sampler(broker, clock)
        self._load_pages = load or _load_pages
        self._loading: asyncio.Task[Pages] | None = None

    @property
    def first_link(self) -> str:
        """Path and query of the link that signs the administrator in, once."""
        return f"/portal/?{_TOKEN}={self._sessions.link_code}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket."""
        session = self._session_of(scope)
        if scope["type"] == "websocket":
            await self._serve_websocket(session, scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if not _is_same_origin(scope) and (scope["method"] == "POST" or _header(scope, b"origin") is not None):
            await _answer(send, _FORBIDDEN, b"This can only be asked for by a page of the portal.")
        elif path == SIGN_IN_PATH:
            await self._serve_sign_in(scope, receive, send)
        elif path == "/" and scope["query_string"].startswith(f"{_TOKEN}=".encode()):
            await self._redeem(scope, send)
        elif session is None:
            await _redirect(send, f"{scope['root_path']}{SIGN_IN_PATH}")
        else:
            await self._serve_page(session, scope, receive, send)

    async def stop(self) -> None:
        """The node is stopping: open pages are let go."""
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
        action = f"{scope['root_path']}{SIGN_IN_PATH}"
        # Whoever sees this page will want the others in a moment.
        self._load()
        if scope["method"] != "POST":
            await _answer(send, 200, sign_in.page(action))
            return
        credential = await sign_in.posted_credential(receive)
        if credential is None:
            await _answer(send, 413, b"This is too large for a connection string.")
            return
        try:
            cookie = self._sessions.sign_in(credential, _peer(scope), *self._times())
        except Refusal as refusal:
            log.info("refused a sign-in: %s", refusal.text(), extra={"peer": _peer(scope)})
            await _answer(send, 401, sign_in.page(action, refusal.text()))
            return
        await self._welcome(scope, send, cookie)

    async def _redeem(self, scope: Scope, send: Send) -> None:
        """Sign in by the one-time link; the code leaves the address bar at once."""
        self._load()
        code = parse_qs(scope["query_string"].decode("latin-1")).get(_TOKEN, [""])[0]
        try:
            cookie = self._sessions.redeem(code, *self._times())
        except Refusal:
            log.info("refused a link that is not good, or not any more", extra={"peer": _peer(scope)})
            page = sign_in.page(
                f"{scope['root_path']}{SIGN_IN_PATH}", "This link was used already, or is not complete."
            )
            await _answer(send, 401, page)
            return
        await self._welcome(scope, send, cookie)

    async def _welcome(self, scope: Scope, send: Send, cookie: str) -> None:
        log.info("somebody signed in", extra={"peer": _peer(scope)})
        secure = "; Secure" if scope["scheme"] == "https" else ""
        path = scope["root_path"]
        text = f"{_cookie_name(scope)}={cookie}; Path={path}; HttpOnly; SameSite=Lax{secure}"
        await _redirect(send, f"{path}/", [(b"set-cookie", text.encode())])

    def _session_of(self, scope: Scope) -> Session | None:
        """The open session that a request's cookie names, its credential proven again if anything has changed."""
        cookie = _cookies(scope).get(_cookie_name(scope))
        session = None if cookie is None else self._sessions.find(cookie, self._clock.monotonic())
        if session is None:
            return None
        try:
            session.principal(self._broker.catalog.view.version, *self._times())
        except Refusal:
            return None
        return session

    def _times(self) -> tuple[float, float]:
        return self._clock.monotonic(), self._clock.now_ms() / 1000

    # --- pages ---

    async def _serve_websocket(self, session: Session | None, scope: Scope, receive: Receive, send: Send) -> None:
        if session is None or not _is_same_origin(scope):
            await send({"type": "websocket.close", "code": _WS_POLICY})
            return
        pages = await self._load()
        await pages.serve(scope, receive, send)

    async def _serve_page(self, session: Session, scope: Scope, receive: Receive, send: Send) -> None:
        pages = await self._load()
        scope[DESK] = Desk(
            broker=self._broker,
            clock=self._clock,
            addresses=self._addresses,
            sampler=self._sampler,
            session=session,
            peer=_peer(scope),
        )
        is_asset = scope["path"].startswith(f"{scope['root_path']}{_ASSETS}")

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name != b"cache-control"]
                caching = _FOR_GOOD if is_asset and message["status"] == 200 else b"no-store"
                message["headers"] = [*kept, (b"cache-control", caching), *_SECURITY_HEADERS]
            await send(message)

        await pages.serve(scope, receive, send_with_headers)

    def _load(self) -> asyncio.Task[Pages]:
        """Load the pages, unless that was begun; a failure is tried again by the next who asks."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(self._load_pages())
            self._loading.add_done_callback(_note_failure)
        return self._loading


async def _load_pages() -> Pages:
    module = await asyncio.to_thread(importlib.import_module, _PAGES_MODULE)
    pages: Pages = await module.start()
    return pages


def _note_failure(loading: "asyncio.Task[Pages]") -> None:
    """Somebody must look at the result of a load that nobody waited for."""
    if not loading.cancelled() and loading.exception() is not None:
        log.error("the portal's pages could not be loaded", exc_info=loading.exception())


# --- requests and answers --------------------------------------------------------------------------------------------


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _is_same_origin(scope: Scope) -> bool:
    """Whether a request comes from a page of the address that it is sent to."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if origin is None or host is None:
        return False
    scheme, _, authority = origin.partition("://")
    is_secure = scope["scheme"] in ("https", "wss")
    return authority.lower() == host.lower() and scheme == ("https" if is_secure else "http")


def _cookie_name(scope: Scope) -> str:
    """One name per port: browsers share cookies among the ports of a host, and several nodes may run on one."""
    server = scope.get("server") or ("", 0)
    return f"hubmere-portal-{server[1]}"


def _cookies(scope: Scope) -> Mapping[str, str]:
    """The cookies of a request. Other programs on the host set some too, so one that is odd must not hide ours."""
    pairs = (part.partition("=") for part in (_header(scope, b"cookie") or "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


async def _answer(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    everything = [*_HTML_HEADERS, *_SECURITY_HEADERS, length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": everything})
    await send({"type": "http.response.body", "body": body})


async def _redirect(send: Send, target: str, headers: Headers = ()) -> None:
    await _answer(send, 303, b"", [(b"location", target.encode()), *headers])
