"""Committed offsets of Kafka groups, persisted in the catalog.

A commit is acknowledged once it is durable. Whether a member may commit at all is the group's decision (`groups`).
Offsets are deleted with their hub, with their group, and a week after the group's last member has left.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hubmere.broker.coordinator.refusals import OffsetMetadataTooLarge
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.quotas.commit_pace import CommitPace
from hubmere.model.entity import Hub
from hubmere.model.errors import PartitionNotFound, Refusal
from hubmere.store.catalog.runtime_state import GroupOffset
from hubmere.store.catalog.view import Drop, Put
from hubmere.store.engine import Catalog

# The longest metadata of an offset (reference: kafka 1.4).
MAX_METADATA_BYTES = 1024
# Kafka's offsets.retention.minutes: the offsets of a group that is empty for this long are deleted.
RETENTION_MS = 7 * 24 * 3_600_000

OnDone = Callable[[Refusal | None], None]


class Commit(NamedTuple):
    """One offset to commit: the next event of a partition to read."""

    hub: Hub
    partition: int
    sequence: int
    leader_epoch: int
    metadata: str


class Offsets:
    """The committed offsets of one namespace.

    Thread rule: the owner's thread only.
    """

    def __init__(self, namespace: LiveNamespace, catalog: Catalog) -> None:
        self._namespace = namespace
        self._catalog = catalog
        self._pace = CommitPace()

    @property
    def _key(self) -> str:
        return self._namespace.entity.key[0]

    def check(self, group_id: str, commit: Commit) -> None:
        """Refuse an offset that cannot be committed."""
        count = commit.hub.partition_count
        if not 0 <= commit.partition < count:
            raise PartitionNotFound(commit.hub.name, str(commit.partition), count)
        if len(commit.metadata.encode()) > MAX_METADATA_BYTES:
            raise OffsetMetadataTooLarge(group_id, MAX_METADATA_BYTES)

    def record(self, group_id: str, commit: Commit, now_ms: int) -> GroupOffset:
        """The catalog record of a checked commit."""
        return GroupOffset(
            namespace=self._key,
            group_id=group_id,
            hub_uid=commit.hub.uid,
            partition=commit.partition,
            sequence=commit.sequence,
            leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            committed_ms=now_ms,
        )

    def commit(self, group_id: str, commits: Iterable[Commit], now_ms: int, on_done: OnDone) -> None:
        """Persist checked commits, all or none.

        A negative offset is kept as it is, as Kafka does: kafkajs commits -1 or -2 after OFFSET_OUT_OF_RANGE, reads it
        back and then starts at its default position. Every client takes a negative answer as "no position".
        """
        records = [self.record(group_id, commit, now_ms) for commit in commits]
        if not records:
            on_done(None)
            return
        self._catalog.submit(*map(Put, records), callback=on_done)

    def delay(self, group_id: str, commits: Iterable[Commit], now: float) -> float:
        """How long to throttle a client that commits more often than the tier allows; no commit is lost."""
        places = ((group_id, commit.hub.uid, commit.partition) for commit in commits)
        return self._pace.delay(places, self._namespace.limits.offset_commits_per_second, now)

    def find(self, group_id: str, hub: Hub, partition: int) -> GroupOffset | None:
        """The committed offset of a group for a partition."""
        return self._catalog.view.group_offset(self._key, group_id, hub.uid, partition)

    def all(self, group_id: str) -> Sequence[tuple[Hub, GroupOffset]]:
        """All committed offsets of a group, with their hubs."""
        return [(hub.entity, offset) for hub, offset in self._all(group_id)]

    def _all(self, group_id: str) -> Sequence[tuple[LiveHub, GroupOffset]]:
        hubs = {hub.entity.uid: hub for hub in self._namespace.hubs.values()}
        offsets = self._catalog.view.group_offsets(self._key, group_id)
        return [(hubs[offset.hub_uid], offset) for offset in offsets if offset.hub_uid in hubs]

    def hub_uids(self, group_id: str) -> set[str]:
        """The hubs that a group has committed for, including deleted ones."""
        return {offset.hub_uid for offset in self._catalog.view.group_offsets(self._key, group_id)}

    def delete(self, group_id: str, places: Iterable[tuple[Hub, int]], on_done: OnDone) -> None:
        """Delete committed offsets of a group; missing ones are ignored."""
        found = [offset for hub, partition in places if (offset := self.find(group_id, hub, partition)) is not None]
        self._catalog.submit(*map(Drop, found), callback=on_done)

    def expire(self, is_empty: Callable[[str], bool], now_ms: int) -> None:
        """Called periodically: record since when groups are empty, and delete offsets of groups empty for too long."""
        for group_id in self._catalog.view.groups_with_offsets(self._key):
            offsets = self._catalog.view.group_offsets(self._key, group_id)
            steps = _steps(offsets, is_empty=is_empty(group_id), now_ms=now_ms)
            if steps:
                self._catalog.submit(*steps)


def _steps(offsets: Sequence[GroupOffset], *, is_empty: bool, now_ms: int) -> list[Put | Drop]:
    """The catalog steps for a group's offsets: their expiry runs only while the group is empty."""
    expires_ms = now_ms + RETENTION_MS if is_empty else None
    changed = [offset for offset in offsets if (offset.expires_ms is None) is is_empty]
    over = [offset for offset in offsets if is_empty and offset.expires_ms is not None and offset.expires_ms <= now_ms]
    return [*(Put(replace(offset, expires_ms=expires_ms)) for offset in changed), *map(Drop, over)]
