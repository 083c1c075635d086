"""What a person does wrong in the portal: clicks twice, takes a name in use, sends too much."""

from playwright.sync_api import expect

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
