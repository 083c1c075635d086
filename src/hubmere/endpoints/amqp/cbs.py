"""The claims node `$cbs`: parses put-token requests and passes the tokens to the connection's `Caller`.

A claim is kept under the audience that it was put for. It covers that path and everything below it, until it expires or
is put again (reference: AMQP 2). The broker decides what a token proves.
"""

import logging
from collections.abc import Callable, Mapping

from hubmere.broker import BearerToken, Caller, Credential, KeysPending, SharedAccessSignature, display_text
from hubmere.endpoints.amqp.errors import row_of, tracking_part
from hubmere.endpoints.amqp.links.service_links import PendingAnswer, Reply, reply_to, text_property
from hubmere.model.clock import Clock
from hubmere.model.errors import HubNotFound, MalformedToken, NotSupported, Refusal, UnsupportedToken
from hubmere.model.security.sas import Token
from hubmere.wire.amqp.codec.message import AmqpValue, Message
from hubmere.wire.amqp.codec.types import Int

log = logging.getLogger("hubmere.amqp")


class UnknownTokenType(MalformedToken):
    """The request does not say what its body is, or the body is not a text."""


# Refused tokens of one link that are logged; a client that repeats itself must not fill the log.
MAX_LOGGED_REFUSALS = 16

# The types of tokens that a client can put (reference: AMQP 2.1).
_KINDS: Mapping[str, Callable[[str], Credential]] = {
    "servicebus.windows.net:sastoken": SharedAccessSignature,
    "jwt": BearerToken,
}
_ACCEPTED = 202
# A request that this node cannot serve, whatever the credential is (reference: AMQP 2.2).
_STATUS: Mapping[type[Refusal], int] = {UnknownTokenType: 400, UnsupportedToken: 400}
# The help page that the service names in its answer for an unknown hub.
_MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."


class ClaimsNode:
    """Answers the put-token requests of one connection."""

    __slots__ = ("_caller", "_clock", "_logged", "_on_authorized")

    def __init__(self, caller: Caller, clock: Clock, on_authorized: Callable[[], None]) -> None:
        self._caller = caller
        self._clock = clock
        self._on_authorized = on_authorized
        self._logged = 0

    def answer(self, request: Message, reply: Reply) -> PendingAnswer | None:
        """Answer a put-token request, if necessary when the keys of the token's issuer have been fetched."""
        try:
            self._put_token(request)
        except KeysPending as pending:
            return pending.wait(lambda: reply(self._result(request)))
        except Refusal as refusal:
            reply(self._refusal(request, refusal))
        else:
            reply(_reply(request, _ACCEPTED, "Accepted"))
        return None

    def _result(self, request: Message) -> Message:
        """The answer after the keys have been fetched, or could not be."""
        try:
            self._put_token(request)
        except Refusal as refusal:
            return self._refusal(request, refusal)
        return _reply(request, _ACCEPTED, "Accepted")

    def _refusal(self, request: Message, refusal: Refusal) -> Message:
        self._log(request, refusal)
        status = _STATUS.get(type(refusal), row_of(refusal).status)
        return _reply(request, status, self._description(refusal))

    def _log(self, request: Message, refusal: Refusal) -> None:
        """Log a refused token: its rule, its audience and the reason, but never the token itself."""
        if self._logged >= MAX_LOGGED_REFUSALS:
            return
        self._logged += 1
        properties = request.application_properties or {}
        rule, audience = _rule_in(request), display_text(properties.get("name", ""))
        peer = self._caller.address
        log.info(
            "a token of rule '%s' for '%s' from %s is refused: %s", rule, audience, peer, refusal, extra={"peer": peer}
        )

    def _description(self, refusal: Refusal) -> str:
        """The text of the service; it has two spaces before the tracking part of an unknown hub."""
        if not isinstance(refusal, HubNotFound):
            return refusal.text()
        tracker = refusal.resource.removeprefix("sb://").replace("/", ":", 1)
        return f"{refusal.text()} {_MORE}  {tracking_part(tracker, self._clock.now_ms())}"

    def _put_token(self, request: Message) -> None:
        operation = text_property(request, "operation")
        if operation != "put-token":
            raise NotSupported(f"The operation '{operation}' on '$cbs'")
        kind = _KINDS.get(text_property(request, "type"))
        if kind is None:
            raise UnknownTokenType(f"The type of the token is not one of {', '.join(_KINDS)}.")
        token = _token_in(request)
        if token is None:
            raise UnknownTokenType("The body of a put-token request is the token as a text.")
        now_s = self._clock.now_ms() / 1000
        self._caller.authenticate(kind(token), now_s, audience=text_property(request, "name"))
        self._on_authorized()


def _token_in(request: Message) -> str | None:
    token = request.body.value if isinstance(request.body, AmqpValue) else None
    return token if isinstance(token, str) else None


def _rule_in(request: Message) -> str:
    """The rule that a token names, verified or not; empty if the token is malformed."""
    try:
        return display_text(Token.parse(_token_in(request) or "").rule)
    except MalformedToken:
        return ""


def _reply(request: Message, status: int, description: str) -> Message:
    # No `error-condition` here: the Azure SDK for Python loses code and text when there is one.
    properties = {"status-code": Int(status), "status-description": description}
    return reply_to(request, properties, AmqpValue(None))
