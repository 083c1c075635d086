"""Namespaces and their network rules: from a spec to an entity, within the limits of the tier."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from hubmere.model.entity import (
    Namespace,
    NetworkRuleSet,
    PublicNetworkAccess,
    Status,
)
from hubmere.model.errors import InvalidArgument, NotInTier
from hubmere.model.names import NamespaceName
from hubmere.model.spec.checks import check_count, check_range, check_status
from hubmere.model.tier import Limits, Tier

TLS_VERSIONS = ("1.0", "1.1", "1.2", "1.3")
# As ARM bounds tags of any resource.
MAX_TAGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSpec:
    """The requested settings of a namespace."""

    tier: Tier | None = None
    capacity: int | None = None
    auto_inflate: bool = False
    maximum_throughput_units: int | None = None
    minimum_throughput_units: int = 0
    status: Status = Status.ACTIVE
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    location: str = "local"
    subscription: str = ""
    resource_group: str = ""
    disable_local_auth: bool = False
    minimum_tls_version: str = "1.2"
    public_network_access: PublicNetworkAccess = PublicNetworkAccess.ENABLED
    kafka_enabled: bool | None = None
    zone_redundant: bool = False

    @classmethod
    def of(cls, namespace: Namespace) -> "NamespaceSpec":
        """The spec of a namespace as it is."""
        return cls(**{name: getattr(namespace, name) for name in cls.__dataclass_fields__})


def new_namespace(name: NamespaceName, spec: NamespaceSpec, limits: Limits, *, tier: Tier, now_ms: int) -> Namespace:
    """A new namespace; `limits` are those of `tier` (the requested tier, else the node's own)."""
    blank = Namespace(name=name, tier=tier, created_ms=now_ms, updated_ms=now_ms)
    return _apply_spec(blank, spec, limits)


def apply_namespace_spec(namespace: Namespace, spec: NamespaceSpec, limits: Limits, *, now_ms: int) -> Namespace:
    """A namespace with its settings replaced; the tier cannot change."""
    if spec.tier not in (None, namespace.tier):
        raise InvalidArgument("tier", spec.tier, f"the tier cannot change; it is {namespace.tier}")
    return replace(_apply_spec(namespace, spec, limits), updated_ms=now_ms)


def _apply_spec(namespace: Namespace, spec: NamespaceSpec, limits: Limits) -> Namespace:
    capacity = _check_capacity(1 if spec.capacity is None else spec.capacity, limits)
    if spec.minimum_tls_version not in TLS_VERSIONS:
        raise InvalidArgument("minimum TLS version", spec.minimum_tls_version, f"one of {', '.join(TLS_VERSIONS)}")
    if len(spec.tags) > MAX_TAGS:
        raise InvalidArgument("number of tags", len(spec.tags), f"at most {MAX_TAGS}")
    if spec.kafka_enabled and not limits.has_kafka:
        raise NotInTier("Kafka", namespace.tier, "has_kafka")
    return replace(
        namespace,
        capacity=capacity,
        auto_inflate=spec.auto_inflate,
        maximum_throughput_units=_check_maximum_units(spec, capacity, limits, namespace.tier),
        minimum_throughput_units=_check_minimum_units(spec, capacity),
        status=check_status(spec.status),
        tags=MappingProxyType(dict(spec.tags)),
        location=spec.location,
        subscription=spec.subscription,
        resource_group=spec.resource_group,
        disable_local_auth=spec.disable_local_auth,
        minimum_tls_version=spec.minimum_tls_version,
        public_network_access=spec.public_network_access,
        kafka_enabled=limits.has_kafka if spec.kafka_enabled is None else spec.kafka_enabled,
        zone_redundant=spec.zone_redundant,
    )


def _check_capacity(capacity: int, limits: Limits) -> int:
    if limits.unit_steps and capacity not in limits.unit_steps:
        steps = ", ".join(map(str, limits.unit_steps))
        raise InvalidArgument("capacity", capacity, f"one of {steps}; --as unlimited lifts all limits")
    return check_range("capacity", capacity, 1, limits.units, "units")


def _check_maximum_units(spec: NamespaceSpec, capacity: int, limits: Limits, tier: Tier) -> int:
    maximum = spec.maximum_throughput_units or 0
    if not spec.auto_inflate:
        if maximum:
            raise InvalidArgument("maximum of throughput units", maximum, "0 while auto-inflate is off")
        return 0
    if not limits.has_auto_inflate:
        raise NotInTier("Auto-inflate", tier, "has_auto_inflate")
    return check_range("maximum of throughput units", maximum, capacity, limits.units, "units")


def _check_minimum_units(spec: NamespaceSpec, capacity: int) -> int:
    minimum = spec.minimum_throughput_units
    if minimum and not spec.auto_inflate:
        raise InvalidArgument("minimum of throughput units", minimum, "0 while auto-inflate is off")
    return check_range("minimum of throughput units", minimum, 0, capacity)


def with_network_rules(namespace: Namespace, rules: NetworkRuleSet, limits: Limits, *, now_ms: int) -> Namespace:
    """A namespace with its network rules replaced."""
    has_rules = bool(rules.ip_masks or rules.virtual_networks)
    if has_rules and not limits.has_network_rules:
        raise NotInTier("The IP firewall", namespace.tier, "has_network_rules")
    check_count("IP rules", len(rules.ip_masks), limits.ip_rules, "ip_rules")
    check_count("virtual network rules", len(rules.virtual_networks), limits.network_rules, "network_rules")
    for mask in rules.ip_masks:
        _check_mask(mask)
    return replace(namespace, network=rules, updated_ms=now_ms)


def _check_mask(mask: str) -> None:
    try:
        ipaddress.ip_network(mask, strict=False)
    except ValueError:
        raise InvalidArgument("IP mask", mask, "an address or a CIDR block such as 10.1.0.0/16") from None
