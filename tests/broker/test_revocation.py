"""Open connections are checked again in slices, each once, by the current rules."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.test_access import KEY, AccessHarness
from hubmere.broker.access.authentication import ROTATED_KEY_GRACE_S, Principal
from hubmere.broker.access.revocation import SLICE_CONNECTIONS, Judge, Revocation
from hubmere.model.entity import KeyKind, Rights
from hubmere.model.errors import CredentialRevoked, LocalAuthDisabled, NamespaceNotFound, Refusal
from hubmere.model.spec import with_new_key
from hubmere.store.catalog.view import Delete, Replace, Step
from model.builders import NOW_MS, NOW_S


@pytest.fixture
def harness() -> AccessHarness:
    """A namespace with a hub `eh1` and its rule `send`."""
    return AccessHarness()


class Connection:
    """A connection that counts its reviews."""

    def __init__(self) -> None:
        self.reviews = 0

    def review(self, judge: Judge) -> None:
        """Count the review, and close nothing."""
        self.reviews += 1


def test_many_connections_are_reviewed_in_several_turns_of_the_loop(harness: AccessHarness) -> None:
    """Reviewing thousands of connections in one turn would block all other clients."""
    connections = [Connection() for _ in range(2 * SLICE_CONNECTIONS + 1)]
    turns: list[Callable[[], None]] = []
    revocation = Revocation(harness.access, lambda: connections)
    revocation.defer = turns.append

    revocation.review()
    revocation.review()
    count = 0
    while turns:
        turns.pop()()
        count += 1

    assert count == 3
    assert {connection.reviews for connection in connections} == {1}


def test_administrator_is_not_affected_by_changes_of_rules(harness: AccessHarness) -> None:
    """The administrator's token does not belong to a rule."""
    revocation = Revocation(harness.access, list)

    assert revocation.judge(Principal.admin(), 0.0) == Principal.admin()


def test_a_principal_whose_rule_is_unchanged_stays_the_same_object(harness: AccessHarness) -> None:
    """Endpoints compare identity to see that nothing has changed."""
    principal = harness.access.by_key(harness.namespace, "send", KEY)

    assert Revocation(harness.access, list).judge(principal, 0.0) is principal


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda harness: Delete(harness.rule, NOW_MS), CredentialRevoked),
        (lambda harness: Delete(harness.hub, NOW_MS), CredentialRevoked),
        (lambda harness: Delete(harness.namespace, NOW_MS), NamespaceNotFound),
        (lambda harness: Replace(replace(harness.namespace, disable_local_auth=True)), LocalAuthDisabled),
    ],
    ids=["rule", "hub", "namespace", "local authentication"],
)
def test_principal_becomes_invalid_with_its_rule_hub_or_namespace(
    harness: AccessHarness, change: Callable[[AccessHarness], Step], kind: type[Refusal]
) -> None:
    """After any of these changes the credential gives no access."""
    principal = harness.access.by_key(harness.namespace, "send", KEY)

    harness.change(change(harness))

    with pytest.raises(kind):
        harness.access.current(principal, NOW_S)


def test_a_rotated_key_gets_an_expiry_once(harness: AccessHarness) -> None:
    """A later change of rules does not extend the grace time, and a token that expires earlier keeps its expiry."""
    principal = harness.access.by_key(harness.namespace, "send", KEY)
    short = replace(principal, expires_at_s=NOW_S + 5)
    harness.change(Replace(with_new_key(harness.rule, KeyKind.PRIMARY, now_ms=NOW_MS, key=None)))

    first = harness.access.current(principal, NOW_S)
    second = harness.access.current(first, NOW_S + 1000)

    assert (first.expires_at_s, second.expires_at_s) == (NOW_S + ROTATED_KEY_GRACE_S,) * 2
    assert harness.access.current(short, NOW_S).expires_at_s == NOW_S + 5
    with pytest.raises(CredentialRevoked):
        harness.access.current(first, NOW_S, ends_rotated=True)


def test_rights_of_a_principal_follow_its_rule(harness: AccessHarness) -> None:
    """Connected clients lose a right that the rule has lost; a rotated key cannot manage."""
    principal = harness.access.by_key(harness.namespace, "send", KEY)
    harness.change(Replace(replace(harness.rule, rights=Rights.ALL)))
    widened = harness.access.current(principal, NOW_S)
    harness.change(
        Replace(replace(harness.rule, rights=Rights.ALL, primary_key="another", secondary_key="and another"))
    )

    assert widened.rights is Rights.ALL
    assert harness.access.current(widened, NOW_S).rights == Rights.SEND | Rights.LISTEN
