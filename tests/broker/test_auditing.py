"""Every change leaves one line: actor, address, action, target and outcome."""

import inspect
from dataclasses import replace

import pytest

from broker.builders import Bench
from hubmere.broker.management.manager import Manager
from hubmere.model.entity import KeyKind, Rights
from hubmere.model.errors import AlreadyExists, HubNotFound
from hubmere.model.names import hub_name, rule_name
from hubmere.model.spec import HubSpec
from hubmere.store.audit import AuditLine

# Not a change, a change through another method, and the last step of every change.
_NOT_AUDITED = {"check_create_hub", "check_update_hub", "watch", "scale", "submit", "follow"}


def last(bench: Bench) -> AuditLine:
    """The newest line."""
    return bench.broker.audit.latest(1)[0]


def test_change_leaves_a_line_when_it_is_durable(bench: Bench) -> None:
    """With the address and the tracking id of the client."""
    actor = replace(bench.actor(), peer="10.0.0.7", tracking_id="t-42")

    bench.do(lambda done: bench.manager.create_hub("hubmere", hub_name("made"), HubSpec(), actor, done))

    line = last(bench)
    assert (line.actor, line.peer, line.tracking_id) == ("test", "10.0.0.7", "t-42")
    assert (line.action, line.target, line.outcome, line.reason) == ("create hub", "hubmere/made", "done", "")


def test_refused_change_leaves_a_line_too(bench: Bench) -> None:
    """Somebody who tries names is seen."""
    with pytest.raises(HubNotFound):
        bench.manager.delete_hub("hubmere", "nothing", bench.actor(), lambda _: None)
    with pytest.raises(AlreadyExists):
        bench.a_hub("orders")

    refused = bench.broker.audit.latest(2)
    assert [(line.action, line.outcome, line.reason) for line in refused] == [
        ("create hub", "refused", "AlreadyExists"),
        ("delete hub", "refused", "HubNotFound"),
    ]


def test_key_is_in_no_line(bench: Bench) -> None:
    """Whoever may read the audit log may not therefore send."""
    secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC0="
    bench.do(
        lambda done: bench.manager.write_rule(
            "hubmere", "orders", rule_name("fleet"), Rights.SEND, bench.actor(), done, primary_key=secret
        )
    )
    bench.do(
        lambda done: bench.manager.regenerate_key(
            "hubmere", "orders", "fleet", KeyKind.PRIMARY, secret, bench.actor(), done
        )
    )

    lines = bench.broker.audit.latest(2)
    assert [line.action for line in lines] == ["regenerate key", "write rule"]
    assert {line.target for line in lines} == {"hubmere/orders/fleet"}
    assert secret not in "".join(line.text() for line in bench.broker.audit.latest())


def test_every_change_of_the_manager_is_audited() -> None:
    """A method that submits steps around the audit log would be a hole."""
    changes = {
        name: inspect.getsource(method)
        for name, method in inspect.getmembers(Manager, inspect.isfunction)
        if not name.startswith("_") and name not in _NOT_AUDITED
    }

    assert len(changes) > 20
    for name, source in changes.items():
        assert f'with self._audited("{name.replace("_", " ")}", actor, ' in source
        assert "self.submit(" not in source
        assert "_catalog.submit(" not in source
