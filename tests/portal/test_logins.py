"""How long a login lasts, and what its session may see and do."""

import pytest

from broker.builders import ADMIN_TOKEN
from hubmere.model.entity import DefaultAction, NetworkRuleSet, Rights
from hubmere.model.errors import ClaimMissing, HubNotFound, InvalidAudience, NamespaceNotFound
from hubmere.model.names import namespace_name
from hubmere.model.spec import NamespaceSpec
from hubmere.portal.sign_in import logins as module
from hubmere.portal.sign_in.logins import IDLE_SECONDS, Logins, SignedOut
from hubmere.portal.sign_in.portal_session import PageContext
from portal.builders import PortalHarness


def test_login_ends_when_it_is_idle_too_long(harness: PortalHarness) -> None:
    """A browser that was left open must not stay signed in."""
    session = harness.a_portal_session()
    harness.clock.advance(IDLE_SECONDS - 1)
    session.caller  # noqa: B018  use resets the idle time

    harness.clock.advance(IDLE_SECONDS + 1)

    with pytest.raises(SignedOut):
        session.caller  # noqa: B018


def test_signed_out_session_does_nothing_more(harness: PortalHarness) -> None:
    """Pages that are still open use the same login."""
    session = harness.a_portal_session()

    session.login.sign_out()

    with pytest.raises(SignedOut):
        session.caller  # noqa: B018


def test_deleted_rule_ends_its_logins(harness: PortalHarness) -> None:
    """A login is valid only while its credential is."""
    session = harness.a_portal_session(harness.a_rule("watcher", "Listen"))

    harness.do(lambda done: harness.manager.delete_rule("hubmere", None, "watcher", harness.actor(), done))

    with pytest.raises(SignedOut):
        session.caller  # noqa: B018


def test_changed_rights_apply_immediately(harness: PortalHarness) -> None:
    """An open login must not keep rights that were removed."""
    context = harness.a_page_context(harness.a_rule("worker", "Listen", "Send"))
    assert context.may(Rights.SEND)

    harness.a_rule("worker", "Listen")

    assert not context.may(Rights.SEND)


def test_new_address_rule_ends_the_login(harness: PortalHarness) -> None:
    """Address rules of a namespace apply to the portal too."""
    session = harness.a_portal_session(harness.a_rule("watcher", "Listen"))
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))

    harness.do(lambda done: harness.manager.update_network("hubmere", rules, harness.actor(), done))

    with pytest.raises(SignedOut):
        session.caller  # noqa: B018


def test_number_of_logins_is_bounded(harness: PortalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated sign-ins must not use more and more memory; the login that was idle longest is removed."""
    monkeypatch.setattr(module, "MAX_LOGINS", 3)
    logins = Logins(harness.broker)

    cookies = [logins.sign_in(ADMIN_TOKEN, "127.0.0.1", float(now), 0.0) for now in range(5)]

    assert [logins.find(cookie, 5.0) is not None for cookie in cookies] == [False, False, True, True, True]


def test_key_of_a_hub_shows_that_hub_only(harness: PortalHarness) -> None:
    """Even the names of other hubs stay hidden."""
    harness.a_hub("secrets")
    context = harness.a_page_context(harness.a_rule("watcher", "Listen", hub="orders"))

    names = [hub.name for hub in context.hubs()]

    assert names == ["orders"]
    assert not context.covers_namespace
    with pytest.raises(HubNotFound):
        context.hub("secrets")
    with pytest.raises(InvalidAudience):
        context.require(Rights.LISTEN)


def test_key_shows_no_other_namespace(harness: PortalHarness) -> None:
    """An inaccessible namespace is reported as missing."""
    other = namespace_name("elsewhere")
    harness.do(lambda done: harness.manager.create_namespace(other, NamespaceSpec(), harness.actor(), done))
    holder, admin = harness.a_portal_session(harness.connection_string()), harness.a_portal_session()

    with pytest.raises(NamespaceNotFound):
        PageContext(holder, "elsewhere", "/portal").namespace  # noqa: B018

    assert [namespace.name for namespace in holder.caller.namespaces()] == ["hubmere"]
    assert [namespace.name for namespace in admin.caller.namespaces()] == ["elsewhere", "hubmere"]


def test_listener_may_not_manage(harness: PortalHarness) -> None:
    """The session refuses it even if a page offered it by mistake."""
    context = harness.a_page_context(harness.a_rule("watcher", "Listen"))

    with pytest.raises(ClaimMissing):
        context.require(Rights.MANAGE, context.hub("orders"))
