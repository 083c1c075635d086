"""What people without the Manage right can see and do."""

from playwright.sync_api import expect

from portal.browser.visitor import Visitor


def test_listener_sees_events_and_changes_nothing(visitor: Visitor) -> None:
    """Buttons that change something are missing, and pages that need more rights say so."""
    visitor.add_hub("watched")
    visitor.publish("watched", '{"seen": 1}')
    visitor.enter(visitor.add_rule("listener", "Listen"))
    visitor.open("", "Overview")
    page = visitor.page

    expect(page.get_by_role("link", name="Access")).to_have_count(0)
    expect(page.get_by_role("link", name="Links")).to_be_visible()
    expect(visitor.button("New event hub")).to_have_count(0)
    visitor.open("/hub?hub=watched", "watched")
    expect(visitor.button("New consumer group")).to_have_count(0)
    expect(visitor.button("Save")).to_have_count(0)
    expect(visitor.button("Delete event hub")).to_have_count(0)
    visitor.open("/explorer?hub=watched", "Explorer")
    expect(visitor.row('{"seen": 1}')).to_be_visible()
    expect(visitor.button("Send event")).to_have_count(0)
    visitor.open("/scale", "Scale")
    expect(visitor.button("Save")).to_have_count(0)
    visitor.open("/capture", "Capture")
    expect(visitor.row("watched")).to_be_visible()
    expect(visitor.button("Edit", exact=False)).to_have_count(0)

    visitor.open("/access", "Access")

    expect(page.get_by_role("alert")).to_contain_text("Manage")
    expect(visitor.button("New rule")).to_have_count(0)


def test_sender_sends_and_sees_no_events(visitor: Visitor) -> None:
    """The right to send is not the right to read."""
    visitor.add_hub("written")
    visitor.publish("written", '{"unseen-body": 1}')
    visitor.enter(visitor.add_rule("sender", "Send"))

    visitor.open("/explorer?hub=written", "Explorer")
    visitor.button("Send event").click()
    visitor.button("Send").click()

    visitor.expect_notification("was sent.")
    expect(visitor.row("unseen-body")).to_have_count(0)
    assert "unseen-body" not in visitor.page.content()


def test_open_page_loses_a_right_that_is_removed(visitor: Visitor) -> None:
    """A page checks the right again before each change."""
    visitor.add_hub("locked")
    visitor.enter(visitor.add_rule("demoted", "Manage", "Send", "Listen"))
    visitor.open("/hub?hub=locked", "locked")
    visitor.button("Delete event hub").click()
    visitor.field("Type locked to confirm").fill("locked")

    visitor.add_rule("demoted", "Listen")
    visitor.button("Delete").click()

    visitor.expect_notification("Manage")
    visitor.open("/hub?hub=locked", "locked")


def test_key_of_a_hub_shows_that_hub_only(visitor: Visitor) -> None:
    """Names of other hubs stay hidden."""
    visitor.add_hub("theirs")
    visitor.add_hub("not-theirs")
    rule = "eventhubs/theirs/authorizationRules/only"
    visitor.arm("PUT", rule, {"properties": {"rights": ["Listen"]}})
    credential = visitor.arm("POST", f"{rule}/listKeys", {})["primaryConnectionString"]

    visitor.sign_in(credential)

    expect(visitor.page.get_by_role("link", name="theirs", exact=True)).to_be_visible()
    expect(visitor.row("not-theirs")).to_have_count(0)
    visitor.open("/hub?hub=not-theirs", "not-theirs")
    expect(visitor.page.get_by_role("alert")).to_contain_text("could not be found")
