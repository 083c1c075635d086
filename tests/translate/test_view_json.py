"""Events as the HTTP API returns them."""

import pytest

from hubmere.translate import EventView, event_json


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (-1, "1970-01-01T00:00:00.000+00:00"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123+00:00"),
        (2**63 - 1, "9999-12-31T23:59:59.999+00:00"),
    ],
)
def test_any_timestamp_is_a_time(at_ms: int, text: str) -> None:
    """Kafka producers may send any timestamp, and one such event must not hide the others of its page."""
    event = EventView(
        sequence=0, offset=0, enqueued_ms=at_ms, key=None, partition_key=None, publisher=None, body=None,
        properties={}, system_properties={}, headers=(),
    )  # fmt: skip

    assert event_json(event)["enqueuedTime"] == text
