"""Management of a namespace in the portal, as the administrator."""

import re

import httpx
from playwright.sync_api import expect

from hubmere.model.security.connection_string import ConnectionString
from portal.browser.visitor import Visitor


def test_first_steps_send_an_event_and_copy_the_connection_string(admin: Visitor) -> None:
    """A new user gets from the overview to an event in the Explorer without a client."""
    admin.open("", "Overview")

    expect(admin.page.locator(".h-facts")).to_contain_text("expires ")
    send = admin.page.get_by_role("button", name=re.compile("^Send a test event to"))
    if not send.is_visible():
        admin.page.get_by_text("First steps").click()
    send.click()
    expect(admin.page.get_by_text(re.compile("Event [0-9]+ was sent to"))).to_be_visible()
    admin.button("Copy (connection string)").click()
    admin.expect_notification("Connection string copied.")
    with admin.page.expect_download() as waiting:
        admin.button("Download CA certificate").click()

    assert admin.page.evaluate("navigator.clipboard.readText()").startswith("Endpoint=sb://")
    assert waiting.value.suggested_filename == "hubmere-ca.pem"


def test_network_rules_are_saved(admin: Visitor) -> None:
    """A wrong block is refused with its text; an allowed one is kept."""
    admin.open("/network", "Network")
    masks = admin.field("Allowed addresses or blocks, one per line")

    masks.fill("10.0.0.0/99")
    admin.button("Save").click()
    admin.expect_notification("an address or a CIDR block")
    masks.fill("10.0.0.0/8\n127.0.0.1")
    admin.button("Save").click()

    admin.expect_notification("The network rules were saved.")
    found = admin.arm("GET", "networkRuleSets/default", {})
    assert [rule["ipMask"] for rule in found["properties"]["ipRules"]] == ["10.0.0.0/8", "127.0.0.1"]


def test_application_group_is_created_and_deleted(admin: Visitor) -> None:
    """Clients of one rule get their own rates."""
    admin.open("/network", "Network")

    admin.button("New application group").click()
    admin.field("Name").fill("batch")
    admin.field("Incoming events per second").fill("500")
    admin.button("Save").last.click()
    expect(admin.row("batch")).to_contain_text("IncomingMessages: 500")
    admin.row("batch").get_by_role("button", name="Delete").click()
    admin.button("Delete").last.click()

    admin.expect_notification("Application group batch was deleted.")
    expect(admin.row("batch")).to_have_count(0)


def test_namespace_is_paired_and_failed_over(admin: Visitor) -> None:
    """The alias moves to the secondary."""
    admin.open("/recovery", "Recovery")
    admin.button("New namespace").click()
    admin.field("Name").fill("second-site")
    admin.button("Create").click()
    expect(admin.row("second-site")).to_be_visible()

    admin.open("/recovery", "Recovery")
    admin.button("New alias").click()
    admin.field("Alias").fill("main-site")
    admin.choose("Secondary namespace", "second-site")
    admin.button("Create").click()
    expect(admin.row("main-site")).to_contain_text("Primary")
    admin.page.goto(f"{admin.origin}/portal/n/second-site/recovery")
    admin.row("main-site").get_by_role("button", name="Fail over").click()
    admin.field("Type main-site to confirm").fill("main-site")
    admin.button("Fail over").last.click()

    admin.expect_notification("Fail over: done for main-site.")
    expect(admin.row("main-site")).to_contain_text("(none)")


def test_token_of_the_generator_opens_its_hub(admin: Visitor) -> None:
    """The token equals one that a client signs."""
    admin.open("/access", "Access")

    admin.choose("Valid for", "orders")
    admin.button("Create token").click()
    token = admin.page.locator(".h-code").inner_text().strip()
    sent = httpx.post(
        f"{admin.node.http}/orders/messages", content=b"{}", headers={"Authorization": token}, timeout=120
    )
    other = httpx.post(
        f"{admin.node.http}/other/messages", content=b"{}", headers={"Authorization": token}, timeout=120
    )

    assert token.startswith("SharedAccessSignature sr=")
    assert (sent.status_code, other.status_code) == (201, 401)


def test_rights_of_a_rule_are_edited(admin: Visitor) -> None:
    """The keys of its clients stay as they are; taking Manage from the namespace needs a second thought."""
    connection_string = admin.add_rule("shrinking", "Manage", "Send", "Listen")
    admin.open("/access", "Access")

    admin.row("shrinking").get_by_role("button", name="Edit").click()
    admin.page.get_by_role("checkbox", name="Manage", exact=True).click()
    admin.page.get_by_role("checkbox", name="Listen", exact=True).click()
    admin.button("Save").click()
    admin.field("Type shrinking to confirm").fill("shrinking")
    admin.button("Save").last.click()

    admin.expect_notification("Rights of shrinking were saved.")
    assert admin.arm("GET", "authorizationRules/shrinking", {})["properties"]["rights"] == ["Send"]
    keys = admin.arm("POST", "authorizationRules/shrinking/listKeys", {})
    assert ConnectionString.parse(connection_string).key == keys["primaryKey"]


def test_settings_of_a_hub_are_edited(admin: Visitor) -> None:
    """Settings without a field stay as they are."""
    admin.add_hub("edited")
    admin.open("/hub?hub=edited", "edited")

    admin.field("User metadata").fill("owner: billing")
    admin.field("Retention in hours").fill("5")
    admin.button("Save").click()

    admin.expect_notification("Settings were saved.")
    found = admin.arm("GET", "eventhubs/edited", {})["properties"]
    assert (found["userMetadata"], found["retentionDescription"]["retentionTimeInHours"]) == ("owner: billing", 5)
