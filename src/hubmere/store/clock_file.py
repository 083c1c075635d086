"""What the node's clocks showed last, for the next start: a clock that jumps while the node is down is noticed too.

`<data>/clock.json`, written every half minute and at a stop, not flushed: an older one is as good.
"""

import json
from pathlib import Path
from typing import NamedTuple

from hubmere.model.clock import Anchor
from hubmere.store.files import Files

CLOCK_FILE = "clock.json"
# Longer than a node is down: a clock that is further ahead after a reboot is not believed at once.
LONGEST_DOWN_MS = 366 * 24 * 3_600_000


class Anchors(NamedTuple):
    """The last times that were believed: for the times of events, and for retention."""

    stamps: Anchor
    retention: Anchor


def write_anchors(data: Path, files: Files, anchors: Anchors) -> None:
    """Keep times that are believed; raises OSError."""
    fresh = data / (CLOCK_FILE + ".tmp")
    kept = {"boot": files.boot_id(), "stamps": list(anchors.stamps), "retention": list(anchors.retention)}
    fresh.write_text(json.dumps(kept), "ascii")
    fresh.replace(data / CLOCK_FILE)


def read_anchors(data: Path, files: Files, now: Anchor) -> Anchors | None:
    """The times from which to judge the machine's clock at a start; None when there are none.

    In the same boot of the machine the time since then is known. After a reboot it is not. Then events carry the
    machine's time if it has gone forward by no more than a year, and retention goes on from where it was until the
    machine's time is confirmed.
    """
    try:
        kept = json.loads((data / CLOCK_FILE).read_text("ascii"))
        boot, stamps, retention = str(kept["boot"]), _anchor(kept["stamps"]), _anchor(kept["retention"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if boot and boot == files.boot_id() and stamps.elapsed_s <= now.elapsed_s:
        return Anchors(stamps, retention)
    is_plausible = 0 <= now.wall_ms - stamps.wall_ms <= LONGEST_DOWN_MS
    believed = now if is_plausible else Anchor(stamps.wall_ms, now.elapsed_s)
    return Anchors(believed, Anchor(retention.wall_ms, now.elapsed_s))


def _anchor(kept: list[float]) -> Anchor:
    wall_ms, elapsed_s = kept
    return Anchor(int(wall_ms), float(elapsed_s))
