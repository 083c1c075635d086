"""Who may: keys and tokens become a Principal, and a Principal is asked before anything is done.

A SAS token is `SharedAccessSignature sr=..&sig=..&se=..&skn=..`: the signature is HMAC-SHA256, keyed with the text of
the key, over `sr` exactly as it stands in the token, a line feed, and `se`. Nothing is re-encoded before it is checked;
`sr` is decoded only to see which resources it covers. Refusals come in the order of the reference (service 2.4):
missing, malformed, signature, audience, expiry, then the right. Nothing here reads a clock: `now_s` is an argument.
"""

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from urllib.parse import unquote, unquote_plus

from hubmere.broker.credentials import (
    AdminToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.quotas.application_groups import group_of
from hubmere.model.connection_string import EMULATOR_KEY, ConnectionString
from hubmere.model.entity import AccessRule, Hub, Namespace, Rights
from hubmere.model.errors import (
    ApplicationGroupDisabled,
    ClaimMissing,
    CredentialRevoked,
    ExpiredToken,
    InvalidArgument,
    InvalidAudience,
    InvalidSignature,
    LocalAuthDisabled,
    MalformedToken,
    MissingToken,
    NamespaceNotFound,
    PublisherRevoked,
)
from hubmere.model.names import HUB_RULE, ROOT_RULE, fold
from hubmere.model.sas import SCHEME, signature_of
from hubmere.store.catalog.view import View

# The longest token in use carries a publisher path of a few hundred characters; a bound for unauthenticated peers.
MAX_TOKEN_CHARACTERS = 8192
# How long open links outlive the rotation of their key, unless their token expires before that. The service lets them
# live until their token expires (reference: service 1); SASL PLAIN has no expiry, so a bound of our own is needed.
ROTATED_KEY_GRACE_S = 3600
_CAPTURE_KEY_BYTES = 32
# Verified tokens that are kept: one per device that is sending now; each entry is under 1 KB.
_MAX_KNOWN_TOKENS = 4096
# Words of paths: below a hub come its publishers, and below everything that takes events their messages.
_PUBLISHERS = "publishers"
_PUBLISHER_SEGMENT = "/publisher/"
_MESSAGES = "messages"
# Seconds since 1970 in 18 digits reach far beyond any calendar and still fit a 64-bit integer.
_MAX_EXPIRY_DIGITS = 18

# Whether a listener answers to a host name for a namespace: (namespace, host) -> bool.
AnswersTo = Callable[[Namespace, str], bool]


@dataclass(frozen=True, slots=True)
class Resource:
    """What is asked for: a path below a namespace, folded, without slashes at its ends; `hub` is the hub it lies in.

    `is_messages` says that events of the path are meant: then a credential for its `/messages` will do, which is where
    devices post to and what most of them sign.
    """

    namespace: str
    hub: str = ""
    path: str = ""
    is_messages: bool = False

    @classmethod
    def of_namespace(cls, namespace: str) -> "Resource":
        """The namespace itself."""
        return cls(fold(namespace))

    @classmethod
    def of_hub(cls, namespace: str, hub: str, *below: str, is_messages: bool = False) -> "Resource":
        """A hub, or what lies below it: `consumergroups`, a group, `partitions`, an id."""
        return cls(fold(namespace), fold(hub), fold("/".join((hub, *below))), is_messages)

    @classmethod
    def of_publisher(cls, namespace: str, hub: str, publisher: str) -> "Resource":
        """A publisher's path on a hub, to which it sends."""
        return cls.of_hub(namespace, hub, _PUBLISHERS, publisher, is_messages=True)

    def __str__(self) -> str:
        """How refusals name it."""
        return f"{self.namespace}/{self.path}" if self.path else self.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Someone known: what was proven, for which resources and until when.

    `hub` is the hub whose rule was used (empty for a rule of the namespace), `scope` the path the credential covers.
    `captures_hub` is the uid of the hub whose capture job this is, if it is one. `key_id` is a digest of the key that
    was used. `is_rotated` says that this key is not in force any more: what is open stays open until the principal
    expires, nothing new is opened, and nothing is managed.
    """

    namespace: str
    rule: str
    rights: Rights
    hub: str = ""
    scope: str = ""
    expires_at_s: int | None = None
    is_admin: bool = False
    hub_uid: str = field(default="", compare=False, repr=False)
    key_id: str = field(default="", compare=False, repr=False)
    is_rotated: bool = field(default=False, compare=False)
    captures_hub: str = field(default="", compare=False)

    @classmethod
    def admin(cls) -> "Principal":
        """The holder of the node's admin token: may do everything."""
        return cls(namespace="", rule="(admin)", rights=Rights.ALL, is_admin=True)

    def covers(self, resource: Resource) -> bool:
        """Whether the credential reaches the resource: equal to its scope or below it at a `/`."""
        if self.is_admin:
            return True
        if self.namespace != resource.namespace or (self.hub and self.hub != resource.hub):
            return False
        scope, path = self.scope, resource.path
        if not scope or scope == path or path.startswith(scope + "/"):
            return True
        return resource.is_messages and scope == f"{path}/{_MESSAGES}"

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
        wanted = signature_of(self.resource, self.expiry, key)
        return hmac.compare_digest(wanted.encode(), self.signature.encode(errors="replace"))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        if name in fields:
            raise MalformedToken("The token has a field twice.")
        fields[name] = value
    return fields


def split_audience(resource: str) -> tuple[str, str]:
    """Host and path of a resource URI, folded: without scheme, port, query and superfluous slashes.

    1. A resource without a literal `/` behind its scheme is URL-encoded as a whole, as the service asks for, and is
       decoded. One that has a literal `/` was left as it is by its client.
    2. The URI is split into segments, and each is decoded once, as the path of a request is: a publisher `dev 01` is
       written `dev%2001`. A slash that was encoded inside a segment stays encoded, so that it never separates two.
    """
    is_plain = "/" in resource.rpartition("://")[2]
    uri = resource if is_plain else _decoded(resource.replace("+", " "))
    _, found, rest = uri.partition("://")
    authority, _, path = (rest if found else uri).partition("?")[0].lstrip("/").partition("/")
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    segments = (_decoded(segment).replace("/", "%2f") for segment in path.split("/") if segment)
    return fold(host), fold("/".join(segments))


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise MalformedToken("The token's 'sr' is not UTF-8.") from None


class Access:
    """Turns credentials into Principals, by the rules in a catalog view.

    Thread rule: used on the owner's thread. `view` is asked anew each time, so a regenerated key counts at once.
    `takes_emulator_key` is for nodes started with the official emulator's configuration, and no others.
    `rotated_key_grace_s` is how long open connections outlive the rotation of their key. `capture_key` signs what the
    node gives its capture job; a job that is to outlive the node's process needs one that does. `admin_token` is the
    administrator's; a node without one has no administrator.
    """

    __slots__ = (
        "_admin_token",
        "_answers_to",
        "_capture_key",
        "_known_tokens",
        "_rotated_key_grace_s",
        "_skew_s",
        "_takes_emulator_key",
        "_view",
    )

    def __init__(
        self,
        view: Callable[[], View],
        answers_to: AnswersTo,
        *,
        skew_s: int = 0,
        takes_emulator_key: bool = False,
        rotated_key_grace_s: int = ROTATED_KEY_GRACE_S,
        capture_key: str | None = None,
        admin_token: str = "",
    ) -> None:
        self._view = view
        self._admin_token = admin_token.encode()
        # Verified SAS tokens by namespace and text: a device sends the same one with every event.
        self._known_tokens: dict[tuple[str, str], tuple[int, Principal]] = {}
        self._answers_to = answers_to
        self._skew_s = skew_s
        self._takes_emulator_key = takes_emulator_key
        self._rotated_key_grace_s = rotated_key_grace_s
        self._capture_key = (capture_key or secrets.token_hex(_CAPTURE_KEY_BYTES)).encode()

    def verify(self, namespace: Namespace, credential: Credential, now_s: float) -> Principal:
        """The holder of a credential; refused when it is missing, malformed, wrong, for somebody else or expired."""
        if isinstance(credential, SharedAccessSignature):
            return self._by_known_token(namespace, credential.text, now_s)
        if isinstance(credential, SharedKey):
            return self.by_key(namespace, credential.rule, credential.key)
        if isinstance(credential, ConnectionStringCredential):
            return self.by_connection_string(namespace, credential.text, now_s)
        return self.by_admin_token(credential)

    def by_admin_token(self, credential: AdminToken) -> Principal:
        """The administrator."""
        given = credential.text.strip().encode(errors="replace")
        if not self._admin_token or not hmac.compare_digest(given, self._admin_token):
            raise InvalidSignature
        return Principal.admin()

    def _by_known_token(self, namespace: Namespace, text: str, now_s: float) -> Principal:
        """As `by_token`, without verifying a token twice while no entity changes."""
        key, version = (namespace.name, text), self._view().version
        known = self._known_tokens.get(key)
        if known is not None and known[0] == version and not known[1].is_expired(now_s):
            return known[1]
        principal = self.by_token(namespace, text, now_s)
        if len(self._known_tokens) >= _MAX_KNOWN_TOKENS:
            self._known_tokens.pop(next(iter(self._known_tokens)))
        self._known_tokens[key] = (version, principal)
        return principal

    def by_token(self, namespace: Namespace, text: str | None, now_s: float) -> Principal:
        """The holder of a SAS token."""
        if not text:
            raise MissingToken
        _check_local_auth(namespace)
        token = Token.parse(text)
        host, path = split_audience(token.resource)
        path = self._plural(namespace, path)
        rule, key = self._rule_signing(token, self._scopes(namespace, path))
        if not self._answers_to(namespace, host):
            raise InvalidAudience(host, namespace.name)
        if now_s >= token.expires_at_s + self._skew_s:
            raise ExpiredToken(token.expires_at_s)
        return self._principal(rule, key, scope=path, expires_at_s=token.expires_at_s + self._skew_s)

    def by_key(self, namespace: Namespace, rule_name: str, key: str) -> Principal:
        """The holder of a rule's name and key (AMQP: SASL PLAIN); the rule may be on any hub of the namespace."""
        _check_local_auth(namespace)
        return self._principal(self._rule_with_key(self._view().rules_named(namespace, rule_name), key), key)

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
        principal = self._principal(rule, parts.key)
        if parts.capture_credential is None:
            return principal
        return replace(principal, captures_hub=self._captured_hub(namespace, path, parts.capture_credential))

    def capture_credential(self, hub: Hub) -> str:
        """What proves the capture job of a hub, beside a rule's key; only the node can make it."""
        return hmac.new(self._capture_key, f"capture\n{hub.uid}".encode(), sha256).hexdigest()

    def _captured_hub(self, namespace: Namespace, path: str, credential: str) -> str:
        hub = self._view().find_hub(namespace.name, path)
        given = credential.encode(errors="replace")
        if hub is None or not hmac.compare_digest(self.capture_credential(hub).encode(), given):
            raise InvalidSignature
        return hub.uid

    def current(self, principal: Principal, now_s: float, *, ends_rotated: bool = False) -> Principal:
        """A principal that signed in before, judged by the rules in force; the same object when nothing has changed.

        Raises the refusal that ends it: its namespace or rule is gone, local authentication or its application group is
        disabled. A key that is not in force any more limits the principal to `rotated_key_grace_s` from now, or ends it
        when `ends_rotated` says so.
        """
        if principal.is_admin:
            return principal
        namespace = self._view().find_namespace(principal.namespace)
        if namespace is None:
            raise NamespaceNotFound(f"sb://{principal.namespace}")
        _check_local_auth(namespace)
        rule = self._rule_of(namespace, principal)
        if rule is None:
            raise CredentialRevoked(principal.rule)
        self._check_application_group(rule)
        if not any(hmac.compare_digest(_key_id(key), principal.key_id) for key in self._keys(rule)):
            if ends_rotated:
                raise CredentialRevoked(principal.rule)
            principal = self._rotated(principal, now_s)
        rights = rule.rights & ~Rights.MANAGE if principal.is_rotated else rule.rights
        return principal if principal.rights == rights else replace(principal, rights=rights)

    def _rule_of(self, namespace: Namespace, principal: Principal) -> AccessRule | None:
        if not principal.hub:
            return self._view().find_rule(namespace, principal.rule)
        hub = self._view().hub_of_uid(principal.hub_uid)
        return None if hub is None else self._view().find_rule(hub, principal.rule)

    def _rotated(self, principal: Principal, now_s: float) -> Principal:
        if principal.is_rotated:
            return principal
        latest = int(now_s) + self._rotated_key_grace_s
        expiry = latest if principal.expires_at_s is None else min(principal.expires_at_s, latest)
        return replace(principal, expires_at_s=expiry, is_rotated=True)

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

    def _plural(self, namespace: Namespace, path: str) -> str:
        """The path with `publishers` where one page of the service's API, and its clients, write `publisher`."""
        if _PUBLISHER_SEGMENT not in path:
            return path
        hub = self._hub_of(namespace, path)
        below = "" if hub is None else path[len(hub.name) :]
        if hub is None or not below.startswith(_PUBLISHER_SEGMENT):
            return path
        return f"{fold(hub.name)}/{_PUBLISHERS}/{below[len(_PUBLISHER_SEGMENT) :]}"

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

    def _rule_signing(self, token: Token, scopes: Iterable[Namespace | Hub]) -> tuple[AccessRule, str]:
        for rule in self._rules_in(scopes, token.rule):
            for key in self._keys(rule):
                if token.is_signed_with(key):
                    return rule, key
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

    def _check_application_group(self, rule: AccessRule) -> None:
        groups = self._view().application_groups(rule.namespace)
        group = group_of(groups, rule.name, is_of_hub=rule.hub is not None)
        if group is not None and not group.is_enabled:
            raise ApplicationGroupDisabled(group.name)

    def _principal(self, rule: AccessRule, key: str, *, scope: str = "", expires_at_s: int | None = None) -> Principal:
        self._check_application_group(rule)
        return Principal(
            namespace=fold(rule.namespace),
            rule=rule.name,
            rights=rule.rights,
            hub=fold(rule.hub or ""),
            scope=scope,
            expires_at_s=expires_at_s,
            hub_uid=rule.hub_uid or "",
            key_id=_key_id(key),
        )


def _key_id(key: str) -> str:
    """What a principal remembers of its key: enough to see whether the key is still in force."""
    return sha256(key.encode(errors="replace")).hexdigest()


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
