"""The last trusted times of the node, stored for the next start, to detect a clock that jumped while it was down.

`<data>/clock.json`, written every half minute and at shutdown. It is not flushed: an older one serves as well.
"""

import json
from pathlib import Path
from typing import NamedTuple

from hubmere.model.clock import Anchor
from hubmere.store.files import Files

CLOCK_FILE = "clock.json"
# No node is down for longer: a clock that is further ahead after a reboot is not trusted at once.
LONGEST_DOWN_MS = 366 * 24 * 3_600_000


class Anchors(NamedTuple):
    """The last trusted times: for event timestamps and for retention."""

    stamps: Anchor
    retention: Anchor


def write_anchors(data: Path, files: Files, anchors: Anchors) -> None:
    """Store trusted times; raises OSError."""
    fresh = data / (CLOCK_FILE + ".tmp")
    kept = {"boot": files.boot_id(), "stamps": list(anchors.stamps), "retention": list(anchors.retention)}
    fresh.write_text(json.dumps(kept), "ascii")
    fresh.replace(data / CLOCK_FILE)


def read_anchors(data: Path, files: Files, now: Anchor) -> Anchors | None:
    """The times against which to check the machine's clock at start; None if none are stored.

    If the machine has not rebooted, the elapsed time since then is known. After a reboot it is not: then events get the
    machine's time if it has moved forward by at most a year, and retention continues from its last time until the
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
