"""The clocks of a node: one for timestamps, and a more cautious one for retention.

Both follow the machine's clock except when it jumps (`model.clock`). A jump is reported in the log, in health and in
the metrics until the machine's clock is right again or the jump is accepted.
"""

import logging

from hubmere.broker.monitoring.conditions import CLOCK, Condition, Conditions, ConditionSeverity
from hubmere.model.clock import Anchor, SteadyClock, SystemClock
from hubmere.settings import Settings
from hubmere.store.clock_file import Anchors, read_anchors, write_anchors
from hubmere.store.files import Files

log = logging.getLogger("hubmere.node")

# Retention cannot be undone, so its clock accepts a jump later than the clock for timestamps.
_RETENTION_PATIENCE = 12


class NodeClocks:
    """The clocks of one node. Thread rule: the loop's thread only."""

    def __init__(self, source: SystemClock, settings: Settings) -> None:
        self._data = settings.data if settings.has_data_folder else None
        self._files = Files()
        self._confirm_s = settings.clock_confirm_s
        now = Anchor(source.now_ms(), source.since_boot())
        kept = None if self._data is None else read_anchors(self._data, self._files, now)
        stamps, retention = kept or (None, None)
        self.stamps = SteadyClock(source, source.since_boot, confirm_s=self._confirm_s, anchor=stamps)
        patience_s = self._confirm_s * _RETENTION_PATIENCE
        self.retention = SteadyClock(source, source.since_boot, confirm_s=patience_s, anchor=retention)
        self._confirmed = 0

    def check(self, conditions: Conditions) -> None:
        """Read both clocks; log and report when the machine's clock jumps, is right again or is accepted."""
        self.stamps.now_ms()
        self.retention.now_ms()
        step_ms = self.stamps.step_ms
        conditions.measures["clock_step_seconds"] = step_ms / 1000
        if step_ms:
            text = (
                f"The machine's clock jumped by {step_ms / 1000:+,.0f} s. Events and retention keep the previous time; "
                f"the new time is accepted when the jump has lasted for {self._confirm_s:,.0f} s."
            )
            remedy = "Set the machine's clock, or wait if the new time is right."
            condition = Condition(name=CLOCK, severity=ConditionSeverity.WARNING, text=text, remedy=remedy)
            if conditions.set(condition):
                log.warning("%s", text)
        elif conditions.clear(CLOCK):
            is_accepted = self.stamps.confirmed_steps > self._confirmed
            log.warning("the machine's clock is %s", "accepted now" if is_accepted else "right again")
        self._confirmed = self.stamps.confirmed_steps

    def save(self) -> None:
        """Store the current time for the next start."""
        if self._data is None:
            return
        self.stamps.now_ms()
        self.retention.now_ms()
        try:
            write_anchors(self._data, self._files, Anchors(self.stamps.anchor, self.retention.anchor))
        except OSError as error:
            log.warning("the current time cannot be stored for the next start: %s", error)
