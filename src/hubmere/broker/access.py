"""Who may: keys and tokens become a Principal, and a Principal is asked before anything is done.

A SAS token is `SharedAccessSignature sr=..&sig=..&se=..&skn=..`: the signature is HMAC-SHA256, keyed with the text of
the key, over `sr` exactly as it stands in the token, a line feed, and `se`. Nothing is re-encoded before it is checked;
`sr` is decoded only to see which resources it covers. Refusals come in the order of the reference (service 2.4):
missing, malformed, signature, audience, expiry, then the right. Nothing here reads a clock: `now_s` is an argument.
"""

import base64
import hmac
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote_plus, unquote, unquote_plus

from hubmere.broker.governing import group_of
from hubmere.model.connection_string import EMULATOR_KEY, ConnectionString
from hubmere.model.entity import AccessRule, Hub, Namespace, Rights
from hubmere.model.errors import (
    ApplicationGroupDisabled,
    ClaimMissing,
    ExpiredToken,
    InvalidArgument,
    InvalidAudience,
    InvalidSignature,
    LocalAuthDisabled,
    MalformedToken,
    MissingToken,
    PublisherRevoked,
)
from hubmere.model.names import HUB_RULE, ROOT_RULE, fold
from hubmere.store.view import View

SCHEME = "SharedAccessSignature"

# The longest token in use carries a publisher path of a few hundred characters; a bound for unauthenticated peers.
MAX_TOKEN_CHARACTERS = 8192
# Seconds since 1970 in 18 digits reach far beyond any calendar and still fit a 64-bit integer.
_MAX_EXPIRY_DIGITS = 18

# Whether a listener answers to a host name for a namespace: (namespace, host) -> bool.
AnswersTo = Callable[[Namespace, str], bool]


@dataclass(frozen=True, slots=True)
class Resource:
    """What is asked for: a path below a namespace, folded, without slashes at its ends; `hub` is the hub it lies in."""

    namespace: str
    hub: str = ""
    path: str = ""

    @classmethod
    def of_namespace(cls, namespace: str) -> "Resource":
        """The namespace itself."""
        return cls(fold(namespace))

    @classmethod
    def of_hub(cls, namespace: str, hub: str, *below: str) -> "Resource":
        """A hub, or what lies below it: `consumergroups`, a group, `partitions`, an id."""
        return cls(fold(namespace), fold(hub), fold("/".join((hub, *below))))

    @classmethod
    def of_publisher(cls, namespace: str, hub: str, publisher: str) -> "Resource":
        """A publisher's path on a hub."""
        return cls.of_hub(namespace, hub, "publishers", publisher)

    def __str__(self) -> str:
        """How refusals name it."""
        return f"{self.namespace}/{self.path}" if self.path else self.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Someone known: what was proven, for which resources and until when.

    `hub` is the hub whose rule was used (empty for a rule of the namespace), `scope` the path the credential covers.
    """

    namespace: str
    rule: str
    rights: Rights
    hub: str = ""
    scope: str = ""
    expires_at_s: int | None = None
    is_admin: bool = False

    @classmethod
    def admin(cls) -> "Principal":
        """The holder of the node's admin token: may do everything."""
        return cls(namespace="", rule="(admin)", rights=Rights.ALL, is_admin=True)

    def covers(self, resource: Resource) -> bool:
        """Whether the credential reaches the resource: equal to its scope or below it at a `/`."""
        if self.is_admin:
            return True
        return (
            self.namespace == resource.namespace
            and (not self.hub or self.hub == resource.hub)
            and (not self.scope or self.scope == resource.path or resource.path.startswith(self.scope + "/"))
        )

    def may(self, right: Rights, resource: Resource) -> bool:
        """Whether one of the given rights is held on the resource."""
        return self.rights.allows(right) and self.covers(resource)

    def require(self, right: Rights, resource: Resource) -> None:
        """Refuse unless one of the given rights is held on the resource."""
        if not self.covers(resource):
            audience = f"{self.namespace}/{self.scope or self.hub}".rstrip("/")
            raise InvalidAudience(audience, str(resource))
        if not self.rights.allows(right):
            raise ClaimMissing(" or ".join(right.names), str(resource))

    def is_expired(self, now_s: float) -> bool:
        """Whether the credential's time is over; keys given as such have no end."""
        return self.expires_at_s is not None and now_s >= self.expires_at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A SAS token as it was written: `resource` and `expiry` are the signed texts, untouched."""

    resource: str
    expiry: str
    rule: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> "Token":
        """Take a token apart; fields in any order, unknown ones ignored."""
        if len(text) > MAX_TOKEN_CHARACTERS:
            raise MalformedToken(f"A token has at most {MAX_TOKEN_CHARACTERS} characters.")
        scheme, _, rest = text.strip().partition(" ")
        if fold(scheme) != fold(SCHEME):
            raise MalformedToken(f"A token begins with '{SCHEME} '.")
        fields = _fields(rest.strip())
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
        if missing:
            raise MalformedToken(f"The token lacks '{missing[0]}'.")
        expiry = fields["se"]
        if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= _MAX_EXPIRY_DIGITS):
            raise MalformedToken("The token's 'se' is not a number of seconds since 1970.")
        return cls(
            resource=fields["sr"], expiry=expiry, rule=unquote_plus(fields["skn"]), signature=unquote(fields["sig"])
        )

    @property
    def expires_at_s(self) -> int:
        """When its time is over."""
        return int(self.expiry)

    def is_signed_with(self, key: str) -> bool:
        """Whether the signature is the one that this key gives."""
        wanted = _signature(self.resource, self.expiry, key)
        return hmac.compare_digest(wanted.encode(), self.signature.encode(errors="replace"))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            raise MalformedToken("The token has a field twice.")
        fields[name] = value
    return fields


def _signature(resource: str, expiry: str, key: str) -> str:
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(errors="replace"), sha256).digest()
    return base64.b64encode(digest).decode()


def make_token(uri: str, rule: str, key: str, *, expires_at_s: int) -> str:
    """A token for a resource and everything below it, as a client would make it."""
    resource = quote_plus(uri)
    signature = quote_plus(_signature(resource, str(expires_at_s), key))
    return f"{SCHEME} sr={resource}&sig={signature}&se={expires_at_s}&skn={quote_plus(rule)}"


def split_audience(resource: str) -> tuple[str, str]:
    """Host and path of an encoded resource URI, folded: without scheme, port and superfluous slashes.

    The URI inside may be encoded itself (a publisher named `dev 01`), so its segments are decoded once more.
    """
    decoded = fold(unquote_plus(resource))
    _, found, rest = decoded.partition("://")
    authority, _, path = (rest if found else decoded).lstrip("/").partition("/")
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    return host, "/".join(fold(unquote(segment)) for segment in path.split("/") if segment)


class Access:
    """Turns credentials into Principals, by the rules in a catalog view.

    Thread rule: used on the owner's thread. `view` is asked anew each time, so a regenerated key counts at once.
    `takes_emulator_key` is for nodes started with the official emulator's configuration, and no others.
    """

    __slots__ = ("_answers_to", "_skew_s", "_takes_emulator_key", "_view")

    def __init__(
        self,
        view: Callable[[], View],
        answers_to: AnswersTo,
        *,
        skew_s: int = 0,
        takes_emulator_key: bool = False,
    ) -> None:
        self._view = view
        self._answers_to = answers_to
        self._skew_s = skew_s
        self._takes_emulator_key = takes_emulator_key

    def by_token(self, namespace: Namespace, text: str | None, now_s: float) -> Principal:
        """The holder of a SAS token."""
        if not text:
            raise MissingToken
        _check_local_auth(namespace)
        token = Token.parse(text)
        host, path = split_audience(token.resource)
        rule = self._rule_signing(token, self._scopes(namespace, path))
        if not self._answers_to(namespace, host):
            raise InvalidAudience(host, namespace.name)
        if now_s >= token.expires_at_s + self._skew_s:
            raise ExpiredToken(token.expires_at_s)
        return self._principal(rule, scope=path, expires_at_s=token.expires_at_s + self._skew_s)

    def by_key(self, namespace: Namespace, rule_name: str, key: str) -> Principal:
        """The holder of a rule's name and key (AMQP: SASL PLAIN); the rule may be on any hub of the namespace."""
        _check_local_auth(namespace)
        return self._principal(self._rule_with_key(self._view().rules_named(namespace, rule_name), key))

    def by_connection_string(self, namespace: Namespace, text: str, now_s: float) -> Principal:
        """The holder of a whole connection string (Kafka: user `$ConnectionString`)."""
        _check_local_auth(namespace)
        try:
            parts = ConnectionString.parse(text)
        except InvalidArgument as refusal:
            raise MalformedToken(refusal.text()) from None
        if parts.signature is not None:
            return self.by_token(namespace, parts.signature, now_s)
        if parts.key_name is None or parts.key is None:
            raise MissingToken
        path = fold(parts.entity_path or "").strip("/")
        named = self._rules_in(self._scopes(namespace, path), parts.key_name)
        rule = self._rule_with_key(named, parts.key)
        if not self._answers_to(namespace, parts.host):
            raise InvalidAudience(parts.host, namespace.name)
        return self._principal(rule)

    def check_publisher(self, hub: Hub, publisher: str) -> None:
        """Refuse a publisher that was taken off the hub, whatever its token says."""
        if self._view().find_revoked_publisher(hub, publisher) is not None:
            raise PublisherRevoked(hub.name, publisher)

    def _scopes(self, namespace: Namespace, path: str) -> Iterator[Namespace | Hub]:
        """Where a rule for a path may lie: on the hub that the path names, then on the namespace."""
        hub = self._hub_of(namespace, path)
        if hub is not None:
            yield hub
        yield namespace

    def _hub_of(self, namespace: Namespace, path: str) -> Hub | None:
        # A hub from the emulator's configuration may have '/' in its name, so the longest name that fits is taken;
        # one character more than a name can have is never a name, and bounds the search.
        name = path[: HUB_RULE.longest + 1]
        while name:
            hub = self._view().find_hub(namespace.name, name)
            if hub is not None:
                return hub
            name = name.rpartition("/")[0]
        return None

    def _rules_in(self, scopes: Iterable[Namespace | Hub], name: str) -> list[AccessRule]:
        view = self._view()
        return [rule for scope in scopes if (rule := view.find_rule(scope, name)) is not None]

    def _rule_signing(self, token: Token, scopes: Iterable[Namespace | Hub]) -> AccessRule:
        for rule in self._rules_in(scopes, token.rule):
            if any(token.is_signed_with(key) for key in self._keys(rule)):
                return rule
        raise InvalidSignature

    def _rule_with_key(self, rules: Iterable[AccessRule], key: str) -> AccessRule:
        given = key.encode(errors="replace")
        for rule in rules:
            if any(hmac.compare_digest(kept.encode(), given) for kept in self._keys(rule)):
                return rule
        raise InvalidSignature

    def _keys(self, rule: AccessRule) -> Iterator[str]:
        yield rule.primary_key
        yield rule.secondary_key
        if self._takes_emulator_key and rule.hub is None and rule.name == ROOT_RULE:
            yield EMULATOR_KEY

    def _principal(self, rule: AccessRule, *, scope: str = "", expires_at_s: int | None = None) -> Principal:
        groups = self._view().application_groups(rule.namespace)
        group = group_of(groups, rule.name, is_of_hub=rule.hub is not None)
        if group is not None and not group.is_enabled:
            raise ApplicationGroupDisabled(group.name)
        return Principal(
            namespace=fold(rule.namespace),
            rule=rule.name,
            rights=rule.rights,
            hub=fold(rule.hub or ""),
            scope=scope,
            expires_at_s=expires_at_s,
        )


def _check_local_auth(namespace: Namespace) -> None:
    if namespace.disable_local_auth:
        raise LocalAuthDisabled


def host_names(names: Iterable[str], view: Callable[[], View]) -> AnswersTo:
    """A listener that answers to some names for every namespace, and to `{namespace}.` or `{alias}.` anything."""
    known = frozenset(map(fold, names))

    def answers_to(namespace: Namespace, host: str) -> bool:
        folded = fold(host)
        if folded in known:
            return True
        label = folded.partition(".")[0]
        alias = view().find_alias(label)
        return label == fold(namespace.name) or (alias is not None and fold(alias.namespace) == fold(namespace.name))

    return answers_to
