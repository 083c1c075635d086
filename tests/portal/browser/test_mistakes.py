"""What a person does wrong in the portal: clicks twice, takes a name in use, sends too much."""

import re

import pytest
from playwright.sync_api import expect

from hubmere.testing import Node
from portal.browser.visitor import Visitor

# NiceGUI sends no change of a field of 1 MB from the browser.
_TOO_LARGE_TO_ARRIVE = 1_100_000


def test_double_click_sends_one_event(admin: Visitor) -> None:
    """Many people click twice out of habit."""
    admin.add_hub("twice", partitions=1)
    admin.open("/explorer?hub=twice", "Explorer")

    admin.button("Send event").click()
    # Both clicks arrive at the node before the event is stored.
    admin.button("Send").evaluate("button => { button.click(); button.click(); }")
    admin.expect_notification("Event 0 was sent.")
    admin.publish("twice", "the next event")
    admin.button("Search").click()

    expect(admin.page.get_by_text("Page 1: 2 events, 2 examined.")).to_be_visible()


@pytest.mark.parametrize("length", [150_001, _TOO_LARGE_TO_ARRIVE])
def test_body_that_is_too_large_for_the_form_is_refused(admin: Visitor, length: int) -> None:
    """The node would send the text that it had before."""
    admin.add_hub("limited", partitions=1)
    admin.open("/explorer?hub=limited", "Explorer")

    admin.button("Send event").click()
    admin.field("Body").fill("x" * length)
    admin.button("Send").click()

    admin.expect_notification("at most 150,000 characters in this form")


def test_properties_that_are_nested_too_deeply_are_refused(admin: Visitor) -> None:
    """Python stops to parse them with an error of its own."""
    admin.open("/explorer?hub=orders", "Explorer")

    admin.button("Send event").click()
    admin.field("Properties as a JSON object (optional)").fill("[" * 5000)
    admin.button("Send").click()

    admin.expect_notification("a JSON object with strings, numbers and booleans")


def test_new_rule_does_not_replace_one_of_the_same_name(admin: Visitor) -> None:
    """Its clients would lose their rights, or get more."""
    admin.add_rule("in-use", "Listen")
    admin.open("/access", "Access")

    admin.button("New rule").click()
    admin.field("Name").fill("In-Use")
    admin.page.get_by_role("dialog").get_by_role("checkbox", name="Send").click()
    admin.button("Create").click()

    admin.expect_notification("already exists")
    assert admin.arm("GET", "authorizationRules/in-use", {})["properties"]["rights"] == ["Listen"]


def test_new_application_group_does_not_replace_one_of_the_same_name(admin: Visitor) -> None:
    """Its clients would get other limits."""
    policy = {"type": "ThrottlingPolicy", "name": "in", "metricId": "IncomingMessages", "rateLimitThreshold": 7}
    described = {"clientAppGroupIdentifier": "SASKeyName=RootManageSharedAccessKey", "policies": [policy]}
    admin.arm("PUT", "applicationGroups/limited", {"properties": described})
    admin.open("/network", "Network")

    admin.button("New application group").click()
    admin.field("Name").fill("limited")
    admin.button("Save").last.click()

    admin.expect_notification("already exists")
    found = admin.arm("GET", "applicationGroups/limited", {})["properties"]["policies"]
    assert [each["rateLimitThreshold"] for each in found] == [7]


def test_lag_of_a_group_that_nobody_reads_with_is_unknown(admin: Visitor) -> None:
    """A lag of 0 would say that everything was read."""
    admin.add_hub("unread", partitions=1)
    admin.publish("unread", "{}")

    admin.open("/groups", "Consumer groups")
    admin.page.get_by_label("Search groups").fill("unread")
    expect(admin.row("unread").locator("td").nth(5)).to_have_text("unknown")
    expect(admin.row("unread").locator("td").nth(6)).to_have_text("")
    admin.open("/group?protocol=AMQP&hub=unread&group=$Default", "$Default")

    expect(admin.page.locator(".h-tile", has_text="Total lag").locator(".h-tile-number")).to_have_text("unknown")


def test_page_of_a_deleted_hub_says_that_it_is_out_of_date(admin: Visitor) -> None:
    """Its last numbers look like those of a hub that gets no events."""
    admin.add_hub("out-of-date")
    admin.open("/hub?hub=out-of-date", "out-of-date")

    admin.arm("DELETE", "eventhubs/out-of-date", {})

    admin.expect_notification("This page is no longer updated.")
    admin.page.reload()
    admin.page.get_by_role("link", name="Go to the overview").press("Enter")
    admin.expect_heading("Overview")


def test_live_view_of_a_deleted_hub_ends(admin: Visitor) -> None:
    """Otherwise the same message appears twice a second."""
    admin.add_hub("short-lived", partitions=1)
    admin.open("/explorer?hub=short-lived", "Explorer")
    live = admin.page.get_by_role("switch", name="Live")
    live.click()
    expect(admin.page.get_by_text("Live: new events appear here.")).to_be_visible()

    admin.arm("DELETE", "eventhubs/short-lived", {})

    admin.expect_notification("could not be found")
    expect(live).to_have_attribute("aria-checked", "false")


def test_pages_with_buttons_in_tables_log_no_warnings(admin: Visitor, portal_node: Node) -> None:
    """Whoever reads the node's log looks for problems of the node."""
    admin.open("/access", "Access")
    expect(admin.page.get_by_role("button", name=re.compile("^Keys")).first).to_be_visible()

    assert "Found list in column" not in portal_node.logs()
