"""Monitors the free space of the data folder: warns before the disk is full, and stops appends when it is."""

import logging

from hubmere.broker.monitoring.conditions import DISK, Condition, Conditions, ConditionSeverity
from hubmere.settings import Settings
from hubmere.store.disk import DiskLevel, DiskMonitor
from hubmere.store.engine import LogEngine
from hubmere.store.files import Files

log = logging.getLogger("hubmere.node")

_REMEDY = "Free space on the disk, shorten the retention of hubs, or move the data folder to a larger disk."


class NodeDisk:
    """Monitors the disk of one node. Thread rule: the loop's thread only."""

    def __init__(self, settings: Settings, engine: LogEngine, conditions: Conditions) -> None:
        self._watch: DiskMonitor | None = None
        if settings.has_data_folder:
            self._watch = DiskMonitor(
                Files(),
                settings.data,
                warn_percent=settings.disk_warn_percent,
                reserve_bytes=settings.disk_reserve_bytes,
            )
        self._engine = engine
        self._conditions = conditions

    def check(self) -> None:
        """Measure once: set or clear the condition, and stop or allow appends."""
        if self._watch is None:
            return
        try:
            state = self._watch.measure()
        except OSError as error:
            log.warning("the free space of the data folder cannot be read: %s", error)
            return
        self._conditions.measures["disk_free_bytes"] = state.free_bytes
        self._conditions.measures["disk_total_bytes"] = state.total_bytes
        is_full = state.level is DiskLevel.FULL
        self._engine.set_shortage(state.text if is_full else None)
        if state.level is DiskLevel.NORMAL:
            if self._conditions.clear(DISK):
                log.warning("the disk of the data folder has enough free space again")
            return
        severity = ConditionSeverity.CRITICAL if is_full else ConditionSeverity.WARNING
        effect = "; events are refused, reading continues." if is_full else "."
        text = f"{state.text[0].upper()}{state.text[1:]}{effect}"
        if self._conditions.set(Condition(name=DISK, severity=severity, text=text, remedy=_REMEDY)):
            (log.error if is_full else log.warning)("%s", text)
