"""Every page and every action, as the administrator."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from azure.eventhub import EventHubConsumerClient
from confluent_kafka import Consumer
from playwright.sync_api import expect

from hubmere.testing import Node
from portal.browser.visitor import Visitor

# Whether the first chart has points, and one of them shows events.
_DRAWN_EVENTS = """() => {
  const chart = getElement(Number(document.querySelector(".h-chart").id.slice(1)))?.chart;
  const points = chart ? chart.getOption().series[0].data : [];
  return points.length > 2 && points.some(point => point[1] > 0);
}"""

# The table reports the pagination of an empty table, as one that was drawn before its rows arrived.
_REPORT_NO_ROWS = """() => {
  const table = getElement(Number(document.querySelector(".h-table").id.slice(1)));
  const empty = { rowsPerPage: 25, page: 1, sortBy: null, descending: false, rowsNumber: 0 };
  (table.$refs?.qRef ?? table).$emit("update:pagination", empty);
}"""


def test_hub_is_created_changed_and_deleted(admin: Visitor) -> None:
    """The portal can do what the management APIs can."""
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
    admin.expect_notification("Settings were saved.")
    admin.button("Delete event hub").click()
    expect(admin.button("Delete")).to_be_disabled()
    admin.field("Type made-here to confirm").fill("made-here")
    admin.button("Delete").click()

    admin.expect_heading("Overview")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    expect(page.get_by_role("link", name="made-here")).to_have_count(0)


def test_refusal_is_shown_as_a_message(admin: Visitor) -> None:
    """The message names the valid values, and the dialog stays open for a correction."""
    admin.open("", "Overview")
    admin.button("New event hub").click()
    admin.field("Name").fill("no spaces allowed")

    admin.button("Create").click()

    admin.expect_notification("event hub name")
    expect(admin.field("Name")).to_have_value("no spaces allowed")


def test_overview_shows_current_rates(admin: Visitor) -> None:
    """Numbers change without a reload."""
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
        # The history was empty when the page was opened: all points were pushed later.
        admin.page.wait_for_function(_DRAWN_EVENTS)
    finally:
        stop.set()
        thread.join()


def test_consumer_group_is_created_and_deleted(admin: Visitor) -> None:
    """Consumer groups are managed on the page of the hub."""
    admin.add_hub("grouped")
    admin.open("/hub?hub=grouped", "grouped")
    chip = admin.page.locator(".q-chip", has_text="billing")

    admin.button("New consumer group").click()
    admin.field("Name").fill("billing")
    admin.button("Create").click()
    expect(chip).to_be_visible()
    chip.locator(".q-chip__icon--remove").click()
    admin.button("Delete").click()

    admin.expect_notification("Consumer group billing was deleted.")
    expect(chip).to_have_count(0)


def test_snippets_are_copied(admin: Visitor) -> None:
    """Each family of clients has its own snippet."""
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

    admin.expect_notification("Python copied.")
    assert "EventHubProducerClient" in admin.page.evaluate("navigator.clipboard.readText()")


def test_event_is_sent_found_and_opened(admin: Visitor) -> None:
    """An operator can test a hub without a client."""
    admin.add_hub("explored")
    admin.open("/explorer?hub=explored", "Explorer")

    admin.button("Send event").click()
    admin.field("Body").fill('{"answer": 42}')
    admin.field("Partition key (optional)").fill("device-1")
    admin.field("Properties as a JSON object (optional)").fill('{"room": "kitchen"}')
    admin.button("Send").click()
    admin.expect_notification("Event 0 was sent.")
    admin.button("Search").click()
    expect(admin.row("device-1")).to_contain_text('{"answer": 42}')
    admin.row("device-1").get_by_role("button").click()

    panel = admin.page.locator(".q-tab-panel")
    expect(panel).to_contain_text('"answer": 42')
    for tab, text in (
        ("Hex", "7b 22 61 6e 73 77 65 72"),
        ("AMQP", "x-opt-partition-key = device-1"),
        ("Kafka", "timestamp = "),
        ("HTTP", '"value": "kitchen"'),
        ("Text", '{"answer": 42}'),
    ):
        admin.page.get_by_role("tab", name=tab, exact=True).click()
        expect(admin.page.locator(".q-tab-panel", has_text=text)).to_be_visible()
    admin.button("Close").click()


def test_large_body_says_that_only_its_beginning_is_shown(admin: Visitor) -> None:
    """Somebody who copies it must not believe that it is complete."""
    admin.add_hub("large", partitions=1)
    admin.publish("large", "x" * 200_000)
    admin.open("/explorer?hub=large", "Explorer")

    admin.button("Open 0/0").click()

    expect(admin.page.get_by_text("the first 64.0 KB are shown")).to_be_visible()


def test_events_are_found_by_sequence_offset_time_and_key(admin: Visitor) -> None:
    """Log lines identify an event in different ways."""
    admin.add_hub("searched", partitions=1)
    for number in range(5):
        admin.publish("searched", f'{{"number": {number}}}', key=f"key-{number % 2}")
    admin.open("/explorer?hub=searched", "Explorer")
    rows = admin.page.locator("tbody tr")
    expect(rows).to_have_count(5)
    offset = admin.row('{"number": 3}').locator("td").nth(3).inner_text()

    for field, value, count in (
        ("Key", "key-1", 2),
        ("Contains text", 'NUMBER": 4', 1),
        ("Until a sequence number", "1", 2),
        ("Until a time (UTC)", "2020-01-01T00:00:00", 0),
    ):
        admin.field(field).fill(value)
        admin.button("Search").click()
        found = f"{count} event," if count == 1 else f"{count} events,"
        expect(admin.page.get_by_text(f"Page 1: {found}")).to_be_visible()
        admin.field(field).fill("")
    for kind, value, count in (
        ("From a sequence number", "2", 3),
        ("From an offset", offset, 2),
        ("From a time (UTC)", "2020-01-01T00:00:00", 5),
    ):
        admin.choose("Search", kind)
        admin.field("Value").fill(value)
        admin.button("Search").click()
        expect(rows).to_have_count(count)

    admin.choose("Search", "From a sequence number")
    admin.field("Value").fill("two")
    admin.button("Search").click()
    admin.expect_notification("a whole number")


def test_search_survives_a_reload(admin: Visitor) -> None:
    """A colleague gets the link to what was found; other pages link to the events that a consumer is at."""
    admin.add_hub("linked", partitions=2)
    for number in range(4):
        admin.rest("POST", "linked/partitions/1/messages", content=f"reading {number}".encode())
    rows = admin.page.locator("tbody tr")
    admin.open("/explorer?hub=linked&partition=1&from=sequence&at=2&text=reading&last=9&key=", "Explorer")
    expect(rows).to_have_count(2)

    admin.field("Value").fill("1")
    admin.field("Contains text").fill("reading 3")
    admin.button("Search").click()
    expect(rows).to_have_count(1)
    admin.page.reload()

    expect(rows).to_have_count(1)
    expect(admin.row("reading 3")).to_be_visible()
    expect(admin.field("Value")).to_have_value("1")
    expect(admin.field("Until a sequence number")).to_have_value("9")
    admin.open("/explorer?hub=linked&partition=77&from=nowhere", "Explorer")
    expect(rows).to_have_count(4)


def test_events_are_paged_exported_and_sent_again(admin: Visitor) -> None:
    """Older events are one click away, and a search can be exported."""
    admin.add_hub("paged", partitions=1)
    for number in range(101):
        admin.publish("paged", f'{{"number": {number}}}', key="k")
    admin.open("/explorer?hub=paged", "Explorer")

    expect(admin.page.get_by_text("There is more.")).to_be_visible()
    admin.button("More").click()
    expect(admin.page.get_by_text("Page 2: 1 event,")).to_be_visible()
    with admin.page.expect_download() as waiting:
        admin.button("Export JSON").click()
    exported = json.loads(Path(waiting.value.path()).read_text())
    admin.row('{"number": 0}').locator("td").last.click()
    admin.button("Resend").click()
    admin.button("Send").click()

    admin.expect_notification("Event 101 was sent.")
    assert [event["sequenceNumber"] for event in exported] == list(range(100, -1, -1))
    admin.button("Close").click()
    admin.button("Back").click()
    expect(admin.page.get_by_text("Page 1: 100 events")).to_be_visible()


def test_hub_page_shows_what_is_stored(admin: Visitor) -> None:
    """Number, size and age of the events are the first things that an operator asks for."""
    admin.add_hub("stocked", partitions=2)
    for _ in range(3):
        admin.rest("POST", "stocked/messages", content=b"12345", headers={"Content-Type": "text/plain"})

    admin.open("/hub?hub=stocked", "stocked")

    tiles = admin.page.locator(".h-tile")
    expect(tiles.filter(has_text="Events stored")).to_have_text(re.compile(r"Events stored\s*3$"))
    expect(tiles.filter(has_text="Size")).to_have_text(re.compile(r"Size\s*[1-9]\d* B$"))
    expect(tiles.filter(has_text="Last event")).to_have_text(re.compile(r"\d (s|min) ago$"))


def test_late_report_of_the_browser_keeps_the_number_of_rows(admin: Visitor) -> None:
    """The browser may report a pagination that it had before the rows arrived."""
    admin.add_hub("reported")
    admin.rest("POST", "reported/messages", content=b"x")
    admin.open("/explorer?hub=reported", "Explorer")
    expect(admin.page.get_by_text("1-1 of 1")).to_be_visible()

    admin.page.evaluate(_REPORT_NO_ROWS)

    admin.page.wait_for_timeout(500)
    expect(admin.page.get_by_text("1-1 of 1")).to_be_visible()


def test_live_tail_shows_new_events(admin: Visitor) -> None:
    """They are pushed to the page without a click."""
    admin.add_hub("followed")
    admin.open("/explorer?hub=followed", "Explorer")

    admin.page.get_by_role("switch", name="Live").click()
    expect(admin.page.get_by_text("Live: new events appear here.")).to_be_visible()
    admin.publish("followed", '{"fresh": true}')

    expect(admin.row('{"fresh": true}')).to_be_visible()


def test_body_that_looks_like_a_page_is_shown_as_text(admin: Visitor) -> None:
    """Events come from untrusted clients."""
    admin.add_hub("hostile", partitions=1)
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>{{ 7 * 7 }}"
    admin.publish("hostile", hostile, key="<b>key</b>")

    admin.open("/explorer?hub=hostile", "Explorer")
    admin.row("<b>key</b>").get_by_role("button").click()

    expect(admin.page.locator(".q-tab-panel")).to_contain_text("{{ 7 * 7 }}")
    assert admin.page.locator("img[src=x]").count() == 0
    assert "owned" not in admin.page.title()


def test_throughput_units_are_changed(admin: Visitor) -> None:
    """The change applies immediately."""
    admin.open("/scale", "Scale")

    admin.field("Throughput units").fill("3")
    admin.button("Save").click()

    admin.expect_notification("Saved. The new limits apply immediately.")
    expect(admin.page.locator(".h-tile", has_text="Throughput units").locator(".h-tile-number")).to_have_text("3")


def test_capture_is_enabled(admin: Visitor) -> None:
    """Window and destination are kept with the hub; a window out of range is refused."""
    admin.add_hub("captured")
    admin.open("/capture", "Capture")
    edit = admin.row("captured").get_by_role("button")

    edit.click()
    admin.page.get_by_role("switch", name="Enabled", exact=True).click()
    admin.field("Container").fill("archive")
    seconds = admin.page.get_by_label(re.compile("^Time window in seconds"))
    seconds.fill("5")
    admin.button("Save").click()
    admin.expect_notification("capture interval in seconds")
    seconds.fill("60")
    admin.button("Save").click()

    admin.expect_notification("Capture settings of captured were saved.")
    expect(admin.row("captured")).to_contain_text("60 s or 300.0 MB")
    expect(admin.row("captured")).to_contain_text("archive")


def test_capture_progress_is_shown(admin: Visitor) -> None:
    """The Capture page shows state, lag and last file; the page of the hub shows each partition."""
    admin.add_hub("archived")
    described = {"captureDescription": {"enabled": True}, "partitionCount": 2}
    admin.arm("PUT", "eventhubs/archived", {"properties": described})
    for _ in range(3):
        admin.rest("POST", "archived/partitions/1/messages", content=b"x")
    bearer = {"Authorization": f"Bearer {admin.node.admin_token}"}
    [planned] = [
        hub for hub in admin.rest("GET", "$capture/plan", headers=bearer).json()["hubs"] if hub["hub"] == "archived"
    ]
    file = {"url": "file:///files/one.avro", "name": "files/one.avro", "eventCount": 1}
    progress = {"partition": 1, "captured": 1, "lastFile": file, "files": 1, "events": 1, "bytes": 100}
    report = {"namespace": admin.node.namespace, "hub": "archived", "id": planned["id"], "partitions": [progress]}
    body = {"job": {"sparkVersion": "4.3"}, "hubs": [report]}

    with repeating(lambda: admin.rest("POST", "$capture/progress", headers=bearer, json=body)):
        admin.open("/capture", "Capture")
        row = admin.row("archived")
        expect(row).to_contain_text("Running")
        expect(row).to_contain_text("2 events")
        expect(row).to_contain_text("files/one.avro")
        expect(admin.page.get_by_text("The capture job is running on Spark 4.3.")).to_be_visible()
        admin.open("/hub?hub=archived", "archived")
        expect(admin.rows_of("Capture", "files/one.avro")).to_contain_text("2")


@contextmanager
def repeating(report: Callable[[], object]) -> Iterator[None]:
    """Report again and again, as the job does: a job that is silent for half a minute is not shown as running."""
    report()
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(2):
            report()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_rule_is_created_shown_rotated_and_deleted(admin: Visitor) -> None:
    """A key is sent to the page only on request."""
    admin.open("/access", "Access")

    admin.button("New rule").click()
    admin.field("Name").fill("fleet")
    admin.page.get_by_role("checkbox", name="Send", exact=True).click()
    admin.button("Create").click()
    admin.expect_notification("Rule fleet was created.")
    key = admin.arm("POST", "authorizationRules/fleet/listKeys", {})["primaryKey"]
    admin.row("fleet").get_by_role("button", name="Keys").click()
    expect(admin.button("Show (primary)")).to_be_visible()
    assert key not in admin.page.content()
    admin.button("Show (primary)").click()
    expect(admin.page.get_by_text(key)).to_be_visible()
    admin.button("Copy connection string (primary)").click()
    admin.expect_notification("Connection string copied.")
    assert f"SharedAccessKeyName=fleet;SharedAccessKey={key}" in admin.page.evaluate("navigator.clipboard.readText()")
    admin.button("Regenerate (primary)").click()
    admin.button("Regenerate", exact=True).last.click()
    admin.expect_notification("The primary key was regenerated.")
    admin.button("Close").first.click()
    admin.row("fleet").get_by_role("button", name="Delete").click()
    admin.button("Delete").last.click()

    admin.expect_notification("Rule fleet was deleted.")
    expect(admin.row("fleet")).to_have_count(0)


def test_publisher_is_revoked_and_restored(admin: Visitor) -> None:
    """A stolen device can be blocked by its name."""
    admin.open("/access", "Access")

    admin.field("Publisher").fill("device-7")
    admin.button("Revoke").click()
    expect(admin.row("device-7")).to_be_visible()
    admin.row("device-7").get_by_role("button", name="Restore").click()

    admin.expect_notification("Publisher device-7 was restored.")
    expect(admin.row("device-7")).to_have_count(0)


@contextmanager
def a_reader(node: Node, hub: str, **more: int) -> Iterator[None]:
    """An unmodified client that reads one partition."""
    client = EventHubConsumerClient.from_connection_string(
        node.emulator_connection_string, "$Default", eventhub_name=hub, **more
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


def test_links_show_readers_and_findings(admin: Visitor) -> None:
    """Two readers on one partition both get everything, which few people want."""
    admin.add_hub("linked")
    admin.open("/links", "Links")

    with a_reader(admin.node, "linked"), a_reader(admin.node, "linked"):
        expect(admin.rows_of("Readers", "linked")).to_have_count(2)
        expect(admin.rows_of("Connections", "linked")).to_have_count(2)
        finding = admin.page.locator(".h-finding", has_text="Shared partition: linked/0")
        expect(finding).to_be_visible()

    expect(admin.row("linked")).to_have_count(0)
    expect(finding).to_have_count(0)


def test_connection_is_inspected_and_closed(admin: Visitor) -> None:
    """The page shows identity and links of a connection and closes it; the audit log records that."""
    admin.add_hub("shut")
    admin.open("/links", "Links")
    connection = admin.rows_of("Connections", "reads shut/0 as $default")

    with a_reader(admin.node, "shut", retry_total=0):
        expect(connection).to_contain_text("RootManageSharedAccessKey")
        expect(connection).to_contain_text("azsdk-python-eventhubs")
        connection.get_by_role("button", name="Links").click()
        dialog = admin.page.get_by_role("dialog")
        expect(dialog.locator("tbody tr", has_text="shut/consumergroups/$default/partitions/0")).to_be_visible()
        expect(dialog.locator("tbody tr", has_text="$cbs")).to_be_visible()
        admin.button("Close", exact=True).last.click()
        connection.get_by_role("button", name="Close").click()
        admin.button("Close", exact=True).last.click()
        admin.expect_notification("was closed.")
        expect(connection).to_have_count(0)

    admin.open("/audit", "Audit")
    expect(admin.row("close connection").first).to_contain_text("(admin)")
    expect(admin.row("close connection").first).to_contain_text("127.0.0.1")


def test_audit_shows_what_was_done_and_refused(admin: Visitor) -> None:
    """New records appear first, without a reload."""
    admin.open("/audit", "Audit")

    admin.add_hub("audited")
    expect(admin.row("hubmere/audited").first).to_contain_text("create hub")
    with pytest.raises(httpx.HTTPStatusError):
        admin.arm("PUT", "eventhubs/audited", {"properties": {"partitionCount": 100_000}})

    expect(admin.row("hubmere/audited").first).to_contain_text("refused")


def test_kafka_group_is_shown_with_the_member_that_owns_a_partition(admin: Visitor) -> None:
    """Owner, position and lag of a group that an unmodified Kafka client is in."""
    admin.add_hub("owned", partitions=1)
    admin.publish("owned", "1")
    consumer = Consumer(
        {
            "bootstrap.servers": admin.node.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": admin.node.connection_string,
            "group.id": "billing",
            "client.id": "till-7",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["owned"])
    try:
        message = consumer.poll(120)
        assert message is not None
        admin.open("/hub?hub=owned", "owned")
        position = admin.rows_of("Consumer groups", "billing")

        expect(position).to_contain_text("till-7 at")
        consumer.commit(message, asynchronous=False)

        expect(position.locator("td").nth(5)).to_have_text("1")
        admin.open("/groups", "Consumer groups")
        expect(admin.row("billing")).to_contain_text("Stable")
        admin.page.get_by_role("link", name="billing").click()
        admin.expect_heading("billing")
        expect(admin.rows_of("Members", "till-7")).to_contain_text("owned: 0")
        admin.button("Reset offsets").click()
        admin.button("Reset").click()
        admin.expect_notification("still has members")
    finally:
        consumer.close()

    admin.button("Preview").click()
    expect(admin.page.get_by_role("dialog").locator("tbody tr").first).to_contain_text("owned")
    admin.button("Reset").click()
    admin.expect_notification("The offsets of 1 partition were reset.")
    expect(admin.rows_of("Partitions", "owned").locator("td").nth(2)).to_have_text("0")
    admin.button("Delete group").click()
    admin.field("Type billing to confirm").fill("billing")
    admin.button("Delete").click()
    admin.expect_heading("Consumer groups")
    expect(admin.row("billing")).to_have_count(0)
