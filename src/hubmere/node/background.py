"""The node's background loops: each calls a pure decision on its schedule, and logs what was done.

- Every second: clocks, free disk space, and the broker's `Upkeep.tick`.
- Every 30 seconds: recovery points of the logs, and another attempt to open logs that failed.
- A few seconds after entities changed: a copy of the catalog.
- At `retention_check_interval_s`: retention and compaction, one partition at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from hubmere.broker import HubView
from hubmere.broker.broker import Broker
from hubmere.broker.management.manager import Actor
from hubmere.broker.upkeep import RetentionReport
from hubmere.endpoints.opening import run_when_open
from hubmere.model.errors import NotFound, Refusal
from hubmere.node.runtime.clocks import NodeClocks
from hubmere.node.runtime.disks import NodeDisk
from hubmere.node.storage import Storage
from hubmere.settings import Settings

log = logging.getLogger("hubmere.node")

_TICK_SECONDS = 1.0
_MAINTAIN_SECONDS = 30.0
# How soon a change of entities is in the copy of the catalog.
_COPY_SECONDS = 30.0


class Background:
    """The loops of one node. Thread rule: the loop's thread only."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        storage: Storage,
        clocks: NodeClocks,
        actor: Callable[[], Actor],
    ) -> None:
        self._retention_interval_s = settings.retention_check_interval_s
        self._broker = broker
        self._storage = storage
        self._clocks = clocks
        self._actor = actor
        self._disk = NodeDisk(settings, storage.engine, broker.conditions)

    def loops(self) -> list[Coroutine[None, None, None]]:
        """The loops, each to be run as a task until it is cancelled."""
        return [self._tick(), self._copy_catalog(), self._clean_logs()]

    async def _tick(self) -> None:
        self._disk.check()
        maintain_at = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._clocks.check(self._broker.conditions)
            self._disk.check()
            self._storage.check(self._broker.conditions)
            for ended in self._broker.upkeep.tick(self._actor()):
                log.warning("%s", ended)
            self._expire_openings()
            clock = self._clocks.stamps
            if clock.monotonic() >= maintain_at:
                maintain_at = clock.monotonic() + _MAINTAIN_SECONDS
                self._storage.engine.maintain(clock.now_ms())
                self._clocks.save()
                self._broker.blob_accounts.drop_old_blocks(clock.now_ms())

    def _expire_openings(self) -> None:
        try:
            self._broker.upkeep.expire_openings(self._clocks.stamps.monotonic())
        except Exception:  # the top of a callback: one client's error must not end the node
            log.exception("a request that waited for a log failed")

    async def _copy_catalog(self) -> None:
        """Keep a copy of the catalog, so that keys and rules survive damage of the catalog."""
        while True:
            await asyncio.to_thread(self._storage.catalog.copy_if_changed)
            await asyncio.sleep(_COPY_SECONDS)

    async def _clean_logs(self) -> None:
        while True:
            await asyncio.sleep(self._retention_interval_s)
            for hub, partition in self._broker.upkeep.partitions():
                await asyncio.sleep(0)
                await self.clean_log(hub, partition)

    async def clean_log(self, hub: HubView, partition: int) -> None:
        """Apply retention to a partition, and compact it if its hub is compacted."""
        label = f"{hub.entity.namespace}/{hub.name}/{partition}"
        now_ms = self._clocks.retention.now_ms()

        async def apply_retention() -> RetentionReport:
            return self._broker.upkeep.apply_retention(hub, partition, now_ms)

        try:
            report = await run_when_open(apply_retention, self._clocks.stamps)
            reclaimed_bytes = await self._compact(hub, partition, now_ms)
        except NotFound:
            # The hub was deleted since the list of partitions was made.
            return
        except (Refusal, OSError) as error:
            log.warning("retention for %s postponed: %s", label, error)
            return
        _log_retention(label, report, reclaimed_bytes)

    async def _compact(self, hub: HubView, partition: int, now_ms: int) -> int:
        """Run one compaction pass, off the loop; returns the bytes that it reclaimed."""
        compaction = self._broker.upkeep.compaction(hub, partition, now_ms)
        if compaction is None:
            return 0
        await asyncio.to_thread(compaction.rewrite)
        return compaction.adopt(now_ms)


def _log_retention(label: str, report: RetentionReport, reclaimed_bytes: int) -> None:
    if report.deleted_segments or reclaimed_bytes:
        log.info(
            "%s: segments deleted: %d, bytes reclaimed by compaction: %d",
            label,
            report.deleted_segments,
            reclaimed_bytes,
        )
    if report.is_newly_held:
        log.warning("%s: %d bytes are past retention and kept until they are captured", label, report.held_bytes)
    if report.lost:
        first, last = report.lost[0], report.lost[-1]
        log.error("%s: retention deleted events before they were captured: sequence %d to %d", label, first, last)
