"""Log lines about refused requests and closed connections: which namespace, hub and client, and why.

A client that repeats its mistake must not fill the disk, and one mistake must not hide another. So lines are limited by
kind of refusal, namespace, hub and address: the first few of ten seconds are written, the others are counted, and the
next line says how many there were. Lines about connections are limited by their text and the address. The table of
counts is bounded; when it is full, it starts again.
Thread rule: the node's loop only.
"""

import logging
import re
import time
from typing import Final

from hubmere.model.errors import Refusal

LINES_PER_INTERVAL: Final = 5
INTERVAL_S: Final = 10.0
# Combinations that are counted at the same time, about 200 bytes each.
MAX_KEYS: Final = 1000

# The text of `write_connection` for a connection that the node closes, and why.
CLOSED: Final = "a connection from %s is closed: %s"

# Names come from clients: a line stays one line.
_MAX_NAME: Final = 256
_NOT_SHOWN: Final = re.compile(r"[^\x20-\x7e]")

_Key = tuple[type[Refusal] | str, str, str, str]


class RefusalLog:
    """Writes lines about refusals, and limits their number."""

    def __init__(self) -> None:
        # Start of the interval, lines written in it, lines left out since the last one.
        self._counts: dict[_Key, list[float]] = {}

    def write(
        self,
        log: logging.Logger,
        what: str,
        refusal: Refusal,
        *,
        namespace: str,
        hub: str,
        peer: str,
        tracking_id: str | None = None,
    ) -> None:
        """Log a refusal, unless this client has had the same one too often."""
        if not log.isEnabledFor(logging.INFO):
            return
        omitted = self._take((type(refusal), namespace, hub, peer), time.monotonic())
        if omitted is None:
            return
        hub = _NOT_SHOWN.sub("?", hub[:_MAX_NAME])
        place = "/".join(part for part in (namespace, hub) if part) or "-"
        tracking = f" TrackingId:{tracking_id}" if tracking_id else ""
        log.info(
            "refused %s on %s from %s: %s%s%s", what, place, peer, refusal.text(), tracking, _more(omitted),
            extra={"namespace": namespace, "hub": hub, "peer": peer, "tracking_id": tracking_id or ""},
        )  # fmt: skip

    def write_connection(self, log: logging.Logger, text: str, peer: str, *values: object) -> None:
        """Log what happened to a connection of a client, unless the client has had the same line too often.

        The text has a `%s` for the client's address, and one for each value.
        """
        if not log.isEnabledFor(logging.INFO):
            return
        omitted = self._take((text, "", "", peer), time.monotonic())
        if omitted is not None:
            log.info(f"{text}%s", peer, *values, _more(omitted), extra={"peer": peer})

    def _take(self, key: _Key, now: float) -> int | None:
        """How many lines were left out before this one; None if this one is left out, too."""
        counted = self._counts.get(key)
        if counted is None:
            if len(self._counts) >= MAX_KEYS:
                self._counts.clear()
            self._counts[key] = [now, 1, 0]
            return 0
        if now - counted[0] >= INTERVAL_S:
            omitted = int(counted[2])
            counted[:] = [now, 1, 0]
            return omitted
        if counted[1] < LINES_PER_INTERVAL:
            counted[1] += 1
            return 0
        counted[2] += 1
        return None


def _more(omitted: int) -> str:
    return f" ({omitted} more like this were not logged)" if omitted else ""


REFUSALS: Final = RefusalLog()
