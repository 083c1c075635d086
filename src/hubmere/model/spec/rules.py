"""Consumer groups, authorization rules and application groups within the limits of the tier. Reference: service 4.2."""

import base64
import secrets
from collections.abc import Collection
from dataclasses import replace

from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    Hub,
    KeyKind,
    Namespace,
    Rights,
    ThrottlingMetric,
)
from hubmere.model.errors import Conflict, InvalidArgument, NotInTier
from hubmere.model.names import DEFAULT_GROUP, ROOT_RULE, GroupName, RuleName, fold
from hubmere.model.spec.checks import check_count, check_limit, check_metadata, check_range
from hubmere.model.tier import Limits, Tier

KEY_BYTES = 32
# Enough for the service's 44-character keys and for passphrases; bounds the key of an HMAC.
KEY_CHARACTERS = 256


def random_key() -> str:
    """A new random rule key: base64 of 32 random bytes, 44 characters."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def new_group(
    hub: Hub,
    name: GroupName,
    limits: Limits,
    *,
    existing: Collection[ConsumerGroup],
    now_ms: int,
    user_metadata: str = "",
) -> ConsumerGroup:
    """A consumer group; `existing` are all groups of the hub; `$Default` counts too."""
    check_limit("consumer groups of the event hub", len(existing), limits.groups_per_hub, "groups_per_hub")
    return ConsumerGroup(
        hub_uid=hub.uid,
        name=name,
        user_metadata=check_metadata(user_metadata),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def with_user_metadata(group: ConsumerGroup, *, user_metadata: str, now_ms: int) -> ConsumerGroup:
    """A group with its user metadata replaced."""
    return replace(group, user_metadata=check_metadata(user_metadata), updated_ms=now_ms)


def check_group_deletable(group: ConsumerGroup) -> None:
    """Raise if the group is `$Default`, which cannot be deleted."""
    if fold(group.name) == fold(DEFAULT_GROUP):
        raise Conflict("The consumer group '$Default' is part of every event hub and cannot be deleted.")


def root_rule(namespace: Namespace, *, now_ms: int) -> AccessRule:
    """The rule of every new namespace: all rights, two random keys."""
    return AccessRule(
        namespace=namespace.name,
        name=ROOT_RULE,
        rights=Rights.ALL,
        primary_key=random_key(),
        secondary_key=random_key(),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def new_rule(
    scope: Namespace | Hub,
    name: RuleName,
    rights: Rights,
    limits: Limits,
    *,
    existing: Collection[AccessRule],
    now_ms: int,
    primary_key: str | None = None,
    secondary_key: str | None = None,
) -> AccessRule:
    """A rule on a namespace or hub; `rights` come from `Rights.parse`, missing keys are random."""
    check_limit("authorization rules", len(existing), limits.rules_per_entity, "rules_per_entity")
    hub = scope if isinstance(scope, Hub) else None
    return AccessRule(
        namespace=scope.namespace if isinstance(scope, Hub) else scope.name,
        hub=None if hub is None else hub.name,
        hub_uid=None if hub is None else hub.uid,
        name=name,
        rights=rights,
        primary_key=_check_key(primary_key),
        secondary_key=_check_key(secondary_key),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def with_rights(rule: AccessRule, rights: Rights, *, now_ms: int) -> AccessRule:
    """A rule with its rights replaced; the keys stay."""
    return replace(rule, rights=rights, updated_ms=now_ms)


def with_new_key(rule: AccessRule, which: KeyKind, *, now_ms: int, key: str | None = None) -> AccessRule:
    """A rule with one key regenerated or set; tokens of the old key can no longer be used."""
    fresh = _check_key(key)
    if which is KeyKind.PRIMARY:
        return replace(rule, primary_key=fresh, updated_ms=now_ms)
    return replace(rule, secondary_key=fresh, updated_ms=now_ms)


def _check_key(key: str | None) -> str:
    if key is None:
        return random_key()
    if not 1 <= len(key) <= KEY_CHARACTERS:
        raise InvalidArgument("key", "(hidden)", f"1 to {KEY_CHARACTERS} characters")
    return key


# A rule of the namespace, a rule of a hub, the older form of the first, or an application that signs in with OAuth.
_CLIENT_KINDS = ("NamespaceSASKeyName", "EntitySASKeyName", "SASKeyName", "AADAppID")
# The service's smallest rate of bytes is 1 KB; of messages it is 1.
_LEAST_BYTE_RATE = 1000


def check_application_group(group: ApplicationGroup, limits: Limits, *, tier: Tier) -> ApplicationGroup:
    """Return the application group if it is within the tier's limits; raises otherwise."""
    if not limits.has_application_groups:
        raise NotInTier("An application group", tier, "has_application_groups")
    kind, is_given, name = group.client_id.partition("=")
    if not is_given or not name or fold(kind) not in map(fold, _CLIENT_KINDS):
        allowed = ", ".join(f"{kind}={{name}}" for kind in _CLIENT_KINDS)
        raise InvalidArgument("client identifier", group.client_id, f"one of {allowed}")
    check_count(
        "throttling policies",
        len(group.policies),
        limits.policies_per_application_group,
        "policies_per_application_group",
    )
    for policy in group.policies:
        is_bytes = policy.metric in (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.OUTGOING_BYTES)
        check_range("rate limit", policy.rate_per_s, _LEAST_BYTE_RATE if is_bytes else 1, None)
    return group
