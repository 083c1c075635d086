"""Network rules: which addresses may connect to a namespace. Checked before any credential.

A rule set with `Deny` admits the addresses that its masks name; without any rule it behaves like `Allow`, as in the
service. A namespace without public access admits clients on the node's own machine only.
"""

import ipaddress
from functools import lru_cache

from hubmere.model.entity import DefaultAction, Namespace, NetworkRuleSet, PublicNetworkAccess
from hubmere.model.errors import AddressNotAllowed

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Number of parsed rule sets in the cache: one per namespace in use.
_REMEMBERED_RULE_SETS = 256


def require_address(namespace: Namespace, address: str) -> None:
    """Refuse an address that the namespace does not allow."""
    if not is_allowed(namespace, address):
        raise AddressNotAllowed


def is_allowed(namespace: Namespace, address: str) -> bool:
    """Whether the namespace allows an address; an unreadable one is allowed only where every address is."""
    caller = _parse_address(address)
    if namespace.public_network_access is PublicNetworkAccess.DISABLED:
        return caller is not None and caller.is_loopback
    rules = namespace.network
    if rules.default_action is DefaultAction.ALLOW or not _has_rules(rules):
        return True
    return caller is not None and any(caller in network for network in _networks(rules.ip_masks))


def _has_rules(rules: NetworkRuleSet) -> bool:
    return bool(rules.ip_masks or rules.virtual_networks)


def _parse_address(address: str) -> _Address | None:
    # A link-local IPv6 address may come with its interface: fe80::1%eth0.
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


@lru_cache(maxsize=_REMEMBERED_RULE_SETS)
def _networks(masks: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(mask, strict=False) for mask in masks)
