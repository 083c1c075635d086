"""Every change leaves one line: actor, address, action, target and outcome."""

import inspect
from dataclasses import replace

import pytest

from broker.builders import BrokerHarness
from hubmere.broker.management.manager import Manager
from hubmere.model.entity import KeyKind, Rights
from hubmere.model.errors import AlreadyExists, HubNotFound
from hubmere.model.names import hub_name, rule_name
from hubmere.model.spec import HubSpec
from hubmere.store.audit import AuditLine

# Not audited: a query, a change that calls another method, and the common last step of every change.
_NOT_AUDITED = {"check_create_hub", "check_update_hub", "watch", "scale", "submit", "follow"}


def last(harness: BrokerHarness) -> AuditLine:
    """The newest line."""
    return harness.broker.audit.latest(1)[0]


def test_change_leaves_a_line_when_it_is_durable(harness: BrokerHarness) -> None:
    """The line has the address and the tracking id of the client."""
    actor = replace(harness.actor(), peer="10.0.0.7", tracking_id="t-42")

    harness.do(lambda done: harness.manager.create_hub("hubmere", hub_name("made"), HubSpec(), actor, done))

    line = last(harness)
    assert (line.actor, line.peer, line.tracking_id) == ("test", "10.0.0.7", "t-42")
    assert (line.action, line.target, line.outcome, line.reason) == ("create hub", "hubmere/made", "done", "")


def test_refused_change_leaves_a_line_too(harness: BrokerHarness) -> None:
    """Attempts with unknown names are recorded."""
    with pytest.raises(HubNotFound):
        harness.manager.delete_hub("hubmere", "nothing", harness.actor(), lambda _: None)
    with pytest.raises(AlreadyExists):
        harness.a_hub("orders")

    refused = harness.broker.audit.latest(2)
    assert [(line.action, line.outcome, line.reason) for line in refused] == [
        ("create hub", "refused", "AlreadyExists"),
        ("delete hub", "refused", "HubNotFound"),
    ]


def test_no_line_contains_a_key(harness: BrokerHarness) -> None:
    """A reader of the audit log must not get access to the hub."""
    secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC0="
    harness.do(
        lambda done: harness.manager.write_rule(
            "hubmere", "orders", rule_name("fleet"), Rights.SEND, harness.actor(), done, primary_key=secret
        )
    )
    harness.do(
        lambda done: harness.manager.regenerate_key(
            "hubmere", "orders", "fleet", KeyKind.PRIMARY, secret, harness.actor(), done
        )
    )

    lines = harness.broker.audit.latest(2)
    assert [line.action for line in lines] == ["regenerate key", "write rule"]
    assert {line.target for line in lines} == {"hubmere/orders/fleet"}
    assert secret not in "".join(line.text() for line in harness.broker.audit.latest())


def test_every_change_of_the_manager_is_audited() -> None:
    """A method that submits changes without the audit log would be a gap."""
    changes = {
        name: inspect.getsource(method)
        for name, method in inspect.getmembers(Manager, inspect.isfunction)
        if not name.startswith("_") and name not in _NOT_AUDITED
    }

    assert len(changes) > 20
    for name, source in changes.items():
        assert f'with self._begin_change("{name.replace("_", " ")}", actor, ' in source
        assert "self.submit(" not in source
        assert "_catalog.submit(" not in source
