"""Authentication: `Access` turns a credential into a `Principal`, and a principal says what it may do.

A principal has the rights of an authorization rule (SAS), or those that role assignments grant to an identity (OAuth).

Refusals come in a fixed order (reference: service 2.4): missing, malformed, signature, audience, expiry, then the
right. `model/security/sas.py` has the format of tokens. Nothing here reads a clock: `now_s` is an argument.
"""

import hmac
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from sys import intern

from hubmere.broker.access.credentials import (
    AdminToken,
    BearerToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.access.resources import Resource
from hubmere.broker.identity.grants import Grant, Identity, all_rights, grants_of
from hubmere.broker.identity.identities import Identities
from hubmere.broker.quotas.application_groups import ClientKind, group_of
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
)
from hubmere.model.names import HUB_RULE, ROOT_RULE, fold
from hubmere.model.security.connection_string import EMULATOR_KEY, ConnectionString
from hubmere.model.security.roles import Control
from hubmere.model.security.sas import Token, split_audience
from hubmere.store.catalog.view import CatalogView

# How long links stay open after the rotation of their key, unless their token expires before that. The service keeps
# them open until their token expires (reference: service 1). SASL PLAIN has no expiry, so a limit of our own is needed.
ROTATED_KEY_GRACE_S = 3600
_CAPTURE_KEY_BYTES = 32
# Verified tokens that are kept: one per device that is sending now; each entry is under 1 KB.
_MAX_KNOWN_TOKENS = 4096
# Path segments: publishers of a hub, and the events of a hub, partition or publisher.
_PUBLISHERS = "publishers"
_PUBLISHER_SEGMENT = "/publisher/"
_MESSAGES = "messages"

# Whether a host name belongs to a namespace: (namespace, host) -> bool.
AnswersTo = Callable[[Namespace, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated client: what it proved, for which resources and until when.

    `hub` is the hub whose rule was used (empty for a rule of the namespace), `scope` the path the credential covers.
    `captures_hub` is, for a capture job, the uid of the hub that it captures. `key_id` is a digest of the key that
    was used. `is_rotated` says that this key is not in force any more: open links stay open until the principal
    expires, but it can neither open new ones nor manage anything.

    `identity` is the holder of an OAuth token. Then `grants` are its role assignments, `rights` the rights that it has
    anywhere, and `rule` is its id.
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
    identity: Identity | None = None
    grants: tuple[Grant, ...] = ()

    @classmethod
    def admin(cls) -> "Principal":
        """The holder of the node's admin token, who may do everything."""
        return cls(namespace="", rule="(admin)", rights=Rights.ALL, is_admin=True)

    @property
    def client_kind(self) -> ClientKind:
        """Which kind of credential the client has used, for application groups."""
        if self.identity is not None:
            return ClientKind.APPLICATION
        return ClientKind.HUB_RULE if self.hub else ClientKind.NAMESPACE_RULE

    @property
    def client(self) -> str:
        """The rule or the application by which application groups know the client."""
        return self.rule if self.identity is None else self.identity.application

    def covers(self, resource: Resource) -> bool:
        """Whether the resource is the scope of the credential or below it."""
        if self.is_admin:
            return True
        if self.identity is not None and not self._reaching(resource):
            return False
        return self.is_in_scope(resource)

    def is_in_scope(self, resource: Resource) -> bool:
        """Whether the credential is for the resource or for a resource above it, with any rights."""
        if self.namespace != resource.namespace or (self.hub and self.hub != resource.hub):
            return False
        scope, path = self.scope, resource.path
        if not scope or scope == path or path.startswith(scope + "/"):
            return True
        return resource.is_messages and scope == f"{path}/{_MESSAGES}"

    def may(self, right: Rights, resource: Resource) -> bool:
        """Whether one of the given rights is held on the resource."""
        if self.identity is not None:
            return self.is_in_scope(resource) and any(one.rights.allows(right) for one in self._reaching(resource))
        return self.rights.allows(right) and self.covers(resource)

    def controls(self, resource: Resource) -> Control:
        """Which management operations are allowed on the resource: by an identity's roles, or by Manage."""
        if self.identity is None:
            return Control.ASSIGN_ROLES if self.may(Rights.MANAGE, resource) else Control.NONE
        return max((one.control for one in self._reaching(resource)), default=Control.NONE)

    @property
    def control_anywhere(self) -> Control:
        """How far the management plane may be used for anything in the namespace."""
        if self.identity is None:
            return Control.ASSIGN_ROLES if self.rights.allows(Rights.MANAGE) else Control.NONE
        return max((one.control for one in self.grants), default=Control.NONE)

    def _reaching(self, resource: Resource) -> list[Grant]:
        return [grant for grant in self.grants if grant.reaches(resource.hub, resource.path)]

    def require(self, right: Rights, resource: Resource) -> None:
        """Refuse unless one of the given rights is held on the resource."""
        if self.identity is not None:
            if not self.may(right, resource):
                raise ClaimMissing(" or ".join(right.names), f"sb://{resource}")
            return
        if not self.covers(resource):
            audience = f"{self.namespace}/{self.scope or self.hub}".rstrip("/")
            raise InvalidAudience(audience, str(resource))
        if not self.rights.allows(right):
            raise ClaimMissing(" or ".join(right.names), str(resource))

    def is_expired(self, now_s: float) -> bool:
        """Whether the credential has expired; keys do not expire."""
        return self.expires_at_s is not None and now_s >= self.expires_at_s


class Access:
    """Turns credentials into Principals, by the rules in a catalog view.

    Thread rule: the owner's thread only. `view` is called for every check, so a regenerated key counts at once.
    `takes_emulator_key` is only for nodes that were started with the official emulator's configuration.
    `rotated_key_grace_s` is how long connections stay open after the rotation of their key. `capture_key` signs the
    credential of the capture job. A job that continues after a restart of the node needs a persistent key.
    `admin_token` is the administrator's; a node without one has no administrator.
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
        "identities",
    )

    def __init__(
        self,
        view: Callable[[], CatalogView],
        answers_to: AnswersTo,
        *,
        skew_s: int = 0,
        takes_emulator_key: bool = False,
        rotated_key_grace_s: int = ROTATED_KEY_GRACE_S,
        capture_key: str | None = None,
        admin_token: str = "",
        identities: Identities | None = None,
    ) -> None:
        self._view = view
        self.identities = Identities() if identities is None else identities
        self._admin_token = admin_token.encode()
        # Verified SAS tokens by namespace and text: a device sends the same one with every event.
        self._known_tokens: dict[tuple[str, str], tuple[int, Principal]] = {}
        self._answers_to = answers_to
        self._skew_s = skew_s
        self._takes_emulator_key = takes_emulator_key
        self._rotated_key_grace_s = rotated_key_grace_s
        self._capture_key = (capture_key or secrets.token_hex(_CAPTURE_KEY_BYTES)).encode()

    def verify(self, namespace: Namespace, credential: Credential, now_s: float) -> Principal:
        """The holder of a credential; refused when it is missing, malformed, wrong, for another audience or expired."""
        if isinstance(credential, SharedAccessSignature):
            return self._by_known_token(namespace, credential.text, now_s)
        if isinstance(credential, SharedKey):
            return self.by_key(namespace, credential.rule, credential.key)
        if isinstance(credential, ConnectionStringCredential):
            return self.by_connection_string(namespace, credential.text, now_s)
        if isinstance(credential, BearerToken):
            return self.by_bearer_token(namespace, credential, now_s)
        return self.by_admin_token(credential)

    def by_bearer_token(
        self, namespace: Namespace, credential: BearerToken, now_s: float, audiences: Collection[str] = ()
    ) -> Principal:
        """The holder of an OAuth token; raises KeysPending if the keys of its issuer have to be fetched first."""
        if not credential.text:
            raise MissingToken
        identity, expires_at_s = self.identities.verify(
            credential.text,
            namespace.name,
            lambda host: self._answers_to(namespace, host),
            now_s,
            audiences,
        )
        principal = Principal(
            namespace=fold(namespace.name),
            rule=identity.id,
            rights=Rights.NONE,
            expires_at_s=expires_at_s,
            identity=identity,
        )
        self._check_application(namespace, identity)
        return self._with_grants(principal, identity)

    def _with_grants(self, principal: Principal, identity: Identity) -> Principal:
        """The principal with what the assignments in force grant; the same object when nothing has changed."""
        grants = grants_of(identity, self._view().role_assignments(principal.namespace))
        return principal if grants == principal.grants else replace(principal, grants=grants, rights=all_rights(grants))

    def _check_application(self, namespace: Namespace, identity: Identity) -> None:
        groups = self._view().application_groups(namespace.name)
        group = group_of(groups, identity.application, ClientKind.APPLICATION)
        if group is not None and not group.is_enabled:
            raise ApplicationGroupDisabled(group.name)

    def by_admin_token(self, credential: AdminToken) -> Principal:
        """The administrator."""
        given = credential.text.strip().encode(errors="replace")
        if not self._admin_token or not hmac.compare_digest(given, self._admin_token):
            raise InvalidSignature
        return Principal.admin()

    def _by_known_token(self, namespace: Namespace, text: str, now_s: float) -> Principal:
        """Like `by_token`, but verifies a token only once while no entity changes."""
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
        return replace(principal, captures_hub=self._hub_to_capture(namespace, path, parts.capture_credential))

    def capture_credential(self, hub: Hub) -> str:
        """The secret that identifies the capture job of a hub, beside a rule's key; only the node can make it."""
        return hmac.new(self._capture_key, f"capture\n{hub.uid}".encode(), sha256).hexdigest()

    def _hub_to_capture(self, namespace: Namespace, path: str, credential: str) -> str:
        hub = self._view().find_hub(namespace.name, path)
        given = credential.encode(errors="replace")
        if hub is None or not hmac.compare_digest(self.capture_credential(hub).encode(), given):
            raise InvalidSignature
        return hub.uid

    def current(self, principal: Principal, now_s: float, *, ends_rotated: bool = False) -> Principal:
        """An authenticated principal, checked again by the current rules; the same object when nothing has changed.

        Raises the refusal that ends it: its namespace or rule is gone, local authentication or its application group is
        disabled. A key that is not in force any more limits the principal to `rotated_key_grace_s` from now, or ends it
        when `ends_rotated` says so.
        """
        if principal.is_admin:
            return principal
        namespace = self._view().find_namespace(principal.namespace)
        if namespace is None:
            raise NamespaceNotFound(f"sb://{principal.namespace}")
        if principal.identity is not None:
            self._check_application(namespace, principal.identity)
            return self._with_grants(principal, principal.identity)
        _check_local_auth(namespace)
        rule = self._rule_of(namespace, principal)
        if rule is None:
            raise CredentialRevoked(principal.rule)
        self._check_application_group(rule)
        if not any(hmac.compare_digest(_key_id(key), principal.key_id) for key in self._keys(rule)):
            if ends_rotated:
                raise CredentialRevoked(principal.rule)
            principal = self._limit_to_grace(principal, now_s)
        rights = rule.rights & ~Rights.MANAGE if principal.is_rotated else rule.rights
        return principal if principal.rights == rights else replace(principal, rights=rights)

    def _rule_of(self, namespace: Namespace, principal: Principal) -> AccessRule | None:
        if not principal.hub:
            return self._view().find_rule(namespace, principal.rule)
        hub = self._view().hub_of_uid(principal.hub_uid)
        return None if hub is None else self._view().find_rule(hub, principal.rule)

    def _limit_to_grace(self, principal: Principal, now_s: float) -> Principal:
        if principal.is_rotated:
            return principal
        latest = int(now_s) + self._rotated_key_grace_s
        expiry = latest if principal.expires_at_s is None else min(principal.expires_at_s, latest)
        return replace(principal, expires_at_s=expiry, is_rotated=True)

    def _scopes(self, namespace: Namespace, path: str) -> Iterator[Namespace | Hub]:
        """The scopes whose rules apply to a path: the hub that the path names, then the namespace."""
        hub = self._hub_of(namespace, path)
        if hub is not None:
            yield hub
        yield namespace

    def _plural(self, namespace: Namespace, path: str) -> str:
        """Replace `publisher` by `publishers`: some pages of the service, and some clients, use the singular."""
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
        kind = ClientKind.NAMESPACE_RULE if rule.hub is None else ClientKind.HUB_RULE
        group = group_of(groups, rule.name, kind)
        if group is not None and not group.is_enabled:
            raise ApplicationGroupDisabled(group.name)

    def _principal(self, rule: AccessRule, key: str, *, scope: str = "", expires_at_s: int | None = None) -> Principal:
        self._check_application_group(rule)
        return Principal(
            namespace=intern(fold(rule.namespace)),
            rule=rule.name,
            rights=rule.rights,
            hub=intern(fold(rule.hub or "")),
            scope=scope,
            expires_at_s=expires_at_s,
            hub_uid=rule.hub_uid or "",
            key_id=_key_id(key),
        )


def _key_id(key: str) -> str:
    """A digest of a key, to find out later whether the key is still in force; all clients with the key share it."""
    return intern(sha256(key.encode(errors="replace")).hexdigest())


def _check_local_auth(namespace: Namespace) -> None:
    if namespace.disable_local_auth:
        raise LocalAuthDisabled


def host_names(names: Iterable[str], view: Callable[[], CatalogView]) -> AnswersTo:
    """A check that accepts some host names for every namespace, and `{namespace}.anything` or `{alias}.anything`."""
    known = frozenset(map(fold, names))

    def answers_to(namespace: Namespace, host: str) -> bool:
        folded = fold(host)
        if folded in known:
            return True
        label = folded.partition(".")[0]
        alias = view().find_alias(label)
        return label == fold(namespace.name) or (alias is not None and fold(alias.namespace) == fold(namespace.name))

    return answers_to
