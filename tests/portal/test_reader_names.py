"""Names of AMQP readers for people."""

from dataclasses import replace

import pytest

from hubmere.broker.management.connections import ConnectionView, LinkRole, LinkView
from hubmere.broker.read import Reader
from hubmere.portal.history.consumer_lag import consumer_positions, group_label
from hubmere.portal.history.reader_names import reader_names
from portal.builders import PortalHarness

_PYTHON = "azsdk-python-eventhubs/5.15.1 Python/3.11.7 (Linux)"


class Connection:
    """An open connection with the links of some readers."""

    def __init__(self, software: str, *readers: Reader) -> None:
        self.software = software
        self.readers = readers

    def view(self, number: int, opened_ms: int) -> ConnectionView:
        return ConnectionView(
            number=number, protocol="AMQP", client="EHConsumer-0f9c", software=self.software, rule="root",
            peer="10.0.0.7", namespace="hubmere", is_secure=False, opened_ms=opened_ms, idle_s=0.0,
            links=tuple(LinkView(role=LinkRole.READS, address="orders", reader=reader) for reader in self.readers),
        )  # fmt: skip

    def callers(self) -> tuple[()]:
        return ()

    def disconnect(self, why: str) -> None:
        """Nothing to do."""

    def review(self, judge: object) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    ("software", "name"),
    [
        (_PYTHON, "azsdk-python-eventhubs/5.15.1 at 10.0.0.7, connection 3"),
        (f"billing/2.0 {_PYTHON}", "billing/2.0 at 10.0.0.7, connection 3"),
        ("MSJavaClient 3.3.0 more", "MSJavaClient 3.3.0 at 10.0.0.7, connection 3"),
        ("", "EHConsumer-0f9c at 10.0.0.7, connection 3"),
    ],
)
def test_reader_without_a_name_is_named_after_its_connection(harness: PortalHarness, software: str, name: str) -> None:
    """An operator wants to know which program reads, and to find its connection."""
    reader = harness.a_reader(name="nil")

    assert reader_names([Connection(software, reader).view(3, 0)]) == {reader: name}


def test_name_that_the_client_chose_is_kept(harness: PortalHarness) -> None:
    """It says more than the software."""
    reader = harness.a_reader(name="till-4")

    assert reader_names([Connection(_PYTHON, reader).view(3, 0)]) == {reader: "till-4"}


def test_names_of_connections_need_the_right_to_see_connections(harness: PortalHarness) -> None:
    """They contain addresses."""
    harness.broker.connections.add(Connection(_PYTHON, harness.a_reader(name="nil")), 0)
    listening = harness.a_page_context(harness.a_rule("listening", "Listen"))
    shown = []

    for context in (harness.a_page_context(), listening):
        names = context.reader_names(harness.hub.view)
        [row] = consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms(), names)
        shown.append(row.reader)

    assert shown == ["azsdk-python-eventhubs/5.15.1 at 10.0.0.7, connection 1", "(no name)"]


def test_lag_of_an_unknown_position_is_unknown(harness: PortalHarness) -> None:
    """A lag of 0 would say that everything was read; a group may own a partition before it commits."""
    harness.publish(b"a")
    harness.a_reader()
    [row] = consumer_positions(harness.broker, harness.hub.view, harness.clock.now_ms())

    assert row.lag_text == "1"
    assert replace(row, position=None, lag=0).lag_text == "unknown"


def test_group_has_the_name_with_which_it_was_created(harness: PortalHarness) -> None:
    """Blobs of processors have it in lower case; a group that was deleted keeps the name that is known."""
    assert group_label(harness.broker, harness.hub.view, "$default") == "$Default"
    assert group_label(harness.broker, harness.hub.view, "gone") == "gone"
