"""Handlers of buttons: what a person sees when an action does not succeed."""

import asyncio
from typing import Any

import pytest

from hubmere.model.errors import Conflict
from hubmere.portal import theme


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Texts and durations of notifications."""
    shown: list[tuple[str, Any]] = []
    monkeypatch.setattr("nicegui.ui.notify", lambda text, *, timeout, **_: shown.append((text, timeout)))
    return shown


def press(action: theme.Action) -> None:
    """What a button does with its action."""

    async def act() -> None:
        await theme.action_handler(action)()

    asyncio.run(act())


def test_refusal_is_shown(notified: list[tuple[str, Any]]) -> None:
    """The reason is the text that every other client gets."""

    def refuse() -> None:
        raise Conflict("The hub is being deleted.")

    press(refuse)

    assert notified == [("The hub is being deleted.", 10_000)]


def test_defect_is_shown_and_logged(notified: list[tuple[str, Any]]) -> None:
    """A button that seems to do nothing would be pressed again; the exception reaches NiceGUI, which logs it."""

    async def fail() -> None:
        raise RuntimeError("unexpected")

    with pytest.raises(RuntimeError, match="unexpected"):
        press(fail)

    [(text, timeout)] = notified
    assert (text.startswith("This action failed"), timeout) == (True, 0)
