"""Namespaces and hubs of the settings: created through the manager, once, with its checks and its audit lines."""

from collections.abc import Iterator

import pytest

from broker.builders import Bench
from hubmere.broker.provisioning import Provisioning, WantedHub
from hubmere.model.errors import InvalidArgument, Refusal
from hubmere.model.names import alias_name, namespace_name
from hubmere.model.spec import HubSpec, NamespaceSpec

BILLS = WantedHub(namespace="second", name="bills", spec=HubSpec(partition_count=2), groups=("audit", "tax"))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def _provisioning(bench: Bench) -> Provisioning:
    return Provisioning(bench.broker.planned_entities, bench.manager, bench.actor)


def _provision(bench: Bench, *hubs: WantedHub) -> list[str]:
    """Create missing entities; returns their names."""
    created = []
    for creation in _provisioning(bench).creations(["hubmere"], hubs):
        bench.do(creation.start)
        created.append(creation.entity)
    return created


def test_missing_entities_are_created_parents_first(bench: Bench) -> None:
    """A namespace that only a hub names is created too, and live objects exist at once."""
    created = _provision(bench, BILLS)

    assert created == [
        "namespace 'second'",
        "event hub 'bills'",
        "consumer group 'audit' of event hub 'bills'",
        "consumer group 'tax' of event hub 'bills'",
    ]
    assert bench.broker._namespace("second").hub("bills").entity.partition_count == 2


def test_existing_entities_stay_as_they_are(bench: Bench) -> None:
    """Settings create; they never change what an operator may have changed since."""
    _provision(bench, BILLS)
    wider = WantedHub(namespace="second", name="Bills", spec=HubSpec(partition_count=8), groups=("Tax",))

    assert _provision(bench, wider) == []
    assert bench.broker._namespace("second").hub("bills").entity.partition_count == 2


def test_hubs_without_a_partition_count_get_the_default_of_the_node(bench: Bench) -> None:
    """As hubs that a client creates without one."""
    _provision(bench, WantedHub(namespace="hubmere", name="bills", spec=HubSpec()))

    assert bench.broker._namespace("hubmere").hub("bills").entity.partition_count == 4


def test_every_creation_is_audited(bench: Bench) -> None:
    """Also one that is refused; the manager writes both lines."""
    _provision(bench, BILLS)
    wrong = WantedHub(namespace="hubmere", name="bad name", spec=HubSpec())
    too_long = WantedHub(namespace="hubmere", name="old", spec=HubSpec(retention_hours=0))

    with pytest.raises(InvalidArgument):
        _provision(bench, wrong)
    with pytest.raises(Refusal):
        _provision(bench, too_long)

    lines = [(line.action, line.target, line.outcome) for line in bench.broker.audit.latest(5)]
    assert lines == [
        ("create hub", "hubmere/old", "refused"),
        ("create group", "second/bills/tax", "done"),
        ("create group", "second/bills/audit", "done"),
        ("create hub", "second/bills", "done"),
        ("create namespace", "second", "done"),
    ]


def test_hubs_of_a_secondary_are_skipped(bench: Bench) -> None:
    """They come from the primary, and a node must start again after its partner deleted one."""
    bench.do(
        lambda done: bench.manager.create_namespace(namespace_name("second"), NamespaceSpec(), bench.actor(), done)
    )
    bench.do(lambda done: bench.manager.pair("hubmere", alias_name("shop"), "second", "", bench.actor(), done))
    provisioning = _provisioning(bench)

    assert list(provisioning.creations(["second"], [BILLS])) == []
    assert provisioning.skipped_hubs == ["second/bills"]
