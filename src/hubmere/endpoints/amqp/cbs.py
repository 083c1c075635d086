"""Tokens put on the claims node, and what the peer of a connection may do because of them.

A claim is kept under the audience that it was put for; it covers that path and everything below it, until it expires or
is put again (reference: AMQP 2). Who is known by a token is the broker's decision; this module only reads the request
and remembers the answer.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from hubmere.broker.access import Access, Principal, Resource
from hubmere.broker.live import LiveNamespace
from hubmere.broker.management.connections import display_text
from hubmere.broker.revocation import Judge
from hubmere.endpoints.amqp.errors import row_of, tracking_part
from hubmere.endpoints.amqp.replies import reply_to, text_property
from hubmere.model.clock import Clock
from hubmere.model.entity import Rights
from hubmere.model.errors import (
    ClaimMissing,
    HubNotFound,
    InvalidAudience,
    LimitReached,
    MalformedToken,
    NotSupported,
    Refusal,
    UnsupportedToken,
)
from hubmere.model.sas import Token, split_audience
from hubmere.wire.amqp.codec.message import AmqpValue, Message
from hubmere.wire.amqp.codec.types import Int

log = logging.getLogger("hubmere.amqp")

# One token per hub, group and partition that a connection uses is what the most careful client puts.
MAX_CLAIMS = 1024

# Refused tokens of one link that are logged; a client that repeats itself must not fill the log.
MAX_LOGGED_REFUSALS = 16

_SAS_TYPE = "servicebus.windows.net:sastoken"
_JWT_TYPE = "jwt"
_ACCEPTED = 202
# A token that cannot be read is a bad request on this node (reference: AMQP 2.2), unauthorised elsewhere.
_STATUS: Mapping[type[Refusal], int] = {MalformedToken: 400, UnsupportedToken: 400}
# The help page that the service names in its answer for an unknown hub.
_MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."


class Claims:
    """What the peer of one connection has proven."""

    __slots__ = ("_claims",)

    def __init__(self) -> None:
        # Mostly one or two: a tuple of them is a third of a dictionary.
        self._claims: tuple[Principal, ...] = ()

    def put(self, principal: Principal) -> None:
        """Remember a claim under its scope; a newer one takes the place of an older one."""
        others = tuple(claim for claim in self._claims if claim.scope != principal.scope)
        if len(others) >= MAX_CLAIMS:
            raise LimitReached("tokens on a connection", MAX_CLAIMS)
        self._claims = (*others, principal)

    def keep_open(self, right: Rights, resource: Resource, now_s: float) -> bool:
        """Whether what is open stays open: a claim that is not expired gives one of the rights on the resource."""
        return any(claim.may(right, resource) and not claim.is_expired(now_s) for claim in self._claims)

    def find(self, right: Rights, resource: Resource, now_s: float) -> Principal | None:
        """The claim that allows something new; one whose key was rotated allows nothing new."""
        for claim in self._claims:
            if claim.may(right, resource) and not claim.is_rotated and not claim.is_expired(now_s):
                return claim
        return None

    def require(self, right: Rights, resource: Resource, now_s: float) -> Principal:
        """As `find`; refuses unless a claim allows it."""
        claim = self.find(right, resource, now_s)
        if claim is None:
            raise ClaimMissing(" or ".join(right.names), f"sb://{resource}")
        return claim

    def review(self, judge: Judge, now_s: float) -> Refusal | None:
        """Drop the claims that the rules in force do not allow; returns why the last of these was dropped."""
        kept: list[Principal] = []
        why: Refusal | None = None
        for claim in self._claims:
            try:
                kept.append(judge(claim, now_s))
            except Refusal as refusal:
                why = refusal
        self._claims = tuple(kept)
        return why

    @property
    def all(self) -> tuple[Principal, ...]:
        """Everything that was proven."""
        return self._claims

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules by which something was proven, each once."""
        return tuple(dict.fromkeys(claim.rule for claim in self._claims))

    def next_expiry(self, after_s: float) -> float | None:
        """When the next claim expires that has not yet."""
        moments = (claim.expires_at_s for claim in self._claims)
        return min((moment for moment in moments if moment is not None and moment > after_s), default=None)


class ClaimsNode:
    """Answers put-token requests of one connection; `peer` is its address, for the log."""

    __slots__ = ("_access", "_claims", "_clock", "_logged", "_namespace", "_on_put", "_peer")

    def __init__(
        self,
        access: Access,
        namespace: LiveNamespace,
        claims: Claims,
        clock: Clock,
        on_put: Callable[[], None],
        *,
        peer: str,
    ) -> None:
        self._access = access
        self._namespace = namespace
        self._claims = claims
        self._clock = clock
        self._on_put = on_put
        self._peer = peer
        self._logged = 0

    def answer(self, request: Message) -> Message:
        """Take a token; the status says whether it was good."""
        try:
            self._put_token(request)
        except Refusal as refusal:
            self._log(request, refusal)
            status = _STATUS.get(type(refusal), row_of(refusal).status)
            return _reply(request, status, self._description(refusal))
        return _reply(request, _ACCEPTED, "Accepted")

    def _log(self, request: Message, refusal: Refusal) -> None:
        """Leave a line about a refused token: whose, for what and why; never the token itself."""
        if self._logged >= MAX_LOGGED_REFUSALS:
            return
        self._logged += 1
        asked = request.application_properties or {}
        rule, audience = _rule_in(request), display_text(asked.get("name", ""))
        log.info("a token of rule '%s' for '%s' from %s is refused: %s", rule, audience, self._peer, refusal)

    def _description(self, refusal: Refusal) -> str:
        """The words of the service; two blanks stand before the tracking part of an unknown hub."""
        if not isinstance(refusal, HubNotFound):
            return refusal.text()
        tracker = refusal.resource.removeprefix("sb://").replace("/", ":", 1)
        return f"{refusal.text()} {_MORE}  {tracking_part(tracker, self._clock.now_ms())}"

    def _put_token(self, request: Message) -> None:
        operation = text_property(request, "operation")
        if operation != "put-token":
            raise NotSupported(f"The operation '{operation}' on '$cbs'")
        kind = text_property(request, "type")
        if kind == _JWT_TYPE:
            raise UnsupportedToken(kind)
        if kind != _SAS_TYPE:
            raise MalformedToken(f"The type of the token is not known; '{_SAS_TYPE}' is.")
        token = _token_in(request)
        if token is None:
            raise MalformedToken("The body of a put-token request is the token as a text.")
        principal = self._access.by_token(self._namespace.entity, token, self._clock.now_ms() / 1000)
        self._claims.put(self._scoped(principal, text_property(request, "name")))
        self._on_put()

    def _scoped(self, principal: Principal, audience: str) -> Principal:
        """The principal for the audience that was asked for, which may be less than its token covers."""
        host, path = split_audience(audience)
        hub = self._hub_in(path)
        resource = Resource(principal.namespace, hub or path.partition("/")[0], path, is_messages=True)
        if not principal.covers(resource):
            raise InvalidAudience(
                f"{principal.namespace}/{principal.scope or principal.hub}".rstrip("/"), str(resource)
            )
        if path and hub is None:
            raise HubNotFound(f"sb://{host or principal.namespace}/{path.partition('/')[0]}")
        # A token for the messages of the audience covers less than the audience, and still does.
        return principal if len(principal.scope) > len(path) else replace(principal, scope=path)

    def _hub_in(self, path: str) -> str | None:
        """The folded name of the hub in which a path lies; the longest that fits, for names with '/' in them."""
        segments = path.split("/")
        names = ("/".join(segments[:count]) for count in range(len(segments), 0, -1))
        return next((name for name in names if name in self._namespace.hubs), None)


def _token_in(request: Message) -> str | None:
    token = request.body.value if isinstance(request.body, AmqpValue) else None
    return token if isinstance(token, str) else None


def _rule_in(request: Message) -> str:
    """The rule that a token names, whether or not it was signed by it; empty when it cannot be read."""
    try:
        return display_text(Token.parse(_token_in(request) or "").rule)
    except MalformedToken:
        return ""


def _reply(request: Message, status: int, description: str) -> Message:
    # No `error-condition` here: the Azure SDK for Python loses code and text when there is one.
    properties = {"status-code": Int(status), "status-description": description}
    return reply_to(request, properties, AmqpValue(None))
