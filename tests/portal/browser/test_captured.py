"""Captured files in the portal: found by partition and time, and shown, searched and exported like events of a hub."""

import json
from pathlib import Path

from playwright.sync_api import expect

from portal.browser.captured import add_captured_files
from portal.browser.visitor import Visitor


def test_captured_file_is_found_and_its_events_are_paged(admin: Visitor, captured_folder: Path) -> None:
    """The test goes from the page of Capture to one event: the list, the file, the next page, and back."""
    add_captured_files(admin, captured_folder)
    admin.open("/capture", "Capture")
    admin.button("Files archived").click()
    admin.expect_heading("Captured files")
    expect(admin.page.get_by_text("2 files, the newest first.")).to_be_visible()
    admin.choose("Partition", "0")
    expect(admin.page.get_by_text("1 file, the newest first.")).to_be_visible()

    admin.page.get_by_role("button", name="Open").first.click()
    expect(admin.page.get_by_text("Page 1: 100 events, 100 of 250 examined. There is more.")).to_be_visible()
    admin.button("More").click()
    admin.button("More").click()
    expect(admin.page.get_by_text("Page 3: 50 events, 250 of 250 examined. No more events match.")).to_be_visible()
    admin.button("Back").click()
    expect(admin.page.get_by_text("Page 2: 100 events")).to_be_visible()
    admin.row("device-100").click()

    dialog = admin.page.get_by_role("dialog")
    expect(dialog).to_have_attribute("aria-label", "Event 100 of archived, partition 0")
    expect(dialog).to_contain_text('"reading": 100')
    dialog.get_by_role("tab", name="Properties").click()
    expect(dialog).to_contain_text("unit = celsius")


def test_events_of_a_parquet_file_are_filtered_and_exported(admin: Visitor, captured_folder: Path) -> None:
    """The filters and formats are those of Explorer."""
    add_captured_files(admin, captured_folder)
    admin.open("/captured?hub=archived", "Captured files")
    admin.row("21.parquet").click()
    expect(admin.page.get_by_text("Page 1: 100 events, 100 of 250 examined.")).to_be_visible()

    admin.field("Contains text").fill('"reading": 24')
    admin.button("Search").click()
    expect(admin.page.get_by_text("Page 1: 11 events, 250 of 250 examined. No more events match.")).to_be_visible()
    with admin.page.expect_download() as downloading:
        admin.button("Export JSON").click()

    exported = json.loads(Path(downloading.value.path()).read_text("utf-8"))
    assert [event["sequenceNumber"] for event in exported] == [24, *range(240, 250)]
    assert exported[0]["partition"] == 1
    assert exported[0]["key"] == "device-24"


def test_captured_file_needs_the_right_to_listen(visitor: Visitor, captured_folder: Path) -> None:
    """A file contains the events of the hub."""
    add_captured_files(visitor, captured_folder)
    visitor.enter(visitor.add_rule("only-sends", "Send"))

    answer = visitor.page.goto(f"{visitor.origin}/portal/n/{visitor.node.namespace}/captured?hub=archived")

    assert answer is not None
    assert answer.status == 403


def test_damaged_file_is_reported(admin: Visitor, captured_folder: Path) -> None:
    """The message has its name, and the log has no traceback."""
    add_captured_files(admin, captured_folder)
    [path] = captured_folder.rglob("20.avro")
    path.write_bytes(path.read_bytes()[:-30])

    admin.open("/captured?hub=archived", "Captured files")
    admin.row("20.avro").click()

    admin.expect_notification("is not a valid captured file: it cannot be read")
