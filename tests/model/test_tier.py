"""Limits: the table of each tier, profiles and overrides."""

import pytest

from hubmere.model.errors import InvalidArgument
from hubmere.model.tier import GIB, MIB, TIB, UNLIMITED, LimitsBook, Profile, Tier, limits_for

# Rows of the service's quotas page: field, Basic, Standard, Premium, Dedicated.
QUOTAS: list[tuple[str, object, object, object, object]] = [
    ("publication_bytes", 262_144, 1_048_576, 1_048_576, 1_048_576),
    ("namespaces", 1000, 1000, 1000, 1000),
    ("hubs_per_namespace", 10, 10, 10, 1000),
    ("hubs_per_unit", None, None, 100, None),
    ("least_partitions_per_hub", 2, 2, 1, 1),
    ("partitions_per_hub", 32, 32, 100, 1024),
    ("partitions_per_unit", None, None, 200, 2000),
    ("partitions_may_grow", False, False, True, True),
    ("groups_per_hub", 1, 20, 100, 1000),
    ("kafka_groups_per_namespace", 1000, 1000, 1000, 1000),
    ("connections", 100, 5000, 5000, 5000),
    ("connections_per_unit", None, None, 10_000, 100_000),
    ("rules_per_entity", 12, 12, 12, 12),
    ("readers_per_partition", 5, 5, 5, 5),
    ("runtime_information_per_second", 50, 50, None, None),
    ("ip_rules", 128, 128, 128, 128),
    ("network_rules", 128, 128, 128, 128),
    ("policies_per_application_group", 4, 4, 4, 4),
    ("retention_hours", 24, 168, 2160, 2160),
    ("default_retention_hours", 24, 168, 168, 168),
    ("storage_bytes_per_unit", 84 * GIB, 84 * GIB, TIB, 10 * TIB),
    ("compacted_bytes_per_partition", GIB, GIB, 250 * GIB, 250 * GIB),
    ("units", 40, 40, 16, 20),
    ("unit_steps", (), (), (1, 2, 4, 6, 8, 10, 12, 16), ()),
    ("ingress_bytes_per_unit", MIB, MIB, None, None),
    ("ingress_events_per_unit", 1000, 1000, None, None),
    ("egress_bytes_per_unit", 2 * MIB, 2 * MIB, None, None),
    ("egress_events_per_unit", 4096, 4096, None, None),
    ("offset_commits_per_second", 4, 4, None, None),
    ("has_auto_inflate", False, True, False, False),
    ("has_capture", False, True, True, True),
    ("has_kafka", False, True, True, True),
    ("has_compaction", False, True, True, True),
    ("has_geo_recovery", False, True, True, True),
    ("has_network_rules", False, True, True, True),
    ("has_application_groups", False, False, True, True),
    ("has_record_deletion", False, False, True, True),
]


def test_every_limit_has_a_row_here() -> None:
    """Every number must be compared with the service's."""
    assert [row[0] for row in QUOTAS] == list(UNLIMITED.__dataclass_fields__)


@pytest.mark.parametrize("row", QUOTAS, ids=lambda row: row[0])
def test_each_tier_has_the_numbers_of_the_quotas_page(row: tuple[str, object, object, object, object]) -> None:
    """The numbers are those of the service."""
    name, *wanted = row

    found = [getattr(limits_for(Profile.STANDARD, tier), name) for tier in Tier]

    assert found == wanted


def test_premium_counts_grow_with_capacity() -> None:
    """100 hubs and 10,000 connections per processing unit, 200 partitions per unit in the namespace."""
    premium = limits_for(Profile.PREMIUM)

    assert (premium.hubs(4), premium.all_connections(4), premium.partitions(4)) == (400, 40_000, 800)


def test_standard_counts_do_not_grow_with_capacity() -> None:
    """More throughput units do not increase the number of hubs."""
    standard = limits_for(Profile.STANDARD)

    assert (standard.hubs(4), standard.all_connections(4), standard.partitions(4)) == (10, 5000, None)


def test_developer_profile_has_the_limits_of_standard_without_throttling() -> None:
    """Tests must not pass where the service would refuse, but must not be slowed down."""
    default = limits_for(Profile.DEVELOPER)
    standard = limits_for(Profile.STANDARD)

    assert default.hubs_per_namespace == standard.hubs_per_namespace == 10
    assert default.ingress_bytes_per_unit is None
    assert standard.ingress_bytes_per_unit == 1 * MIB
    assert (standard.ingress_events_per_unit, standard.egress_events_per_unit) == (1000, 4096)


def test_unlimited_profile_has_only_the_limits_of_the_format() -> None:
    """A publication must fit a record batch, and a partition needs a directory; there is no other limit."""
    limits = limits_for(Profile.UNLIMITED, Tier.BASIC)

    bounded = {name for name in UNLIMITED.__dataclass_fields__ if type(getattr(limits, name)) is int}

    own = {"publication_bytes", "least_partitions_per_hub", "partitions_per_hub", "default_retention_hours"}
    assert bounded == own
    assert limits.has_kafka
    assert limits.has_application_groups


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("hubs_per_namespace", 500, 500),
        ("hubs_per_namespace", "500", 500),
        ("hubs_per_namespace", "unlimited", None),
        ("partitions_may_grow", "true", True),
        ("partitions_may_grow", False, False),
        ("publication_bytes", 2048, 2048),
    ],
)
def test_single_number_is_overridden_by_its_name(name: str, value: int | str, wanted: object) -> None:
    """Every limit can be set separately, in a file or in the environment."""
    limits = limits_for(overrides={name: value})

    assert getattr(limits, name) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hub_count", 1),
        ("unit_steps", 1),
        ("hubs_per_namespace", "many"),
        ("hubs_per_namespace", -1),
        ("hubs_per_namespace", True),
        ("publication_bytes", "unlimited"),
        ("partitions_may_grow", "perhaps"),
    ],
)
def test_invalid_override_is_refused_by_name(name: str, value: int | str) -> None:
    """A typing error in a settings file must be reported."""
    with pytest.raises(InvalidArgument) as refusal:
        limits_for(overrides={name: value})

    assert name in refusal.value.text()


def test_each_namespace_has_the_limits_of_its_tier() -> None:
    """One node may have namespaces of several tiers; overrides apply to all."""
    book = LimitsBook(profile=Profile.STANDARD, overrides={"rules_per_entity": 3})

    assert book.default_tier is Tier.STANDARD
    assert book.of(Tier.PREMIUM).partitions_per_hub == 100
    assert {book.of(tier).rules_per_entity for tier in Tier} == {3}


# --- a node without a setting ----------------------------------------------------------------------------------------


def test_default_profile_has_the_message_limits_and_no_quotas() -> None:
    """A self-hosted node need not refuse the eleventh hub, but an application must still work with the service."""
    opened = limits_for(Profile.OPEN)

    assert opened.publication_bytes == MIB
    assert opened.readers_per_partition == 5
    assert opened.hubs(1) is None
    assert opened.partitions(1) is None
    assert opened.all_connections(1) is None
    assert (opened.namespaces, opened.groups_per_hub, opened.rules_per_entity, opened.retention_hours) == (None,) * 4
    assert opened.ingress_bytes_per_unit is None
    assert opened.partitions_may_grow


def test_basic_namespace_with_the_default_profile_lacks_the_features_of_its_tier() -> None:
    """A user of the tier expects that these features are missing."""
    opened = limits_for(Profile.OPEN, Tier.BASIC)

    assert opened.publication_bytes == 256 * 1024
    assert not opened.has_kafka
