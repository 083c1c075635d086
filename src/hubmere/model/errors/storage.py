"""Refusals of the storage, which a client can retry."""

from hubmere.model.errors.base import Refusal


class StorageRefusal(Refusal):
    """The log cannot serve the request now; the client can retry later."""


class StorageFull(StorageRefusal):
    """The disk is full or an append failed; nothing became visible."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The log cannot accept events now ({self.why}); try again later."


class PartitionOffline(StorageRefusal):
    """The partition is offline until it has been reopened and verified."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The partition is offline and being verified ({self.why}); try again later."


class ClusterBusy(StorageRefusal):
    """The Kafka cluster below a gateway cannot do it now; nothing was acknowledged."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The Kafka cluster cannot do this now ({self.why}). Please wait 4 seconds and try again."


class ClusterOutcomeUnknown(ClusterBusy):
    """The Kafka cluster did not answer a publication: it may have been appended."""


class HubDamaged(StorageRefusal):
    """The topic of a hub on the Kafka cluster was deleted or replaced by hand: the hub is refused."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The event hub is damaged: {self.why}."


class PartitionOpening(StorageRefusal):
    """The log of the partition is still being opened: it is created, or recovered after a crash."""

    def __init__(self, hub: str, partition: int) -> None:
        super().__init__(hub, partition)
        self.hub = hub
        self.partition = partition

    def text(self) -> str:
        return f"Partition {self.partition} of '{self.hub}' is still being opened; try again in a few seconds."


class ColdUnreadable(StorageRefusal):
    """Captured files cannot be read now."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The captured files cannot be read now ({self.why}); try again later."


class CorruptBatch(StorageRefusal):
    """A batch does not match its checksum."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The record batch is not intact: {self.why}."


class ShuttingDown(StorageRefusal):
    """The node is shutting down; a retry reaches its successor."""

    def text(self) -> str:
        return "The node is shutting down; reconnect and try again."
