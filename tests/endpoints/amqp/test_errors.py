"""The table from refusals to AMQP conditions."""

import re
from collections.abc import Iterator

import pytest

from hubmere.endpoints.amqp.errors import TABLE, RecentlyBusy, entity_name, row_of, with_tracking
from hubmere.endpoints.amqp.links.publish_link import DeliveryTooLarge
from hubmere.model import errors
from hubmere.model.errors import Refusal
from hubmere.wire.amqp import Condition


def tree(kind: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    """Every refusal of the model; other packages test their own classes."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith(errors.__name__ + "."):
            yield from tree(child)


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_row(kind: type[Refusal]) -> None:
    """A refusal without a row would give clients an unspecific error."""
    assert kind in TABLE


def test_every_row_has_a_condition_and_an_error_status() -> None:
    """SDKs decide by the condition on links, and by the status in replies."""
    for row in TABLE.values():
        assert isinstance(row.condition, Condition)
        assert 400 <= row.status < 600


def test_a_refusal_without_a_row_uses_the_row_of_its_base_class() -> None:
    """Endpoints refine texts, never conditions."""
    refusal = DeliveryTooLarge(7, 200, 100, "This limit is fixed.")

    assert row_of(refusal).condition is Condition.LINK_MESSAGE_SIZE_EXCEEDED
    assert "delivery-id:7, size:200 bytes" in refusal.text()
    assert refusal.text().endswith("currently allowed on the link. This limit is fixed.")


@pytest.mark.parametrize("kind", [errors.ServerBusy, errors.PartitionOffline, errors.StorageFull, errors.ShuttingDown])
def test_temporary_refusal_detaches_the_link(kind: type[Refusal]) -> None:
    """The Azure SDK for Python does not retry a rejected delivery, but attaches again after a detach."""
    assert TABLE[kind].detaches


@pytest.mark.parametrize(
    "kind", [errors.PublicationTooLarge, errors.SequenceGap, errors.UndecodableMessage, errors.InvalidArgument]
)
def test_refusal_that_the_sender_must_fix_rejects_the_delivery(kind: type[Refusal]) -> None:
    """A retry with the same event would never succeed."""
    assert not TABLE[kind].detaches


def test_description_ends_with_the_tracking_part_of_the_service() -> None:
    """Support tools and one SDK look for these three words."""
    text = with_tracking("No.", "ns", "orders", 1_700_000_000_000)

    assert re.fullmatch(
        r"No\. TrackingId:[0-9a-f-]{36}_G1, SystemTracker:ns:eventhub:orders, Timestamp:2023-11-14T22:13:20", text
    )


@pytest.mark.parametrize(
    ("place", "named"),
    [(("orders",), "orders"), (("orders", 3), "orders~3"), (("orders", "3", "$Default"), "orders~3|$Default")],
)
def test_a_tracking_part_names_partition_and_group(place: tuple[str, ...], named: str) -> None:
    """A reader of the log can identify the receiver."""
    assert entity_name(*place) == named


def test_hub_that_detached_a_link_refuses_the_next_attach_for_a_short_time() -> None:
    """This applies only to temporary reasons, and only for a short time."""
    busy, refusal = RecentlyBusy(), errors.ServerBusy(4.0)
    busy.note("hub", refusal, now=10.0)
    busy.note("other", errors.EntityDisabled("other", "Disabled"), now=10.0)

    with pytest.raises(errors.ServerBusy):
        busy.check("hub", now=10.2)
    busy.check("hub", now=11.0)
    busy.check("other", now=10.2)
    busy.check("unknown", now=10.2)
