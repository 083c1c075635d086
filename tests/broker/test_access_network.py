"""Network rules: which addresses may connect; checked before any credential."""

from dataclasses import replace

import pytest

from hubmere.broker.access.network import is_allowed, require_address
from hubmere.model.entity import (
    DefaultAction,
    Namespace,
    NetworkRuleSet,
    PublicNetworkAccess,
    VirtualNetworkRule,
)
from hubmere.model.errors import AddressNotAllowed
from hubmere.model.names import namespace_name

OPEN = Namespace(name=namespace_name("ns1234"))


def denying(*masks: str) -> Namespace:
    return replace(OPEN, network=NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=masks))


@pytest.mark.parametrize(
    ("mask", "address", "wanted"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.2.3/16", "10.1.9.9", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("fd00::/8", "fd00::1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("fd00::/8", "10.1.2.3", False),
        ("0.0.0.0/0", "somewhere", False),
    ],
)
def test_namespace_that_denies_accepts_only_the_addresses_of_its_rules(mask: str, address: str, wanted: bool) -> None:
    """An IPv4-mapped IPv6 address counts as the IPv4 address; an invalid address is refused."""
    assert is_allowed(denying(mask), address) is wanted


def test_rule_set_with_default_allow_accepts_every_address() -> None:
    """`Allow` has been the service's default since 2021."""
    assert is_allowed(OPEN, "203.0.113.9")
    assert is_allowed(OPEN, "a unix socket")


def test_default_deny_without_rules_accepts_every_address() -> None:
    """The service does the same; with only a subnet rule it denies."""
    subnet = (VirtualNetworkRule(subnet_id="s"),)
    with_subnet = replace(OPEN, network=NetworkRuleSet(default_action=DefaultAction.DENY, virtual_networks=subnet))

    assert is_allowed(denying(), "203.0.113.9")
    assert not is_allowed(with_subnet, "203.0.113.9")


def test_namespace_without_public_access_accepts_only_its_own_machine() -> None:
    """This holds for any rules."""
    private = replace(denying("203.0.113.9"), public_network_access=PublicNetworkAccess.DISABLED)

    assert is_allowed(private, "127.0.0.1")
    assert is_allowed(private, "::1")
    assert not is_allowed(private, "203.0.113.9")


def test_refusal_does_not_reveal_the_rule() -> None:
    """A refused client must not learn anything about the rules."""
    with pytest.raises(AddressNotAllowed) as refusal:
        require_address(denying("10.1.2.3"), "203.0.113.9")

    assert "10.1" not in refusal.value.text()
    require_address(denying("10.1.2.3"), "10.1.2.3")
