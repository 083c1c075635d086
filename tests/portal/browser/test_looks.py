"""Colours, small screens, and a thousand hubs."""

import re

from playwright.sync_api import Browser, expect

from hubmere.testing import Node
from portal.browser.places import OVERFLOW, TABLE_OVERFLOW
from portal.browser.visitor import Visitor

_LONG = "n" * 200


def test_navigation_of_a_phone_is_in_a_menu(browser: Browser, portal_node: Node) -> None:
    """A small screen has no room for it beside the page."""
    with browser.new_context(viewport={"width": 390, "height": 800}) as context:
        phone = Visitor(context, portal_node)
        phone.enter(portal_node.admin_token)
        phone.open("/links", "Links")

        phone.button("Menu").press("Enter")
        phone.page.get_by_role("link", name="Scale").press("Enter")

        phone.expect_heading("Scale")


def test_header_shows_the_namespace_and_stays_on_one_line(browser: Browser, portal_node: Node) -> None:
    """With several namespaces it has a list to choose from; also on a phone, the name and the buttons are readable."""
    with browser.new_context() as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
        visitor.arm_namespace("another-namespace")
        for width in (390, 768, 1920):
            visitor.page.set_viewport_size({"width": width, "height": 800})
            visitor.open("/links", "Links")

            name = visitor.page.locator(".h-header .q-field__native span", has_text=portal_node.namespace)
            shown, button = name.bounding_box(), visitor.button("Sign out").bounding_box()
            assert shown is not None
            assert button is not None
            assert shown["width"] > 40
            assert button["height"] < 40
            assert button["x"] + button["width"] <= width


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


# The times on the time axis of the first chart as they are written, and in UTC.
_AXIS_TIMES = """() => {
  const chart = getElement(Number(document.querySelector(".h-chart").id.slice(1)))?.chart;
  const labels = chart ? chart.getModel().getComponent("xAxis").axis.getViewLabels() : [];
  const drawn = labels.filter(label => label.tick.value > 1e12);
  const times = drawn.map(label => new Date(label.tick.value).toISOString().slice(0, 19).replace("T", " "));
  return drawn.length ? [drawn.map(label => label.rawLabel), times] : null;
}"""


def test_times_of_charts_are_in_utc_like_all_others(browser: Browser, portal_node: Node) -> None:
    """A peak is compared with the times of events, wherever the operator is."""
    with browser.new_context(timezone_id="Asia/Tokyo") as context:
        visitor = Visitor(context, portal_node)
        visitor.enter(portal_node.admin_token)
        visitor.open("/scale", "Scale")
        expect(visitor.page.get_by_text("Time range (UTC)")).to_be_visible()

        written, in_utc = visitor.page.wait_for_function(_AXIS_TIMES).json_value()

    assert written == in_utc


def test_long_names_keys_and_bodies_hide_no_column(admin: Visitor) -> None:
    """Clients choose them, and one of them would hide the lag or the body of every row."""
    admin.add_hub(_LONG)
    admin.arm("PUT", f"eventhubs/{_LONG}/consumergroups/{_LONG[:50]}", {"properties": {}})
    admin.arm("PUT", f"eventhubs/{_LONG}/authorizationRules/{_LONG[:50]}", {"properties": {"rights": ["Listen"]}})
    admin.publish("orders", "x" * 1000, key="k" * 120)
    overflows = {}
    for width in (768, 1280, 1920):
        admin.page.set_viewport_size({"width": width, "height": 900})
        for path, heading, text in (
            ("", "Overview", _LONG),
            ("/explorer?hub=orders", "Explorer", "kkk"),
            ("/groups", "Consumer groups", _LONG),
            ("/capture", "Capture", _LONG),
            ("/access", "Access", _LONG),
            ("/audit", "Audit", _LONG),
        ):
            admin.open(path, heading)
            expect(admin.row(text).first).to_be_visible()
            overflows[heading, width] = admin.page.evaluate(TABLE_OVERFLOW)

    assert {place: pixels for place, pixels in overflows.items() if pixels > 0} == {}


def test_event_has_one_line_in_the_explorer(admin: Visitor) -> None:
    """A page of events is read by running the eyes down its columns."""
    admin.add_hub("lines", partitions=1)
    admin.publish("lines", "x" * 1000, key="k" * 120)
    admin.open("/explorer?hub=lines", "Explorer")

    heights = (
        admin.row("kkk")
        .locator("td")
        .evaluate_all(
            "cells => cells.map(cell => { const range = document.createRange(); range.selectNodeContents(cell);"
            " return range.getBoundingClientRect().height / parseFloat(getComputedStyle(cell).fontSize); })"
        )
    )

    assert max(heights[1:]) < 2


def test_long_names_make_no_page_wider_than_a_phone(admin: Visitor) -> None:
    """Buttons would be beside the screen."""
    admin.add_hub(f"w{_LONG}")
    admin.arm("PUT", f"eventhubs/w{_LONG}/consumergroups/{_LONG[:50]}", {"properties": {}})
    admin.page.set_viewport_size({"width": 390, "height": 900})
    overflows = {}
    for path, heading in (
        ("", "Overview"),
        (f"/hub?hub=w{_LONG}", f"w{_LONG}"),
        (f"/explorer?hub=w{_LONG}", "Explorer"),
        (f"/group?protocol=AMQP&hub=w{_LONG}&group={_LONG[:50]}", _LONG[:50]),
        ("/groups", "Consumer groups"),
        ("/access", "Access"),
    ):
        admin.open(path, heading)
        expect(admin.page.locator(".h-card").last).to_be_visible()
        overflows[heading] = admin.page.evaluate(OVERFLOW)

    assert {heading: pixels for heading, pixels in overflows.items() if pixels > 0} == {}


def test_new_node_leads_to_the_first_event(browser: Browser) -> None:
    """Without an event hub, each page has a next step, and the first steps follow what has been done."""
    with Node(settings={"memory": True, "as": "unlimited"}) as node, browser.new_context() as context:
        visitor = Visitor(context, node)
        visitor.enter(node.admin_token)
        for path, heading in (("/groups", "Consumer groups"), ("/capture", "Capture")):
            visitor.open(path, heading)
            expect(visitor.page.get_by_text("yet").first).to_be_visible()
        visitor.open("/explorer", "Explorer")
        visitor.page.get_by_role("link", name="Create one on the overview").click()
        visitor.expect_heading("Overview")

        visitor.button("Create an event hub").click()
        visitor.field("Name").fill("first")
        visitor.field("Name").press("Enter")
        visitor.button("Send a test event to first").click()

        expect(visitor.page.get_by_text("Event 0 was sent to first.")).to_be_visible()


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
