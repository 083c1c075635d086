"""Opens and closes the data folder of a node: its lock, secrets, catalog, log engine and audit log."""

import asyncio
import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hubmere.broker.monitoring.conditions import Conditions
from hubmere.model.monitoring.histogram import Histogram
from hubmere.model.monitoring.history import HistoryStore
from hubmere.settings import Settings
from hubmere.store.audit import AUDIT_FILE, AuditLog
from hubmere.store.blob_files import BLOBS_FOLDER, BlobFiles, BodyStore, MemoryBodies
from hubmere.store.catalog.blob_records import BodyPart, decode_parts
from hubmere.store.catalog.guard import check_after_opening, check_before_opening
from hubmere.store.catalog.sqlite import CATALOG_FILE, MEMORY, SqliteCatalog
from hubmere.store.catalog.view import Step
from hubmere.store.engine import Catalog, LogEngine
from hubmere.store.files import Lock, acquire_lock, max_open_files
from hubmere.store.history import HistoryFiles, MemoryHistory
from hubmere.store.local import LocalEngine
from hubmere.store.log.commit import Post
from hubmere.store.memory import MemoryEngine
from hubmere.store.secrets import NodeSecrets

if TYPE_CHECKING:
    from hubmere.broker.broker import Broker
    from hubmere.broker.places import Places
    from hubmere.capture.service import CaptureRole
    from hubmere.endpoints.kafka.forward.port import Coordination
    from hubmere.model.addresses import Addresses
    from hubmere.model.clock import Clock

log = logging.getLogger("hubmere.node")

OnForeign = Callable[[Sequence[Step]], None]


class StoredCatalog(Catalog, Protocol):
    """A catalog of which copies may be kept."""

    def copy_if_changed(self) -> None:
        """Copy the catalog if it has changed since the last copy; may run on any thread."""


class Storage(Protocol):
    """The storage of a node for events and entities: a data folder, memory, or a Kafka cluster.

    `folder` has the secrets of the node; `engine` and `catalog` exist once `open` has returned.
    """

    @property
    def engine(self) -> LogEngine:
        """The logs."""

    @property
    def catalog(self) -> StoredCatalog:
        """The entities."""

    @property
    def folder(self) -> Path:
        """The folder of the secrets."""

    @property
    def secrets(self) -> NodeSecrets:
        """The secrets."""

    @property
    def audit(self) -> AuditLog:
        """The audit log."""

    @property
    def commit_latency(self) -> Histogram:
        """How long appends take until they are durable."""

    @property
    def history(self) -> HistoryStore:
        """The history of metrics."""

    @property
    def bodies(self) -> BodyStore:
        """The bodies of blobs."""

    @property
    def is_locked(self) -> bool:
        """Whether this node owns a data folder on disk."""

    async def open(self) -> None:
        """Open catalog and log engine."""

    def follow(self, on_foreign: OnForeign) -> None:
        """Report changes of entities that were not made by this node."""

    @property
    def capture_role(self) -> "CaptureRole | None":
        """The right to run the capture job; None if no other node could run it."""

    @property
    def shares_units(self) -> bool:
        """Whether other nodes serve the same namespaces, and share their throughput units."""

    def serve(self, broker: "Broker", addresses: "Addresses", clock: "Clock") -> None:
        """All ports are open: begin what needs the broker, until `close`."""

    def check(self, conditions: Conditions) -> None:
        """Called every second: set or clear the conditions of the storage."""

    async def close(self) -> None:
        """Complete what can be completed, and close everything; the folder stays locked until `release`."""

    def release(self) -> None:
        """Unlock or delete the folder."""

    @property
    def places(self) -> "Places | None":
        """Decides which reader has a partition; None if the broker does."""

    @property
    def coordination(self) -> "Coordination | None":
        """The coordinators that serve requests of Kafka groups; None if the broker has the groups."""


def choose_storage(settings: Settings) -> Storage:
    """The storage of the settings; the modules for a cluster are imported only by gateways."""
    if not settings.is_gateway:
        return NodeStorage(settings)
    from hubmere.node.cluster import ClusterStorage

    return ClusterStorage(settings)


class NodeStorage:
    """Storage on disk, or in memory. Thread rule: the loop's thread only.

    `folder` is the data folder. A node in memory has a temporary folder instead, for its secrets only: clients must be
    able to read its CA certificate. `engine`, `catalog` and `bodies` exist once `open` has returned.
    """

    engine: LogEngine
    commit_latency: Histogram
    catalog: SqliteCatalog
    bodies: BodyStore

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._temporary = tempfile.TemporaryDirectory(prefix="hubmere-") if settings.memory else None
        self.folder = settings.data if self._temporary is None else Path(self._temporary.name)
        self.secrets = NodeSecrets(self.folder)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.audit = _audit_log(settings, self._post)
        self.history: HistoryStore = MemoryHistory() if settings.memory else HistoryFiles(settings.data)
        self._lock: Lock | None = None
        self._close: list[Callable[[], None]] = []

    @property
    def is_locked(self) -> bool:
        """Whether this node owns a data folder on disk; False in memory, and until the folder is locked."""
        return self._lock is not None

    def _post(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call)

    async def open(self) -> None:
        """Lock the data folder and open catalog and log engine; refuses a folder that is damaged or in use."""
        loop = self._loop = asyncio.get_running_loop()
        post = self._post

        def defer(call: Callable[[], None]) -> None:
            loop.call_soon(call)

        engine: LocalEngine
        if self._settings.memory:
            engine = MemoryEngine(post=post, defer=defer)
            self.catalog = SqliteCatalog.open(MEMORY, post)
            self.bodies = MemoryBodies()
        else:
            data = self._settings.data
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = acquire_lock(data)
            check_before_opening(data)
            self.catalog = SqliteCatalog.open(data / CATALOG_FILE, post)
            self._close.append(self.catalog.close)
            check_after_opening(data, self.catalog)
            self.catalog.mirror_to(data)
            self.bodies = files = BlobFiles(data / BLOBS_FOLDER, post)
            files.delete_unused(_body_parts(self.catalog))
            engine = LocalEngine(
                data,
                post=post,
                defer=defer,
                durability=self._settings.durability,
                max_open_files=max_open_files(),
            )
        self.engine, self.commit_latency = engine, engine.commit_latency
        self._close = [engine.close, self.bodies.close, self.catalog.close]

    @property
    def places(self) -> None:
        """The broker decides which reader has a partition."""
        return

    @property
    def coordination(self) -> None:
        """The broker has the groups."""
        return

    @property
    def capture_role(self) -> None:
        """This node runs the capture job."""
        return

    @property
    def shares_units(self) -> bool:
        """No other node serves these namespaces."""
        return False

    def serve(self, broker: "Broker", addresses: "Addresses", clock: "Clock") -> None:
        """Does nothing: a data folder needs no broker."""

    def check(self, conditions: Conditions) -> None:
        """Does nothing: `NodeDisk` monitors the disk."""

    def follow(self, on_foreign: OnForeign) -> None:
        """Does nothing: no other process changes the entities of a data folder."""

    async def close(self) -> None:
        """Complete the group commits and close the files; the folder stays locked until `release`."""
        for close in self._close:
            close()

    def release(self) -> None:
        """Close the audit log and unlock the data folder; the temporary folder of a node in memory is deleted."""
        self.audit.close()
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()


def _body_parts(catalog: SqliteCatalog) -> list[BodyPart]:
    """The files that blobs and staged blocks use."""
    view = catalog.view
    committed = [part for blob in view.all_blobs() for part in decode_parts(blob.parts)]
    return committed + [BodyPart(block.file, block.size_bytes) for block in view.all_blocks()]


def _audit_log(settings: Settings, post: Post) -> AuditLog:
    path = settings.data / AUDIT_FILE if settings.audit_log and not settings.memory else None
    return AuditLog(path, max_bytes=settings.audit_log_bytes, post=post, on_failure=_log_audit_failure)


def _log_audit_failure(error: OSError) -> None:
    log.error("the audit log cannot be written; its lines are kept in memory: %s", error)
