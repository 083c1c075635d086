"""One management request: names from the path, parameters, headers, body and the authenticated client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode

from hubmere.broker import Actor, Caller
from hubmere.endpoints.http.authorization import sign_in, sign_in_admin
from hubmere.endpoints.http.context import (
    CALLER,
    HttpContext,
    Receive,
    Scope,
    client_address,
    content_length,
    read_body,
)
from hubmere.endpoints.http.errors import MalformedRequest
from hubmere.model.errors import InvalidArgument
from hubmere.model.security.roles import Control

if TYPE_CHECKING:
    from starlette.responses import Response

# Query parameters of one request; the APIs have at most three.
_MAX_PARAMETERS = 32
# Far more than the description of an entity or a rule set with 256 entries.
_MAX_BODY_BYTES = 1024 * 1024
# Entities on one page of a list.
PAGE_SIZE = 100

_READING_METHODS = ("GET", "HEAD")

T = TypeVar("T")


class Request:
    """One management request."""

    def __init__(self, context: HttpContext, scope: Scope, receive: Receive, names: Mapping[str, str]) -> None:
        self.context = context
        self.scope = scope
        self.names = names
        self._receive = receive
        self._body: bytes | None = None

    @cached_property
    def headers(self) -> Mapping[bytes, bytes]:
        """Headers by lower-case name."""
        return dict(self.scope["headers"])

    def header(self, name: str) -> str | None:
        """One header as text."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def host(self) -> str | None:
        """The Host header."""
        return self.header("host")

    @property
    def authorization(self) -> str | None:
        """The Authorization header."""
        return self.header("authorization")

    @property
    def peer(self) -> str:
        """The client's network address."""
        return client_address(self.scope)

    def sign_in(self) -> Caller:
        """The client, in the namespace that its Host header means."""
        return self._record(self.context.sign_in(self.host, self.peer, self.authorization))

    def sign_in_to_hub(self) -> tuple[Caller, str]:
        """The client, in the namespace of the hub that the path names, and the name of the hub."""
        caller, hub = self.context.sign_in_to_hub(self.host, self.names["hub"], self.peer, self.authorization)
        return self._record(caller), hub

    def sign_in_manager(self, namespace: str, control: Control | None = None) -> Caller:
        """The client as a manager of a namespace, or of the hub in the path; see `Broker.sign_in_manager`.

        `control` is what a role must allow, by default what the method of the request needs.
        """
        broker, now_s, hub = self.context.broker, self.context.now_s, self.names.get("hub")
        needed = control or (Control.READ if self.scope["method"] in _READING_METHODS else Control.WRITE)
        return self._record(
            sign_in(
                self.authorization,
                lambda credential: broker.sign_in_manager(namespace, credential, now_s, hub=hub, control=needed),
            )
        )

    def sign_in_admin(self) -> Caller:
        """The administrator, and nobody else."""
        return self._record(sign_in_admin(self.authorization, self.context.broker.sign_in_admin))

    def _record(self, caller: Caller) -> Caller:
        """Keep the authenticated client for monitoring and for the audit log."""
        self.scope[CALLER] = caller.principal
        return caller

    def actor(self, caller: Caller) -> Actor:
        """The client as the author of a change."""
        return self.context.actor(caller.principal, self.scope)

    @cached_property
    def query(self) -> Mapping[str, str]:
        """Query parameters by lower-case name, since ARM and Atom clients write them in any case."""
        try:
            pairs = parse_qsl(
                self.scope["query_string"].decode(), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS
            )
        except ValueError:
            raise MalformedRequest("the query cannot be parsed") from None
        return {name.lower(): value for name, value in pairs}

    @property
    def api_version(self) -> str:
        """The requested API version; any is accepted."""
        return self.query.get("api-version", "2014-01")

    @property
    def base_url(self) -> str:
        """Scheme and host for links to this node."""
        return f"{self.scope['scheme']}://{self.host or self.context.addresses.host}"

    @property
    def is_update(self) -> bool:
        """Whether the client wants to replace an existing entity (`If-Match: *`)."""
        return bool((self.header("if-match") or "").strip())

    async def body(self, limit_bytes: int = _MAX_BODY_BYTES) -> bytes:
        """The request's body; it is kept for a handler that runs again."""
        if self._body is None:
            limit = min(limit_bytes, self.context.body_limit_bytes)
            self._body = await read_body(self._receive, content_length(self.headers), limit, self.context.memory)
        return self._body

    def number(self, name: str, default: int, highest: int) -> int:
        """A query parameter that is a number."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) > highest:
            raise InvalidArgument(name, text, f"a number up to {highest}")
        return int(text)

    def page(self, items: Sequence[T]) -> tuple[Sequence[T], str | None]:
        """One page of a list by `$skip` and `$top`, and the URL of the next page if there is one."""
        skip = self.number("$skip", 0, 10**9 - 1)
        top = self.number("$top", len(items), 10**9 - 1)
        page = items[skip : skip + min(top, PAGE_SIZE)]
        rest = min(top, max(len(items) - skip, 0)) - len(page)
        if rest <= 0:
            return page, None
        query = dict(self.query) | {"$skip": str(skip + len(page))}
        if "$top" in query:
            query["$top"] = str(rest)
        return page, f"{self.base_url}{self.scope['raw_path'].decode('ascii')}?{urlencode(query, safe='$')}"


Handler = Callable[[Request], Awaitable["Response"]]
# Handlers by path pattern and method.
Routes = Mapping[str, Mapping[str, Handler]]
