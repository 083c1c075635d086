"""The table of events that Explorer and the page of captured files share."""

from collections.abc import Callable

from hubmere.portal import formatting
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.paged_table import Column, PagedTable


def event_table(on_open: Callable[[str], None]) -> PagedTable[FoundEvent]:
    """A table of events; a click on a row, or its button, opens the event with the key of the row."""

    def act(_action: str, key: str) -> None:
        on_open(key)

    return PagedTable[FoundEvent](
        (
            Column("partition", "Partition", lambda hit: hit.partition),
            Column("sequence", "Sequence", lambda hit: hit.event.sequence, is_number=True),
            Column("offset", "Offset", lambda hit: str(hit.event.offset), is_number=True),
            Column("enqueued", "Enqueued (UTC)", lambda hit: formatting.timestamp(hit.event.enqueued_ms)),
            Column("key", "Key", _key, cuts=True),
            Column("size", "Size", lambda hit: formatting.size(len(hit.event.body or b"")), is_number=True),
            Column("body", "Body", lambda hit: formatting.preview(hit.event.body), cuts=True, fills=True),
        ),
        key=row_key,
        actions=lambda _: ["Open"],
        on_act=act,
        on_row=on_open,
        actions_first=True,
        empty_text="No events.",
    )


def row_key(hit: FoundEvent) -> str:
    """The key of an event among those of one table."""
    return f"{hit.partition}/{hit.event.sequence}"


def _key(hit: FoundEvent) -> str:
    event = hit.event
    key = event.key if event.partition_key is None else event.partition_key.encode()
    return formatting.preview(key) if key else ""
