"""Findings about event processors: their checkpoints and owners that are stored on the node."""

from itertools import pairwise

from hubmere.broker import ProcessorState
from hubmere.broker.blobs.owner_moves import MAX_BLOBS, OwnerMoves
from hubmere.broker.blobs.processors import ProcessorPartition
from hubmere.portal.doctor.finding import Severity
from hubmere.portal.doctor.processor_checks import processor_findings
from hubmere.store.catalog.blob_records import BlobRecord

_NAME = "localhost/orders/$default/ownership/0"


def a_state(**changes: int) -> ProcessorState:
    stored = ProcessorPartition(
        host="localhost", hub="orders", group="$default", partition="0", container="c", account="a", owner="worker-7"
    )
    values = {"lag": 3, "owner_moves": 0, "lost_events": 0, **changes}
    return ProcessorState("orders", 0, stored, values["lag"], values["owner_moves"], values["lost_events"])


def a_blob(owner: str, name: str = _NAME) -> BlobRecord:
    metadata = f'{{"ownerid":"{owner}"}}'
    return BlobRecord(
        account="a", container="c", name=name, etag="1", metadata=metadata, created_ms=0, modified_ms=0, size_bytes=0
    )


def test_healthy_processor_has_no_finding() -> None:
    """A partition that moves once, as at every deployment, is not reported either."""
    assert list(processor_findings([a_state(), a_state(owner_moves=1)])) == []


def test_moving_owner_and_lost_events_are_found() -> None:
    """Lost events are an error: they can no longer be read."""
    found = list(processor_findings([a_state(owner_moves=14), a_state(lost_events=1200)]))

    assert [(each.severity, each.problem, each.location) for each in found] == [
        (Severity.WARNING, "Moving owner", "orders/0 as $default"),
        (Severity.ERROR, "Checkpoint older than retention", "orders/0 as $default"),
    ]
    assert "moved 14 times in a minute" in found[0].description
    assert found[1].description.startswith("1,200 events")


def test_moves_are_counted_for_a_minute() -> None:
    """A renewal, a release and a claim of a free partition do not count as moves."""
    moves = OwnerMoves()
    owners = ["one", "one", "two", "", "one", "two", "one"]
    for second, (before, after) in enumerate(pairwise(owners)):
        moves.record(a_blob(before), a_blob(after), second * 1000)
    moves.record(None, a_blob("one"), 0)
    moves.record(a_blob("one", "some/other/blob"), a_blob("two", "some/other/blob"), 0)

    assert moves.count("a", "c", _NAME, 6000) == 3
    assert moves.count("a", "c", _NAME, 61_500) == 2
    assert moves.count("a", "c", _NAME, 200_000) == 0
    assert moves.count("a", "c", "some/other/blob", 0) == 0


def test_number_of_watched_blobs_is_bounded() -> None:
    """Clients choose the names."""
    moves = OwnerMoves()
    for number in range(MAX_BLOBS + 5):
        name = f"host/hub{number}/group/ownership/0"
        moves.record(a_blob("one", name), a_blob("two", name), 0)

    assert len(moves._moves) == MAX_BLOBS
