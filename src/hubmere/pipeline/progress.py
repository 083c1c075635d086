"""How far a query is behind its hubs, from the progress that Spark reports.

Spark's Python sources have no metrics of their own (PySpark 4.3), but the progress of a query has the position that it
has reached and the end of the hub, from which the lag follows.
"""

import json
from collections.abc import Mapping
from typing import Any

from hubmere.pipeline.offsets import CheckpointMismatch, HubOffset, hub_of


def events_behind(progress: Mapping[str, Any] | None) -> dict[str, dict[int, int]]:
    """The events of each partition that a query has not processed, by hub; for `query.lastProgress` and listeners.

    Sources that are not `eventhubs` are left out. So is a source without an end of its hub, as with Spark before 4.2.
    There is no progress (None) before the first micro-batch.
    """
    found: dict[str, dict[int, int]] = {}
    for source in () if progress is None else progress["sources"]:
        reached, latest = (_offset(source[name]) for name in ("endOffset", "latestOffset"))
        if reached is None or latest is None or reached.hub != latest.hub:
            continue
        # The sequence numbers of a hub that was deleted and created again begin at 0.
        begun = reached.next if reached.is_of(latest.id) else {}
        behind = {partition: max(end - begun.get(partition, 0), 0) for partition, end in latest.next.items()}
        found[reached.hub] = {
            partition: max(events, found.get(reached.hub, {}).get(partition, 0)) for partition, events in behind.items()
        }
    return found


def _offset(told: Any) -> HubOffset | None:
    """An offset as Spark reports it: JSON, or already parsed; None if it is not one of this source."""
    try:
        kept = json.loads(told) if isinstance(told, str) else told
        return HubOffset.from_json(hub_of(kept), kept)
    except (AttributeError, CheckpointMismatch, TypeError, ValueError):
        return None
