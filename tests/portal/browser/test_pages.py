"""Every page and every action, as the administrator."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from azure.eventhub import EventHubConsumerClient
from playwright.sync_api import expect

from hubmere.testing import Node
from portal.browser.visitor import Visitor


def test_hub_is_made_changed_and_deleted(admin: Visitor) -> None:
    """What the management planes can do, a person can do here."""
    page = admin.page
    admin.open("", "Overview")

    admin.button("New event hub").click()
    admin.field("Name").fill("made-here")
    admin.field("Partitions").fill("3")
    admin.button("Create").click()
    page.get_by_role("link", name="made-here").click()
    admin.expect_heading("made-here")
    expect(page.get_by_text("3 partitions")).to_be_visible()
    admin.field("Retention in hours").fill("48")
    admin.button("Save").click()
    admin.expect_told("Saved.")
    admin.button("Delete this event hub").click()
    expect(admin.button("Delete")).to_be_disabled()
    admin.field("Type made-here to go on").fill("made-here")
    admin.button("Delete").click()

    admin.expect_heading("Overview")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_role("link", name="made-here")).to_have_count(0)


def test_refusal_is_told_in_words(admin: Visitor) -> None:
    """With what is allowed, and the dialog stays open to be put right."""
    admin.open("", "Overview")
    admin.button("New event hub").click()
    admin.field("Name").fill("no spaces allowed")

    admin.button("Create").click()

    admin.expect_told("event hub name")
    expect(admin.field("Name")).to_have_value("no spaces allowed")


def test_overview_shows_what_flows(admin: Visitor) -> None:
    """Numbers move without a reload."""
    admin.add_hub("flowing")
    admin.open("", "Overview")
    stop = threading.Event()

    def load() -> None:
        while not stop.wait(0.05):
            admin.publish("flowing", "{}")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        expect(admin.row("flowing").locator("td").nth(1)).not_to_have_text("0")
        expect(admin.page.locator(".h-tile", has_text="Events in /s").locator(".h-tile-number")).not_to_have_text("0")
        expect(admin.page.locator(".h-chart canvas")).to_have_count(6)
    finally:
        stop.set()
        thread.join()


def test_consumer_group_is_made_and_deleted(admin: Visitor) -> None:
    """On the hub's page, beside those who read."""
    admin.add_hub("grouped")
    admin.open("/hub?hub=grouped", "grouped")
    chip = admin.page.locator(".q-chip", has_text="billing")

    admin.button("New consumer group").click()
    admin.field("Name").fill("billing")
    admin.button("Create").click()
    expect(chip).to_be_visible()
    chip.locator(".q-chip__icon--remove").click()
    admin.button("Delete").click()

    admin.expect_told("Consumer group billing is gone.")
    expect(chip).to_have_count(0)


def test_snippets_are_copied(admin: Visitor) -> None:
    """Each family of clients has its own."""
    admin.open("/hub?hub=orders", "orders")

    for title, word in (
        ("JavaScript", "@azure/event-hubs"),
        ("Java", "EventHubClientBuilder"),
        ("Kafka", "bootstrap.servers"),
        ("curl", "/orders/messages"),
        ("Spark", "readStream"),
        ("Python", "EventHubProducerClient"),
    ):
        admin.page.get_by_role("tab", name=title, exact=True).click()
        expect(admin.page.locator(".h-code", has_text=word)).to_be_visible()
    admin.button("Copy").last.click()

    admin.expect_told("Python copied.")
    assert "EventHubProducerClient" in admin.page.evaluate("navigator.clipboard.readText()")


def test_event_is_sent_found_and_opened(admin: Visitor) -> None:
    """The whole life of an event without a client."""
    admin.add_hub("explored")
    admin.open("/explorer?hub=explored", "Explorer")

    admin.button("Send an event").click()
    admin.field("Body").fill('{"answer": 42}')
    admin.field("Partition key (optional)").fill("device-1")
    admin.field("Properties as a JSON object (optional)").fill('{"room": "kitchen"}')
    admin.button("Send").click()
    admin.expect_told("Sent: it is event 0.")
    admin.button("Look up").click()
    expect(admin.row("device-1")).to_contain_text('{"answer": 42}')
    admin.row("device-1").get_by_role("button").click()

    panel = admin.page.locator(".q-tab-panel")
    expect(panel).to_contain_text('"answer": 42')
    for tab, text in (
        ("Hex", "7b 22 61 6e 73 77 65 72"),
        ("AMQP", "x-opt-partition-key = device-1"),
        ("Kafka", "timestamp = "),
        ("HTTP", '"room": "kitchen"'),
        ("Text", '{"answer": 42}'),
    ):
        admin.page.get_by_role("tab", name=tab, exact=True).click()
        expect(admin.page.locator(".q-tab-panel", has_text=text)).to_be_visible()
    admin.button("Close").click()


def test_events_are_looked_up_by_sequence_offset_time_and_key(admin: Visitor) -> None:
    """An event is wanted by whatever a log line says about it."""
    admin.add_hub("searched", partitions=1)
    for number in range(5):
        admin.publish("searched", f'{{"number": {number}}}', key=f"key-{number % 2}")
    admin.open("/explorer?hub=searched", "Explorer")
    rows = admin.page.locator("tbody tr")
    expect(rows).to_have_count(5)
    offset = admin.row('{"number": 3}').locator("td").nth(3).inner_text()

    for kind, value, count in (
        ("From a sequence number", "2", 3),
        ("From an offset", offset, 2),
        ("From a time (UTC)", "2020-01-01T00:00:00", 5),
        ("With a partition key", "key-1", 2),
    ):
        admin.choose("Look up", kind)
        admin.field("Value").fill(value)
        admin.button("Look up").click()
        expect(rows).to_have_count(count)

    admin.choose("Look up", "From a sequence number")
    admin.field("Value").fill("two")
    admin.button("Look up").click()
    admin.expect_told("a whole number")


def test_live_tail_shows_events_as_they_come(admin: Visitor) -> None:
    """Pushed to the page, without a click."""
    admin.add_hub("followed")
    admin.open("/explorer?hub=followed", "Explorer")

    admin.page.get_by_role("switch", name="Live").click()
    expect(admin.page.get_by_text("Live: new events appear as they come.")).to_be_visible()
    admin.publish("followed", '{"fresh": true}')

    expect(admin.row('{"fresh": true}')).to_be_visible()


def test_body_that_looks_like_a_page_is_shown_as_text(admin: Visitor) -> None:
    """Events come from strangers."""
    admin.add_hub("hostile", partitions=1)
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>{{ 7 * 7 }}"
    admin.publish("hostile", hostile, key="<b>key</b>")

    admin.open("/explorer?hub=hostile", "Explorer")
    admin.row("<b>key</b>").get_by_role("button").click()

    expect(admin.page.locator(".q-tab-panel")).to_contain_text("{{ 7 * 7 }}")
    assert admin.page.locator("img[src=x]").count() == 0
    assert "owned" not in admin.page.title()


def test_units_are_changed(admin: Visitor) -> None:
    """And they count at once."""
    admin.open("/scale", "Scale")

    admin.field("Throughput units").fill("3")
    admin.button("Save").click()

    admin.expect_told("Saved; it counts at once.")
    expect(admin.page.locator(".h-tile", has_text="Throughput units").locator(".h-tile-number")).to_have_text("3")


def test_capture_is_switched_on(admin: Visitor) -> None:
    """Window and destination are kept with the hub; a window out of range is refused."""
    admin.add_hub("captured")
    admin.open("/capture", "Capture")
    edit = admin.row("captured").get_by_role("button")

    edit.click()
    admin.page.get_by_role("switch", name="On", exact=True).click()
    admin.field("Container").fill("archive")
    seconds = admin.page.get_by_label(re.compile("^Close a file after seconds"))
    seconds.fill("5")
    admin.button("Save").click()
    admin.expect_told("capture interval in seconds")
    seconds.fill("60")
    admin.button("Save").click()

    admin.expect_told("Capture of captured is saved.")
    expect(admin.row("captured")).to_contain_text("60 s or 300.0 MB")
    expect(admin.row("captured")).to_contain_text("archive")


def test_rule_is_made_shown_rotated_and_deleted(admin: Visitor) -> None:
    """A key reaches the page when somebody asks for it, and not before."""
    admin.open("/access", "Access")

    admin.button("New rule").click()
    admin.field("Name").fill("fleet")
    admin.page.get_by_role("checkbox", name="Send", exact=True).click()
    admin.button("Create").click()
    admin.expect_told("Rule fleet is there.")
    key = admin.arm("POST", "authorizationRules/fleet/listKeys", {})["primaryKey"]
    admin.row("fleet").get_by_role("button", name="Keys").click()
    expect(admin.button("Show (primary)")).to_be_visible()
    assert key not in admin.page.content()
    admin.button("Show (primary)").click()
    expect(admin.page.get_by_text(key)).to_be_visible()
    admin.button("Copy connection string (primary)").click()
    admin.expect_told("Connection string copied.")
    assert f"SharedAccessKeyName=fleet;SharedAccessKey={key}" in admin.page.evaluate("navigator.clipboard.readText()")
    admin.button("Regenerate (primary)").click()
    admin.button("Regenerate", exact=True).last.click()
    admin.expect_told("The primary key is new.")
    admin.button("Close").first.click()
    admin.row("fleet").get_by_role("button", name="Delete").click()
    admin.button("Delete").last.click()

    admin.expect_told("Rule fleet is gone.")
    expect(admin.row("fleet")).to_have_count(0)


def test_publisher_is_revoked_and_restored(admin: Visitor) -> None:
    """A stolen device is shut out by its name."""
    admin.open("/access", "Access")

    admin.field("Publisher").fill("device-7")
    admin.button("Revoke").click()
    expect(admin.row("device-7")).to_be_visible()
    admin.row("device-7").get_by_role("button", name="Restore").click()

    admin.expect_told("Publisher device-7 may send again.")
    expect(admin.row("device-7")).to_have_count(0)


@contextmanager
def a_reader(node: Node, hub: str) -> Iterator[None]:
    """An unmodified client that reads one partition."""
    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string, "$Default", eventhub_name=hub
    )
    thread = threading.Thread(
        target=client.receive, kwargs={"on_event": lambda _, __: None, "partition_id": "0", "starting_position": "-1"}
    )
    thread.start()
    try:
        yield
    finally:
        client.close()
        thread.join()


def test_links_show_readers_and_the_doctor_names_what_is_wrong(admin: Visitor) -> None:
    """Two readers on one partition both get everything, which few people want."""
    admin.add_hub("linked")
    admin.open("/links", "Links")

    with a_reader(admin.node, "linked"), a_reader(admin.node, "linked"):
        expect(admin.row("linked")).to_have_count(2)
        finding = admin.page.locator(".h-finding", has_text="Shared partition: linked/0")
        expect(finding).to_be_visible()

    expect(admin.row("linked")).to_have_count(0)
    expect(finding).to_have_count(0)
