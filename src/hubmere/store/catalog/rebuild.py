"""Rebuilds a catalog from its newest sound copy and from the hub descriptions beside the log folders.

1. The existing catalog is renamed, never deleted.
2. The newest sound copy replaces it; without one, the new catalog is empty.
3. Hubs that the copy lacks, but that have logs or descriptions, are added under their old uid.

A copy restores everything up to its time: namespaces, rules and keys, checkpoints, offsets of Kafka groups. Everything
else is lost: without a copy each namespace gets a new root key, and readers start where their own settings say.
Called while no node uses the folder.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hubmere.model.entity import ConsumerGroup, Hub, Namespace
from hubmere.model.names import DEFAULT_GROUP, group_name, hub_name, namespace_name
from hubmere.model.spec import root_rule
from hubmere.model.tier import Tier
from hubmere.store.catalog.check import check_catalog
from hubmere.store.catalog.guard import log_uids
from hubmere.store.catalog.mirror import REVISION_FILE, HubDescription, list_copies, read_descriptions, read_revision
from hubmere.store.catalog.runtime_state import Counter
from hubmere.store.catalog.sqlite import CATALOG_FILE, LOGS_FOLDER, SqliteCatalog
from hubmere.store.catalog.view import Create, Put, Replace

# Numbers that a lost catalog may have reserved since its copy was made: they are not used again.
_SKIPPED_NUMBERS = 1_000_000_000
_COUNTER = "producer-id"
_RECOVERED = "recovered"
_SHORT_UID = 8


def rebuild_catalog(data: Path, now_ms: int) -> Iterator[str]:
    """Rebuild the catalog of a data folder; yields a sentence for each step and each loss."""
    path = data / CATALOG_FILE
    aside = _move_aside(data, path)
    if aside is not None:
        yield f"the old catalog is kept as {aside}"
    copy = next((each for each in list_copies(data) if not check_catalog(each)), None)
    if copy is None:
        yield "there is no sound copy: keys, rules, checkpoints and group offsets are lost"
    else:
        made = datetime.fromtimestamp(copy.stat().st_mtime, UTC).isoformat(timespec="seconds")
        shutil.copy2(copy, path)
        yield f"restored from the copy of {made}; later changes are lost, except those that the log folders describe"
    kept = read_revision(data)
    (data / REVISION_FILE).unlink(missing_ok=True)
    catalog = SqliteCatalog.open(path)
    try:
        yield from _Rebuild(catalog, data, now_ms).run()
        if kept is not None:
            catalog.continue_after(kept.number)
        catalog.mirror_to(data)
    finally:
        catalog.close()


def _move_aside(data: Path, path: Path) -> str | None:
    number = 1
    while (data / f"{CATALOG_FILE}.damaged-{number}").exists():
        number += 1
    name = f"{CATALOG_FILE}.damaged-{number}"
    has_moved = False
    for suffix in ("", "-wal", "-shm"):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(data / (name + suffix))
            has_moved = True
    return name if has_moved else None


class _Rebuild:
    """Adds hubs to a catalog from the log folders."""

    def __init__(self, catalog: SqliteCatalog, data: Path, now_ms: int) -> None:
        self._catalog = catalog
        self._data = data
        self._now_ms = now_ms

    def run(self) -> Iterator[str]:
        """Add and update hubs; yields a sentence for each."""
        described = dict(read_descriptions(self._data / LOGS_FOLDER))
        removed = {deletion.hub_uid for deletion in self._catalog.pending_deletions()}
        for uid in sorted(log_uids(self._data) - removed):
            found = described.get(uid)
            if self._catalog.view.hub_of_uid(uid) is None:
                yield from self._add(uid, found)
            elif found is not None:
                yield from self._update(found)
        skipped = self._catalog.view.counter(_COUNTER) + _SKIPPED_NUMBERS
        self._catalog.apply(Put(Counter(name=_COUNTER, next_value=skipped)))

    def _add(self, uid: str, found: HubDescription | None) -> Iterator[str]:
        if found is None:
            found = self._guess(uid)
            yield f"the log folders of {uid} have no description: the hub is now called '{found.hub.name}'"
        namespace = self._catalog.view.find_namespace(found.namespace.name)
        if namespace is None:
            rule = root_rule(found.namespace, now_ms=self._now_ms)
            self._catalog.apply(Create(found.namespace), Create(rule))
            yield f"restored namespace '{found.namespace.name}' with a new root key"
        hub = found.hub
        if self._catalog.view.find_hub(hub.namespace, hub.name) is not None:
            hub = _with_free_name(hub)
        self._catalog.apply(Create(hub), *(Create(group) for group in found.groups))
        groups = ", ".join(group.name for group in found.groups)
        yield f"restored hub '{hub.namespace}/{hub.name}' with {hub.partition_count} partitions and groups {groups}"

    def _update(self, found: HubDescription) -> Iterator[str]:
        """The copy may be older than a change of the hub: more partitions, or another consumer group."""
        known = self._catalog.view.hub_of_uid(found.hub.uid)
        if known is not None and known != found.hub and known.name == found.hub.name:
            self._catalog.apply(Replace(found.hub))
            yield f"restored the settings of hub '{known.namespace}/{known.name}' from its description"
        for group in found.groups:
            if self._catalog.view.find_group(found.hub, group.name) is None:
                self._catalog.apply(Create(group))
                yield f"restored consumer group '{group.name}' of hub '{found.hub.name}'"

    def _guess(self, uid: str) -> HubDescription:
        """A hub of which only the log folders are left."""
        numbers = [
            int(path.name.rpartition("-")[2])
            for path in (self._data / LOGS_FOLDER).glob(f"{uid}-*")
            if path.name.rpartition("-")[2].isdigit()
        ]
        namespaces = self._catalog.view.namespaces()
        tier = Tier.STANDARD
        namespace = namespaces[0] if namespaces else Namespace(name=namespace_name("hubmere"), tier=tier)
        hub = Hub(
            namespace=namespace.name,
            name=hub_name(f"{_RECOVERED}-{uid[:_SHORT_UID]}"),
            uid=uid,
            topic_id=uid,
            partition_count=max(numbers, default=0) + 1,
            created_ms=self._now_ms,
            updated_ms=self._now_ms,
        )
        return HubDescription(namespace, hub, [ConsumerGroup(hub_uid=uid, name=group_name(DEFAULT_GROUP))])


def _with_free_name(hub: Hub) -> Hub:
    return replace(hub, name=hub_name(f"{hub.name}-{_RECOVERED}-{hub.uid[:_SHORT_UID]}"))
