"""Where readers and producers stand: the records that the catalog writes behind the data path.

Plain values with the catalog's columns as fields. Each names the hub by its uid, so that a hub made anew under an old
name starts without a past. Group ids of Kafka keep their case; AMQP groups are given folded.
"""

from dataclasses import dataclass

RecordKey = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """What a Kafka group committed for a partition: `sequence` is the next event to read."""

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
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.namespace, self.group_id, self.hub_uid, self.partition)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.namespace, self.group_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """What must outlive a restart of a Kafka group's coordinator, in the coordinator's own form."""

    namespace: str
    group_id: str
    state: str
    modified_ms: int = 0

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.namespace, self.group_id)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.namespace,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """Where a transactional producer stands, in the coordinator's own form."""

    namespace: str
    transactional_id: str
    state: str
    modified_ms: int = 0

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.namespace, self.transactional_id)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.namespace,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a consumer group of a processor has come on a partition."""

    hub_uid: str
    group_name: str
    partition: int
    offset: str = ""
    sequence: int = -1
    etag: str = ""
    modified_ms: int = 0
    client_id: str = ""

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.hub_uid, self.group_name, self.partition)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.hub_uid, self.group_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Which processor reads a partition; apart from the checkpoint, because each has its own etag."""

    hub_uid: str
    group_name: str
    partition: int
    owner: str
    owner_level: int = -1
    etag: str = ""
    modified_ms: int = 0

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.hub_uid, self.group_name, self.partition)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.hub_uid, self.group_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureState:
    """How far capture has come on a partition: `sequence` is the next event that no published file holds.

    `capture_id` says to which stretch of capturing it belongs (model.entity.CaptureStart). The totals are those of the
    job; `last_file` is what it told of the newest file, as JSON. What is captured is decided by the job's own
    checkpoint and the files, never by this: it is here for the retention hold and for whoever asks.
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
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.hub_uid, self.partition)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return (self.hub_uid,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """The first number that was never handed out: producer ids are taken from it in blocks."""

    name: str
    next_value: int

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.name,)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """A fact about the node: its id, its admin token."""

    name: str
    text: str

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.name,)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A hub that is gone from the catalog while its logs may still be there: the tombstone of hub deletion."""

    hub_uid: str
    namespace: str
    hub: str
    partition_count: int
    since_ms: int = 0

    @property
    def key(self) -> RecordKey:
        """By which it is found."""
        return (self.hub_uid,)

    @property
    def parent(self) -> RecordKey:
        """Under which it is listed."""
        return ()


Record = (
    GroupOffset | GroupMetadata | TransactionState | Checkpoint | Ownership | CaptureState | Counter | Meta | Deletion
)
