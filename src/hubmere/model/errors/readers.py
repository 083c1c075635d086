"""Refusals of readers: epochs, number of receivers, positions."""

from collections.abc import Sequence

from hubmere.model.errors.base import Refusal, lifting_hint


class ReceiverLimit(Refusal):
    """Too many readers without epoch on a partition and group."""

    def __init__(self, limit: int, names: Sequence[str]) -> None:
        super().__init__(limit, names)
        self.limit = limit
        self.names = tuple(names)

    def text(self) -> str:
        return (
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is "
            f"{self.limit}. List of connected receivers - {', '.join(self.names)}. "
            f"{lifting_hint('readers_per_partition')}"
        )


class ReaderRefused(Refusal):
    """The epoch rules of a partition and group (AMQP: link stolen)."""


class EpochTooLow(ReaderRefused):
    """A reader with a higher epoch is connected."""

    def __init__(self, *, current: int, requested: int, current_name: str, name: str) -> None:
        super().__init__(current, requested)
        self.current = current
        self.requested = requested
        self.current_name = current_name
        self.name = name

    def text(self) -> str:
        return (
            f"Receiver '{self.current_name}' with a higher epoch '{self.current}' already exists. Receiver "
            f"'{self.name}' with epoch {self.requested} cannot be created. Make sure you are creating receiver with "
            "increasing epoch value to ensure connectivity, or ensure all old epoch receivers are closed or "
            "disconnected."
        )


class EpochRequired(ReaderRefused):
    """A reader without epoch cannot connect while one with epoch is connected."""

    def __init__(self, current: int) -> None:
        super().__init__(current)
        self.current = current

    def text(self) -> str:
        return (
            f"At least one receiver for the endpoint is created with epoch of '{self.current}', and so non-epoch "
            "receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are "
            "closed or disconnected."
        )


class ReaderStolen(ReaderRefused):
    """A new reader with a higher epoch has replaced this one."""

    def __init__(self, *, new_epoch: int, new_name: str, epoch: int | None, name: str) -> None:
        super().__init__(new_epoch, epoch)
        self.new_epoch = new_epoch
        self.new_name = new_name
        self.epoch = epoch
        self.name = name

    def text(self) -> str:
        epoch = "" if self.epoch is None else self.epoch
        return (
            f"New receiver '{self.new_name}' with higher epoch of '{self.new_epoch}' is created hence current receiver "
            f"'{self.name}' with epoch '{epoch}' is getting disconnected. If you are recreating the receiver, make "
            "sure a higher epoch is used."
        )


class SequenceOutOfRange(Refusal):
    """A read position is outside the log."""

    def __init__(self, sequence_number: int, first: int, end: int) -> None:
        super().__init__(sequence_number, first, end)
        self.sequence_number = sequence_number
        self.first = first
        self.end = end

    def text(self) -> str:
        return (
            f"Sequence number {self.sequence_number} is out of range: "
            f"the partition holds {self.first} to {self.end - 1}."
        )


class LeaderEpochRefused(Refusal):
    """A reader names a leader epoch that is not the partition's (KIP-320)."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current


class LeaderEpochFenced(LeaderEpochRefused):
    """The reader's epoch is older than the partition's."""

    def text(self) -> str:
        return f"Leader epoch {self.epoch} is outdated: the partition is at {self.current}."


class LeaderEpochUnknown(LeaderEpochRefused):
    """The reader's epoch is newer than the partition's."""

    def text(self) -> str:
        return f"Leader epoch {self.epoch} is not known: the partition is at {self.current}."
