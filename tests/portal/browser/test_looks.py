"""Colours, small screens, keyboard, and a thousand hubs."""

import re

from playwright.sync_api import Browser, expect

from hubmere.testing import Node
from portal.browser.visitor import Visitor

_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_PAGES = (
    ("", "Overview"),
    ("/hub?hub=orders", "orders"),
    ("/explorer", "Explorer"),
    ("/scale", "Scale"),
    ("/capture", "Capture"),
    ("/access", "Access"),
    ("/links", "Links"),
    ("/audit", "Audit"),
)


def test_pages_fit_on_a_phone(browser: Browser, portal_node: Node) -> None:
    """No page overflows: wide tables scroll inside their card."""
    phone = Visitor(browser.new_context(viewport={"width": 390, "height": 800}), portal_node)
    phone.enter(portal_node.admin_token)

    overflows = {}
    for path, heading in _PAGES:
        phone.open(path, heading)
        overflows[heading] = phone.page.evaluate(_OVERFLOW)

    phone.button("Menu").click()
    phone.page.get_by_role("link", name="Scale").click()
    phone.expect_heading("Scale")
    assert overflows == dict.fromkeys(overflows, 0)
    phone.context.close()


def test_colours_follow_the_browser_and_can_be_changed(browser: Browser, portal_node: Node) -> None:
    """The choice applies to the whole login."""
    visitor = Visitor(browser.new_context(color_scheme="dark"), portal_node)
    visitor.enter(portal_node.admin_token)
    visitor.open("/scale", "Scale")
    body = visitor.page.locator("body")
    expect(body).to_have_class(re.compile("body--dark"))

    visitor.button("Colours: browser default").click()
    expect(body).to_have_class(re.compile("body--light"))
    visitor.open("/links", "Links")

    expect(body).to_have_class(re.compile("body--light"))
    visitor.context.close()


def test_portal_works_with_the_keyboard(admin: Visitor) -> None:
    """Navigation and dialogs work without a mouse."""
    page = admin.page
    admin.open("/links", "Links")

    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").endswith("Access"):
            break
    page.keyboard.press("Enter")
    admin.expect_heading("Access")
    admin.button("New rule").focus()
    page.keyboard.press("Enter")
    expect(admin.field("Name")).to_be_focused()
    page.keyboard.press("Escape")

    expect(admin.button("Create")).to_have_count(0)
    admin.page.get_by_role("columnheader", name="Name").get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(admin.page.get_by_role("columnheader", name="Name")).to_have_attribute("aria-sort", "ascending")


def test_thousand_hubs_are_paged(browser: Browser) -> None:
    """Only the visible rows are sent to the browser."""
    names = [f"hub-{number:04}" for number in range(1000)]
    with Node(hubs=names, settings={"memory": True, "as": "unlimited"}) as node:
        visitor = Visitor(browser.new_context(), node)
        visitor.enter(node.admin_token)
        visitor.open("", "Overview")
        rows = visitor.page.locator("tbody tr")

        expect(rows).to_have_count(25)
        expect(visitor.page.get_by_text("1-25 of 1000")).to_be_visible()
        visitor.button("Next page").click()
        expect(visitor.row("hub-0025")).to_be_visible()
        visitor.page.get_by_label("Search event hubs").fill("0777")
        expect(rows).to_have_count(1)
        expect(visitor.row("hub-0777")).to_be_visible()
        assert "hub-0500" not in visitor.page.content()
        visitor.context.close()
