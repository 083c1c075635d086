"""Making a catalog again: from its newest sound copy, and from the descriptions beside the log folders.

1. The catalog that is there is put aside under another name, never deleted.
2. The newest copy that is sound takes its place; without one the new catalog is empty.
3. Hubs that it does not know and whose logs or descriptions are there are added, under their old uid.

A copy brings back everything up to its time: namespaces, rules and keys, checkpoints, offsets of Kafka groups. What no
copy has is lost: without one each namespace gets a new root key, and readers begin where their own settings say.
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
from hubmere.store.catalog.mirror import REVISION_FILE, Described, copies, read_descriptions, read_revision
from hubmere.store.catalog.runtime_state import Counter
from hubmere.store.catalog.sqlite import CATALOG_FILE, LOGS_FOLDER, SqliteCatalog
from hubmere.store.catalog.view import Create, Put, Replace

# Numbers that a lost catalog may have handed out since its copy was made: none of them is used again.
_SKIPPED_NUMBERS = 1_000_000_000
_COUNTER = "producer-id"
_RECOVERED = "recovered"
_SHORT_UID = 8


def rebuild_catalog(data: Path, now_ms: int) -> Iterator[str]:
    """Make the catalog of a data folder again; yields what was done and what is lost, a sentence each."""
    path = data / CATALOG_FILE
    aside = _put_aside(data, path)
    if aside is not None:
        yield f"the catalog that was there is kept as {aside}"
    copy = next((each for each in copies(data) if not check_catalog(each)), None)
    if copy is None:
        yield "there is no sound copy: keys, rules, checkpoints and offsets of groups cannot be brought back"
    else:
        made = datetime.fromtimestamp(copy.stat().st_mtime, UTC).isoformat(timespec="seconds")
        shutil.copy2(copy, path)
        yield f"restored from the copy of {made}; changes after it are lost where a log folder does not have them"
    kept = read_revision(data)
    (data / REVISION_FILE).unlink(missing_ok=True)
    catalog = SqliteCatalog.open(path)
    try:
        yield from _Rebuilding(catalog, data, now_ms).run()
        if kept is not None:
            catalog.continue_after(kept.number)
        catalog.mirror_to(data)
    finally:
        catalog.close()


def _put_aside(data: Path, path: Path) -> str | None:
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


class _Rebuilding:
    """Adds what the log folders know to a catalog."""

    def __init__(self, catalog: SqliteCatalog, data: Path, now_ms: int) -> None:
        self._catalog = catalog
        self._data = data
        self._now_ms = now_ms

    def run(self) -> Iterator[str]:
        """Add hubs; a sentence for each."""
        described = dict(read_descriptions(self._data / LOGS_FOLDER))
        gone = {deletion.hub_uid for deletion in self._catalog.pending_deletions()}
        for uid in sorted(log_uids(self._data) - gone):
            found = described.get(uid)
            if self._catalog.view.hub_of_uid(uid) is None:
                yield from self._add(uid, found)
            elif found is not None:
                yield from self._update(found)
        skipped = self._catalog.view.counter(_COUNTER) + _SKIPPED_NUMBERS
        self._catalog.apply(Put(Counter(name=_COUNTER, next_value=skipped)))

    def _add(self, uid: str, found: Described | None) -> Iterator[str]:
        if found is None:
            found = self._guess(uid)
            yield f"the log folders of {uid} have no description: its hub is called '{found.hub.name}' now"
        namespace = self._catalog.view.find_namespace(found.namespace.name)
        if namespace is None:
            rule = root_rule(found.namespace, now_ms=self._now_ms)
            self._catalog.apply(Create(found.namespace), Create(rule))
            yield f"namespace '{found.namespace.name}' is back with a new root key"
        hub = found.hub
        if self._catalog.view.find_hub(hub.namespace, hub.name) is not None:
            hub = _renamed(hub)
        self._catalog.apply(Create(hub), *(Create(group) for group in found.groups))
        groups = ", ".join(group.name for group in found.groups)
        yield f"hub '{hub.namespace}/{hub.name}' is back with {hub.partition_count} partitions and groups {groups}"

    def _update(self, found: Described) -> Iterator[str]:
        """A copy may be older than a change of the hub: more partitions, or another consumer group."""
        known = self._catalog.view.hub_of_uid(found.hub.uid)
        if known is not None and known != found.hub and known.name == found.hub.name:
            self._catalog.apply(Replace(found.hub))
            yield f"hub '{known.namespace}/{known.name}' has the settings that its description has"
        for group in found.groups:
            if self._catalog.view.find_group(found.hub, group.name) is None:
                self._catalog.apply(Create(group))
                yield f"consumer group '{group.name}' of hub '{found.hub.name}' is back"

    def _guess(self, uid: str) -> Described:
        """A hub of which nothing is left but its log folders."""
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
        return Described(namespace, hub, [ConsumerGroup(hub_uid=uid, name=group_name(DEFAULT_GROUP))])


def _renamed(hub: Hub) -> Hub:
    return replace(hub, name=hub_name(f"{hub.name}-{_RECOVERED}-{hub.uid[:_SHORT_UID]}"))
