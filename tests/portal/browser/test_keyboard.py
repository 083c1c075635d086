"""Every action of every page and dialog works with the keyboard alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, expect

from hubmere.testing import Node
from portal.browser.captured import FILE
from portal.browser.conftest import WINDOW
from portal.browser.places import DIALOGS, PAGES, all_places, labelled, open_dialog
from portal.browser.visitor import Visitor

# What each page is for: the walk must meet these, and everything else that can be clicked.
_ACTIONS = {
    "Overview": ("Copy", "Copy without TLS", "New event hub", "Search event hubs", "Sign out"),
    "orders": ("New consumer group", "Save", "Delete event hub", "Copy"),
    "Explorer": ("Search", "Live", "Export JSON", "Export CSV", "Send event", "Open 0/0"),
    "Consumer groups": ("Search groups",),
    "shipping": ("Delete group",),
    "billing": ("Reset offsets", "Delete group"),
    "Event processors": ("Search processors", "Reset orders"),
    "Scale": ("Save", "Auto-inflate"),
    "Capture": ("Edit orders", "Files archived"),
    "Captured files": ("List",),
    "Access": ("New rule", "Create token", "Revoke", "Search rules and hubs", "Keys (namespace)"),
    "Role assignments": ("Assign role", "Search assignments", "Delete 0d4f4e0a"),
    "Network": ("Save", "New application group", "Edit slow", "Delete slow"),
    "Recovery": ("New alias", "New namespace", "Delete backup", "Delete spares"),
    "Links": ("Close ", "Links "),
    "Audit": ("Sign out",),
    "Gateways": ("Sign out",),
}
_MAX_TABS = 400
# Run with the command line API of the developer tools, which lists listeners: everything that reacts to a click or has
# the role of a control. A row that opens counts as met by the button in it. Of a group of tabs or radio buttons, Tab
# reaches the selected one, and arrow keys the others (ARIA Authoring Practices). A label passes its click to its field.
# Quasar listens on every header cell and every chip; a column that cannot be sorted and the text of a chip do nothing.
_UNMET = """(() => {
  const roles = ['button', 'switch', 'checkbox', 'combobox', 'tab', 'radio', 'link', 'menuitem', 'option', 'slider']
  const isControl = (element) => element.matches('button, a[href], input, textarea, select, summary')
    || roles.includes(element.getAttribute('role')) || 'click' in getEventListeners(element)
  const isUsable = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !element.disabled && !element.closest('[aria-hidden=true], [aria-disabled=true], [inert], .h-chart')
    && element.getClientRects().length > 0 && !element.matches('th:not([aria-sort]), .q-chip')
  const isMet = (element) => {
    const around = [element, element.closest('[role=tablist], [role=radiogroup], label')]
    return element.closest('[data-met]') || around.some((one) => one?.querySelector('[data-met]'))
  }
  return [...[...document.querySelectorAll('ROOT')].at(-1).querySelectorAll('*')]
    .filter((element) => isControl(element) && isUsable(element) && !isMet(element))
    .map((element) => element.outerHTML.slice(0, 200))
})()"""
# What moved up or down by itself since the page was drawn; the line below a table may, because rows arrive.
_WATCH_MOVES = """window.moves = []
new PerformanceObserver((list) => {
  for (const { sources } of list.getEntries())
    for (const { node, previousRect, currentRect } of sources)
      if (Math.abs(previousRect.y - currentRect.y) >= 2 && !node?.parentElement?.closest('.q-table__container'))
        window.moves.push(`${node?.className ?? '?'}: ${previousRect.y} to ${currentRect.y}`)
}).observe({ type: 'layout-shift', buffered: true })"""
# What a page shows after it was drawn.
_LATER = {"Overview": "expires ", "Explorer": "Page 1", "Captured files": FILE}
_MET_OUTSIDE = """dialog => [...document.querySelectorAll('[data-met]')]
    .filter((element) => !dialog.contains(element)).map((element) => element.outerHTML.slice(0, 200))"""
_MEET = """() => {
  const element = document.activeElement
  if (!element || element === document.body) return null
  const isNew = !element.dataset.met
  element.dataset.met = 'yes'
  const name = element.getAttribute('aria-label') || element.textContent.trim() || element.getAttribute('placeholder')
  return [isNew, name || '']
}"""


@pytest.fixture(scope="module")
def operator(browser: Browser, portal_node: Node, captured_folder: Path) -> Iterator[Visitor]:
    """The administrator, in one browser for all pages."""
    with browser.new_context(viewport=WINDOW) as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
        with all_places(visitor, captured_folder):
            yield visitor


@pytest.fixture(scope="module")
def tools(operator: Visitor) -> CDPSession:
    """The developer tools of the browser."""
    return operator.context.new_cdp_session(operator.page)


def walk(visitor: Visitor) -> set[str]:
    """Press Tab until nothing new gets the focus. Returns the names of what had it."""
    names: set[str] = set()
    repeated = 0
    for _ in range(_MAX_TABS):
        visitor.page.keyboard.press("Tab")
        met = visitor.page.evaluate(_MEET)
        repeated = repeated + 1 if met is None or not met[0] else 0
        if met is not None:
            names.add(met[1])
        if repeated >= 3:
            break
    return names


def unmet(tools: CDPSession, root: str) -> list[str]:
    """What can be clicked below the last element of a selector and had no focus."""
    answer = tools.send(
        "Runtime.evaluate",
        {"expression": _UNMET.replace("ROOT", root), "includeCommandLineAPI": True, "returnByValue": True},
    )
    assert "exceptionDetails" not in answer, answer
    found: list[str] = answer["result"]["value"]
    return found


def test_every_action_of_every_page_is_reached_with_tab(operator: Visitor, tools: CDPSession) -> None:
    """Nothing on a page is for the mouse alone."""
    missed, absent = {}, {}
    for path, heading in PAGES:
        operator.open(path, heading)
        # Rows arrive with the first refresh at the latest.
        for action in _ACTIONS[heading]:
            expect(labelled(operator, action).first).to_be_visible()

        names = walk(operator)

        missed[heading] = unmet(tools, "body")
        absent[heading] = [action for action in _ACTIONS[heading] if not any(action in name for name in names)]
    assert missed == {heading: [] for heading in missed}
    assert absent == {heading: [] for heading in absent}


def test_every_dialog_is_opened_used_and_closed_with_the_keyboard(operator: Visitor, tools: CDPSession) -> None:
    """Enter opens it, Tab reaches everything in it and stays in it, Escape closes it."""
    missed, outside = {}, {}
    for path, heading, buttons in DIALOGS:
        dialog = open_dialog(operator, path, heading, buttons)

        walk(operator)

        missed[heading, *buttons] = unmet(tools, "[role=dialog]")
        outside[heading, *buttons] = dialog.evaluate(_MET_OUTSIDE)
        operator.page.keyboard.press("Escape")
        expect(operator.page.get_by_role("dialog")).to_have_count(len(buttons) - 1)
    assert missed == {place: [] for place in missed}
    assert outside == {place: [] for place in outside}


# --- each kind of control does its work by a key ---


def test_link_of_the_navigation_is_followed(operator: Visitor) -> None:
    """Tab from the start of the page, Enter."""
    operator.open("/links", "Links")

    for _ in range(30):
        operator.page.keyboard.press("Tab")
        if operator.page.evaluate("document.activeElement.textContent").endswith("Access"):
            break
    operator.page.keyboard.press("Enter")

    operator.expect_heading("Access")


def test_header_of_a_column_sorts_and_keeps_the_focus(operator: Visitor) -> None:
    """Pressed again, it turns the order."""
    operator.open("/access", "Access")
    header = operator.page.get_by_role("columnheader", name="Name")

    header.get_by_role("button").press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    operator.page.keyboard.press("Enter")

    expect(header).to_have_attribute("aria-sort", "descending")
    expect(header.get_by_role("button")).to_be_focused()


def test_enter_in_a_field_confirms_the_dialog(operator: Visitor) -> None:
    """As in every form: a refused name stays, a good one is created; a double press creates one."""
    operator.open("/hub?hub=orders", "orders")
    operator.button("New consumer group").press("Enter")
    operator.field("Name").fill("not a name")
    operator.field("Name").press("Enter")
    operator.expect_notification("consumer group name")
    expect(operator.field("Name")).to_have_value("not a name")

    operator.field("Name").fill("by-enter")
    operator.field("Name").press("Enter")

    operator.expect_notification("Consumer group by-enter was created.")
    expect(operator.page.get_by_role("dialog")).to_have_count(0)
    operator.arm("DELETE", "eventhubs/orders/consumergroups/by-enter", {})


def test_row_opens_tabs_change_and_text_is_copied(operator: Visitor) -> None:
    """A row by its button, a tab by arrow keys, a snippet by its copy button."""
    operator.open("/explorer?hub=orders", "Explorer")
    operator.button("Open 0/0").press("Enter")
    tab = operator.page.get_by_role("dialog").get_by_role("tab", name="JSON", exact=True)
    tab.press("ArrowRight")
    operator.page.keyboard.press("Enter")
    expect(operator.page.get_by_role("tab", name="Text", exact=True)).to_have_attribute("aria-selected", "true")

    operator.open("", "Overview")
    labelled(operator, "Copy without TLS").first.press("Enter")

    operator.expect_notification("copied.")


def test_switch_list_and_chip_are_used(operator: Visitor) -> None:
    """Space turns a switch, arrow keys choose from a list, and the cross of a chip deletes after a confirmation."""
    operator.open("/capture", "Capture")
    operator.button("Edit orders").press("Enter")
    switch = operator.page.get_by_role("switch", name="Enabled", exact=True)
    switch.press("Space")
    expect(switch).to_be_checked()
    operator.field("Encoding").press("Enter")
    expect(operator.page.get_by_role("option", name="Parquet", exact=True)).to_be_visible()
    operator.page.keyboard.press("ArrowDown")
    operator.page.keyboard.press("Enter")
    expect(operator.page.get_by_role("option")).to_have_count(0)

    operator.arm("PUT", "eventhubs/orders/consumergroups/leaving", {"properties": {}})
    operator.open("/hub?hub=orders", "orders")
    chip = operator.page.locator(".q-chip", has_text="leaving")
    chip.locator(".q-chip__icon--remove").press("Enter")
    operator.button("Delete").press("Enter")

    operator.expect_notification("Consumer group leaving was deleted.")


# --- a page that changes while it is used ---


def test_button_keeps_the_focus_while_the_rows_change(operator: Visitor) -> None:
    """A table is redrawn every second; the person must not start at the top of the page again."""
    operator.open("/capture", "Capture")
    edit = operator.button("Edit orders")
    edit.focus()

    operator.add_hub("arriving")
    expect(operator.row("arriving")).to_be_visible()

    expect(edit).to_be_focused()


def test_click_counts_when_the_rows_change_between_press_and_release(operator: Visitor) -> None:
    """On a busy machine the two are far apart; the button must be the same at both."""
    operator.open("/capture", "Capture")
    edit = operator.button("Edit orders")
    edit.hover()

    operator.page.mouse.down()
    operator.add_hub("zz-arriving")
    expect(operator.row("zz-arriving")).to_be_visible()
    operator.page.mouse.up()

    expect(operator.page.get_by_role("dialog")).to_be_visible()


def test_pages_do_not_move_after_they_were_drawn(browser: Browser, operator: Visitor) -> None:
    """A button that moves between the press and the release of the mouse gets no click."""
    moves = {}
    with browser.new_context(viewport={"width": 1280, "height": 2400}) as context:
        context.add_init_script(_WATCH_MOVES)
        visitor = Visitor(context, operator.node)
        visitor.enter(operator.node.admin_token)
        for path, heading in PAGES:
            visitor.open(path, heading)
            for action in _ACTIONS[heading]:
                expect(labelled(visitor, action).first).to_be_visible()
            expect(visitor.page.get_by_text(_LATER.get(heading, heading)).first).to_be_visible()
            moves[heading] = visitor.page.evaluate("() => new Promise((done) => setTimeout(() => done(moves), 100))")

    assert moves == {heading: [] for heading in moves}
