"""Valid entities with defaults; a test sets only what matters to it."""

from hubmere.model.entity import AccessRule, ConsumerGroup, Hub, Namespace, Rights
from hubmere.model.names import RuleName, hub_name, namespace_name, rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec, new_hub, new_namespace, new_rule
from hubmere.model.tier import Limits, Profile, Tier, limits_for

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def limits(tier: Tier = Tier.STANDARD, **overrides: int | bool | str | None) -> Limits:
    return limits_for(Profile.STANDARD, tier, overrides)


def a_namespace(name: str = "ns1234", *, tier: Tier = Tier.STANDARD, spec: NamespaceSpec | None = None) -> Namespace:
    return new_namespace(namespace_name(name), spec or NamespaceSpec(), limits(tier), tier=tier, now_ms=NOW_MS)


def a_hub_and_group(
    name: str = "eh1", *, namespace: Namespace | None = None, spec: HubSpec | None = None
) -> tuple[Hub, ConsumerGroup]:
    owner = namespace or a_namespace()
    return new_hub(owner, hub_name(name), spec or HubSpec(), limits(owner.tier), existing=(), now_ms=NOW_MS)


def a_hub(name: str = "eh1", *, namespace: Namespace | None = None, spec: HubSpec | None = None) -> Hub:
    return a_hub_and_group(name, namespace=namespace, spec=spec)[0]


def a_rule(
    scope: Namespace | Hub,
    name: str = "rule",
    rights: Rights = Rights.ALL,
    *,
    primary_key: str | None = None,
    secondary_key: str | None = None,
) -> AccessRule:
    wanted: RuleName = rule_name(name)
    return new_rule(
        scope,
        wanted,
        rights,
        limits(),
        existing=(),
        now_ms=NOW_MS,
        primary_key=primary_key,
        secondary_key=secondary_key,
    )
