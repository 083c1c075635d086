"""axe-core finds no serious problem on any page or dialog, in light and dark colours; nothing scrolls sideways."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from conformance.clients import NotInstalled, axe_script
from hubmere.testing import Node
from portal.browser.places import DIALOGS, OVERFLOW, PAGES, TABLE_OVERFLOW, all_places, open_dialog
from portal.browser.visitor import Visitor

_BELOW = "/n/{namespace}"
_ANY_TEXT = re.compile(".+")
_SERIOUS = ("serious", "critical")
_WIDTHS = (390, 768, 1280, 1920)
_CARD_OVERFLOW = """Math.max(...[...document.querySelectorAll('[role=dialog] .h-card')]
    .map(card => card.scrollWidth - card.clientWidth))"""


@pytest.fixture(scope="module")
def _places(browser: Browser, portal_node: Node, captured_folder: Path) -> Iterator[None]:
    """Something to show on every page."""
    with browser.new_context() as context, all_places(Visitor(context, portal_node), captured_folder):
        yield


@pytest.fixture(params=["light", "dark"])
def person(request: pytest.FixtureRequest, browser: Browser, portal_node: Node, _places: None) -> Iterator[Visitor]:
    """The administrator, in light and in dark colours."""
    scheme: Literal["light", "dark"] = request.param
    with browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme) as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
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


def test_list_of_pages_is_complete() -> None:
    """A new page is checked by every test that visits all pages."""
    # In a process of its own: NiceGUI keeps state in its modules.
    program = "import hubmere.portal.nicegui_app; from nicegui import Client; print(*Client.page_routes.values())"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    registered = {path.removeprefix(_BELOW) for path in printed.stdout.split() if path.startswith(_BELOW)}

    assert {path.partition("?")[0] for path, _ in PAGES} == registered


def test_pages_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """An operator may use a screen reader, a keyboard, or a bad screen."""
    problems = {}
    for path, heading in PAGES:
        person.open(path, heading)
        problems[heading] = _problems(person)

    assert problems == {heading: [] for heading in problems}


def test_dialogs_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """Dialogs have names, and everything in them has a label."""
    problems = {}
    for path, heading, buttons in DIALOGS:
        dialog = open_dialog(person, path, heading, buttons)
        expect(dialog).to_have_attribute("aria-label", _ANY_TEXT)
        # The dialog fades in, and labels move; until then their text has little contrast.
        person.page.add_style_tag(content=_NO_MOTION)
        person.page.wait_for_function(_IS_STILL)
        problems[heading, *buttons] = _problems(person)

    assert problems == {place: [] for place in problems}


def test_results_in_dialogs_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """A preview and a displayed key are part of their dialog."""
    problems = {}
    for path, heading, opener, button, text in (
        ("/group?protocol=Kafka&group=billing", "billing", "Reset offsets", "Preview", "orders"),
        ("/access", "Access", "Keys (namespace) reading", "Show (primary)", "="),
    ):
        dialog = open_dialog(person, path, heading, (opener,))
        dialog.get_by_role("button", name=button, exact=True).click()
        expect(dialog).to_contain_text(text)
        person.page.add_style_tag(content=_NO_MOTION)
        person.page.wait_for_function(_IS_STILL)
        problems[heading] = _problems(person)

    assert problems == {heading: [] for heading in problems}


def test_button_that_is_hovered_or_focused_has_no_serious_accessibility_problem(person: Visitor) -> None:
    """It has a background then, which must not take the contrast from its text."""
    problems = {}
    button = open_dialog(person, "/access", "Access", ("Keys (namespace) reading",)).get_by_role(
        "button", name="Show (primary)", exact=True
    )
    person.page.add_style_tag(content=_NO_MOTION)
    for act in (button.hover, button.focus):
        act()
        person.page.wait_for_function(_IS_STILL)
        problems[act.__name__] = _problems(person)

    assert problems == {"hover": [], "focus": []}


def test_sign_in_and_missing_pages_have_no_serious_accessibility_problem(person: Visitor) -> None:
    """They are outside of the navigation, and people meet them first, or by accident."""
    problems = {}
    for path in ("/nothing", f"/n/{person.node.namespace}/nothing", f"/n/{person.node.namespace}/hub?hub=missing"):
        person.page.goto(f"{person.origin}/portal{path}")
        problems[path] = _problems(person)
    person.context.clear_cookies()
    person.page.goto(f"{person.origin}/portal/")
    expect(person.button("Sign in")).to_be_visible()
    problems["sign-in"] = _problems(person)

    assert problems == {path: [] for path in problems}


def test_no_page_scrolls_sideways(person: Visitor) -> None:
    """From a phone to a wide screen, wide tables scroll inside their card."""
    overflows = {}
    for path, heading in PAGES:
        for width in _WIDTHS:
            person.page.set_viewport_size({"width": width, "height": 900})
            if width == _WIDTHS[0]:
                person.open(path, heading)
            overflows[heading, width] = person.page.evaluate(OVERFLOW)

    assert {place for place, pixels in overflows.items() if pixels > 0} == set()


@pytest.mark.parametrize("width", [768, 1280])
def test_no_column_is_hidden(person: Visitor, width: int) -> None:
    """An operator would not know that a table goes on behind its last button."""
    person.page.set_viewport_size({"width": width, "height": 900})
    overflows = {}
    for path, heading in PAGES:
        person.open(path, heading)
        overflows[heading] = person.page.evaluate(TABLE_OVERFLOW)

    assert {heading: pixels for heading, pixels in overflows.items() if pixels > 0} == {}


def test_no_dialog_is_wider_than_the_window(person: Visitor) -> None:
    """No dialog scrolls sideways, and its last button can be scrolled to."""
    person.page.set_viewport_size({"width": _WIDTHS[0], "height": 700})
    overflows = {}
    for path, heading, buttons in DIALOGS:
        dialog = open_dialog(person, path, heading, buttons)
        dialog.get_by_role("button").last.scroll_into_view_if_needed()
        expect(dialog.get_by_role("button").last).to_be_in_viewport(ratio=1)
        overflows[heading, *buttons] = person.page.evaluate(_CARD_OVERFLOW)

    assert {place for place, pixels in overflows.items() if pixels > 0} == set()
