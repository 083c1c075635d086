"""Runtime state in the catalog: offsets, transactions, progress of Capture, counters, pending deletions.

Plain values whose fields are the columns of the catalog's tables. A record refers to its hub by uid, so a hub that is
created again under an old name starts without state. Kafka group ids keep their case.
"""

from dataclasses import dataclass

ItemKey = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The offset that a Kafka group committed for a partition: `sequence` is the next event to read."""

    namespace: str
    group_id: str
    hub_uid: str
    partition: int
    sequence: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0
    expires_ms: int | None = None

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.namespace, self.group_id, self.hub_uid, self.partition)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return (self.namespace, self.group_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """State of a Kafka group that survives a restart, encoded by the group coordinator."""

    namespace: str
    group_id: str
    state: str
    modified_ms: int = 0

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.namespace, self.group_id)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return (self.namespace,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """State of a transactional producer, encoded by the transaction coordinator."""

    namespace: str
    transactional_id: str
    state: str
    modified_ms: int = 0

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.namespace, self.transactional_id)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return (self.namespace,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureState:
    """Progress of capture on a partition: `sequence` is the first event that no published file contains.

    `capture_id` identifies the period of capturing (model.entity.CaptureStart). The totals are the job's; `last_file`
    is its report on the newest file, as JSON. The job's own checkpoint and the files decide what is captured; this
    record serves the retention hold and monitoring.
    """

    hub_uid: str
    partition: int
    capture_id: str
    sequence: int
    files: int = 0
    events: int = 0
    size_bytes: int = 0
    last_file: str = ""
    modified_ms: int = 0

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.hub_uid, self.partition)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return (self.hub_uid,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """The first unused number of a counter: producer ids are reserved from it in blocks."""

    name: str
    next_value: int

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.name,)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """A named value of the node, for example its id."""

    name: str
    text: str

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.name,)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Tombstone of a deleted hub whose logs may still exist."""

    hub_uid: str
    namespace: str
    hub: str
    partition_count: int
    since_ms: int = 0

    @property
    def key(self) -> ItemKey:
        """Primary key."""
        return (self.hub_uid,)

    @property
    def parent(self) -> ItemKey:
        """Parent key: records with the same parent are listed together."""
        return ()


StateRecord = GroupOffset | GroupMetadata | TransactionState | CaptureState | Counter | Meta | Deletion
