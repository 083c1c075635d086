"""Namespaces and hubs of the settings are created through the manager, once, with its checks and its audit lines."""

from collections.abc import Iterator

import pytest

from broker.builders import BrokerHarness
from hubmere.broker.provisioning import Provisioning, WantedHub
from hubmere.model.errors import InvalidArgument, Refusal
from hubmere.model.names import alias_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec

BILLS = WantedHub(namespace="second", name="bills", spec=HubSpec(partition_count=2), groups=("audit", "tax"))


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    made = BrokerHarness()
    yield made
    made.close()


def _provisioning(harness: BrokerHarness) -> Provisioning:
    return Provisioning(harness.broker.planned_entities, harness.manager, harness.actor)


def _provision(harness: BrokerHarness, *hubs: WantedHub) -> list[str]:
    """Create missing entities; returns their names."""
    created = []
    for creation in _provisioning(harness).creations(["hubmere"], hubs):
        harness.do(creation.start)
        created.append(creation.entity)
    return created


def test_missing_entities_are_created_parents_first(harness: BrokerHarness) -> None:
    """A namespace that only a hub names is created too, and can be used at once."""
    created = _provision(harness, BILLS)

    assert created == [
        "namespace 'second'",
        "event hub 'bills'",
        "consumer group 'audit' of event hub 'bills'",
        "consumer group 'tax' of event hub 'bills'",
    ]
    assert harness.broker._namespace("second").hub("bills").entity.partition_count == 2


def test_existing_entities_stay_as_they_are(harness: BrokerHarness) -> None:
    """Settings create entities; they never overwrite later changes of an operator."""
    _provision(harness, BILLS)
    wider = WantedHub(namespace="second", name="Bills", spec=HubSpec(partition_count=8), groups=("Tax",))

    assert _provision(harness, wider) == []
    assert harness.broker._namespace("second").hub("bills").entity.partition_count == 2


def test_hubs_without_a_partition_count_get_the_default_of_the_node(harness: BrokerHarness) -> None:
    """The same default applies to hubs that a client creates."""
    _provision(harness, WantedHub(namespace="hubmere", name="bills", spec=HubSpec()))

    assert harness.broker._namespace("hubmere").hub("bills").entity.partition_count == 4


def test_every_creation_is_audited(harness: BrokerHarness) -> None:
    """A refused creation is audited too; the manager writes both lines."""
    _provision(harness, BILLS)
    wrong = WantedHub(namespace="hubmere", name="bad name", spec=HubSpec())
    too_long = WantedHub(namespace="hubmere", name="old", spec=HubSpec(retention_hours=0))

    with pytest.raises(InvalidArgument):
        _provision(harness, wrong)
    with pytest.raises(Refusal):
        _provision(harness, too_long)

    lines = [(line.action, line.target, line.outcome) for line in harness.broker.audit.latest(5)]
    assert lines == [
        ("create hub", "hubmere/old", "refused"),
        ("create group", "second/bills/tax", "done"),
        ("create group", "second/bills/audit", "done"),
        ("create hub", "second/bills", "done"),
        ("create namespace", "second", "done"),
    ]


def test_hubs_of_a_secondary_are_skipped(harness: BrokerHarness) -> None:
    """The primary replicates them, and a node must start even if its partner has deleted one."""
    harness.do(
        lambda done: harness.manager.create_namespace(namespace_name("second"), NamespaceSpec(), harness.actor(), done)
    )
    harness.do(lambda done: harness.manager.pair("hubmere", alias_name("shop"), "second", "", harness.actor(), done))
    provisioning = _provisioning(harness)

    assert list(provisioning.creations(["second"], [BILLS])) == []
    assert provisioning.skipped_hubs == ["second/bills"]
