"""axe-core finds no serious problem on any page or dialog, in light and dark colours; nothing scrolls sideways."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from conformance.clients import NotInstalled, axe_script
from hubmere.testing import Node
from portal.browser.captured import add_captured_files
from portal.browser.places import DIALOGS, PAGES
from portal.browser.visitor import Visitor

_ANY_TEXT = re.compile(".+")
_SERIOUS = ("serious", "critical")
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(params=["light", "dark"])
def person(
    request: pytest.FixtureRequest, browser: Browser, portal_node: Node, captured_folder: Path
) -> Iterator[Visitor]:
    """The administrator, in light and in dark colours."""
    scheme: Literal["light", "dark"] = request.param
    with browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme) as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
        visitor.rest("POST", "orders/partitions/0/messages", content=b"{}")
        add_captured_files(visitor, captured_folder)
        yield visitor


def _problems(visitor: Visitor) -> list[str]:
    """What axe-core calls serious or critical, with the first element of each."""
    try:
        script = axe_script()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    visitor.page.evaluate(script.read_text("utf-8"))
    found: dict[str, Any] = visitor.page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{problem['id']}: {problem['nodes'][0]['html'][:200]} {problem['nodes'][0]['failureSummary'][:300]}"
        for problem in found["violations"]
        if problem["impact"] in _SERIOUS
    ]


_NO_MOTION = "*, *::before, *::after { animation: none !important; transition: none !important }"
_IS_STILL = """() => !document.querySelector('[class*="-enter-from"], [class*="-enter-active"]')
    && document.getAnimations().length === 0"""


def test_pages_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """An operator may use a screen reader, a keyboard, or a bad screen."""
    problems = {}
    for path, heading in PAGES:
        person.open(path, heading)
        person.page.wait_for_function("() => window.socket && window.socket.connected")
        problems[heading] = _problems(person)

    assert problems == {heading: [] for heading in problems}


def test_dialogs_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """Dialogs have names, and everything in them has a label."""
    problems = {}
    for path, heading, button in DIALOGS:
        person.open(path, heading)
        person.page.wait_for_function("() => window.socket && window.socket.connected")
        person.button(button).first.click()
        dialog = person.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(dialog).to_have_attribute("aria-label", _ANY_TEXT)
        # The dialog fades in, and labels move; until then their text has little contrast.
        person.page.add_style_tag(content=_NO_MOTION)
        person.page.wait_for_function(_IS_STILL)
        problems[button] = _problems(person)

    assert problems == {button: [] for button in problems}


def test_no_page_scrolls_sideways(browser: Browser, portal_node: Node, captured_folder: Path) -> None:
    """From a phone to a wide screen, wide tables scroll inside their card."""
    with browser.new_context() as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
        add_captured_files(visitor, captured_folder)
        overflows = {}
        for path, heading in PAGES:
            for width in (390, 768, 1280, 1920):
                visitor.page.set_viewport_size({"width": width, "height": 900})
                if width == 390:
                    visitor.open(path, heading)
                overflows[heading, width] = visitor.page.evaluate(_OVERFLOW)

        assert {place for place, pixels in overflows.items() if pixels > 0} == set()
