"""PulseBoard: the last report of each gateway, and when it was read. Pure; time is the reader's monotonic clock.

Reports may be missing, late, repeated or unreadable. A report that is older than one of the same session that was read
before is ignored. A gateway whose last report was read FRESH_SECONDS ago or earlier counts as silent; it is forgotten
after FORGET_SECONDS.
"""

from dataclasses import dataclass
from typing import Final

from hubmere.model.monitoring.pulse import GatewayPulse

# Gateways report twice a second: six missing reports.
FRESH_SECONDS: Final = 3.0
# After two missing reports, a gateway that does not beat either has probably died.
MISSING_SECONDS: Final = 1.0
FORGET_SECONDS: Final = 60.0
# Gateways that are remembered. The pulse is read by everybody, which is too much above some hundreds.
MAX_GATEWAYS: Final = 500


@dataclass(frozen=True, slots=True)
class HeardPulse:
    """A report, and when it was read."""

    pulse: GatewayPulse
    heard_at: float


class PulseBoard:
    """What one gateway has read of the pulse. Thread rule: one owner."""

    def __init__(self) -> None:
        self._heard: dict[str, HeardPulse] = {}

    def record(self, pulse: GatewayPulse, now: float) -> bool:
        """Record a report; False if it is late or a repetition."""
        known = self._heard.pop(pulse.session, None)
        if known is not None and known.pulse.number >= pulse.number:
            self._heard[pulse.session] = known
            return False
        # The order of the table is the order in which gateways were heard last.
        self._heard[pulse.session] = HeardPulse(pulse, now)
        self._forget(now)
        return True

    def _forget(self, now: float) -> None:
        oldest = next(iter(self._heard))
        while len(self._heard) > MAX_GATEWAYS or now - self._heard[oldest].heard_at > FORGET_SECONDS:
            del self._heard[oldest]
            oldest = next(iter(self._heard))

    def find(self, session: str) -> HeardPulse | None:
        """The last report of a gateway."""
        return self._heard.get(session)

    def is_missing(self, session: str, now: float) -> bool:
        """Whether the last reports of a gateway are missing."""
        heard = self._heard.get(session)
        return heard is None or now - heard.heard_at >= MISSING_SECONDS

    def fresh(self, now: float) -> dict[str, GatewayPulse]:
        """The reports of gateways that are not silent, by session."""
        return {session: heard.pulse for session, heard in self._heard.items() if now - heard.heard_at < FRESH_SECONDS}
