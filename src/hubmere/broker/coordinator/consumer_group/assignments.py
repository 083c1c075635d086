"""Topics, partitions and sets of partitions: the values that consumer groups assign."""

from collections.abc import Iterable
from typing import NamedTuple
from typing import Protocol as Port


class Topic(NamedTuple):
    """An event hub as a group sees it; a hub that is deleted and created again has another id."""

    topic_id: str
    name: str
    partition_count: int


class TopicPartition(NamedTuple):
    """One partition of a topic, by topic id."""

    topic_id: str
    partition: int


Assignment = frozenset[TopicPartition]
NOTHING: Assignment = frozenset()


class TopicDirectory(Port):
    """The topics of one namespace."""

    @property
    def revision(self) -> int:
        """A number that changes whenever a topic is created, changed or deleted."""

    def find(self, name: str) -> Topic | None:
        """The topic of that exact name."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""


class NoTopics:
    """A namespace without topics."""

    revision = 0

    def find(self, name: str) -> Topic | None:
        """None."""
        return None

    def names(self) -> Iterable[str]:
        """None."""
        return ()
