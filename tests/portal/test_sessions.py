"""How long a session lasts, and what it lets its holder see and do."""

import pytest

from broker.builders import ADMIN_TOKEN
from hubmere.model.entity import DefaultAction, NetworkRuleSet, Rights
from hubmere.model.errors import ClaimMissing, HubNotFound, InvalidAudience, NamespaceNotFound
from hubmere.model.names import namespace_name
from hubmere.model.spec import NamespaceSpec
from hubmere.portal import sessions as module
from hubmere.portal.sessions import IDLE_SECONDS, Sessions, SignedOut
from portal.builders import Desktop


def test_session_ends_after_a_day_of_silence(desktop: Desktop) -> None:
    """A browser that was left open does not stay a way in."""
    desk = desktop.a_desk()
    desktop.clock.advance(IDLE_SECONDS - 1)
    desk.principal  # noqa: B018  being asked keeps it awake

    desktop.clock.advance(IDLE_SECONDS + 1)

    with pytest.raises(SignedOut):
        desk.principal  # noqa: B018


def test_signed_out_session_does_nothing_more(desktop: Desktop) -> None:
    """A page that is still open asks the same session."""
    desk = desktop.a_desk()

    desk.session.is_open = False

    with pytest.raises(SignedOut):
        desk.namespaces()


def test_deleted_rule_ends_its_sessions(desktop: Desktop) -> None:
    """The session is worth what its credential is worth."""
    desk = desktop.a_desk(desktop.a_rule("watcher", "Listen"))

    desktop.do(lambda done: desktop.manager.delete_rule("hubmere", None, "watcher", desktop.actor(), done))

    with pytest.raises(SignedOut):
        desk.principal  # noqa: B018


def test_changed_rights_count_at_once(desktop: Desktop) -> None:
    """Nobody must sign out and in again to lose a right."""
    desk = desktop.a_desk(desktop.a_rule("worker", "Listen", "Send"))
    namespace = desktop.broker.namespace("hubmere")
    assert desk.may(Rights.SEND, namespace)

    desktop.a_rule("worker", "Listen")

    assert not desk.may(Rights.SEND, namespace)


def test_address_that_is_shut_out_loses_its_session(desktop: Desktop) -> None:
    """The firewall of a namespace holds for people too."""
    desk = desktop.a_desk(desktop.a_rule("watcher", "Listen"))
    rules = NetworkRuleSet(default_action=DefaultAction.DENY, ip_masks=("10.0.0.0/8",))

    desktop.do(lambda done: desktop.manager.update_network("hubmere", rules, desktop.actor(), done))

    with pytest.raises(SignedOut):
        desk.principal  # noqa: B018


def test_sessions_are_bounded(desktop: Desktop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signing in again and again uses no more memory; the quietest gives way."""
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    sessions = Sessions(desktop.broker, ADMIN_TOKEN)

    cookies = [sessions.sign_in(ADMIN_TOKEN, "127.0.0.1", float(now), 0.0) for now in range(5)]

    assert [sessions.find(cookie, 5.0) is not None for cookie in cookies] == [False, False, True, True, True]


def test_holder_of_a_hubs_key_sees_that_hub_only(desktop: Desktop) -> None:
    """Other hubs are not there, by name either."""
    desktop.a_hub("secrets")
    desk = desktop.a_desk(desktop.a_rule("watcher", "Listen", hub="orders"))
    namespace = desk.namespaces()[0]

    seen = [hub.name for hub in desk.hubs(namespace)]

    assert seen == ["orders"]
    assert not desk.sees_all(namespace)
    with pytest.raises(HubNotFound):
        desk.hub(namespace, "secrets")
    with pytest.raises(InvalidAudience):
        desk.require(Rights.LISTEN, namespace)


def test_holder_of_a_key_sees_no_other_namespace(desktop: Desktop) -> None:
    """A namespace of others cannot be told from one that does not exist."""
    other = namespace_name("elsewhere")
    desktop.do(lambda done: desktop.manager.create_namespace(other, NamespaceSpec(), desktop.actor(), done))
    desk = desktop.a_desk(desktop.connection_string())

    with pytest.raises(NamespaceNotFound):
        desk.namespace("elsewhere")

    assert [live.entity.name for live in desk.namespaces()] == ["hubmere"]
    assert [live.entity.name for live in desktop.a_desk().namespaces()] == ["elsewhere", "hubmere"]


def test_listener_may_not_manage(desktop: Desktop) -> None:
    """What a page does not offer is refused all the same."""
    desk = desktop.a_desk(desktop.a_rule("watcher", "Listen"))

    with pytest.raises(ClaimMissing):
        desk.require(Rights.MANAGE, desktop.broker.namespace("hubmere"), desktop.hub)
