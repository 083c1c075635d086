"""Coordination: groups, committed offsets and producer ids that are kept elsewhere.

On one node the broker's own coordinators do this. On a cluster Kafka's coordinators do, and the handlers of this
package pass requests on; the composition gives them an implementation of `Coordination`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from hubmere.wire.kafka.errors import ErrorCode


class CoordinationFailed(Exception):
    """The coordinator, or the leader of a partition, cannot be reached now; the client should try again."""


class Coordination(Protocol):
    """Where requests are passed on to. Thread rule: the loop's thread only.

    `client` names a connection: its requests keep their order. Requests and responses have the names of the cluster:
    see `topic_of` and `group_of`. All questions raise CoordinationFailed.
    """

    def topic_of(self, hub_uid: str) -> str:
        """The topic of a hub."""

    def uid_of(self, topic: str) -> str | None:
        """The uid of the hub whose topic this is."""

    def group_of(self, namespace: str, group_id: str) -> str:
        """The group's id in the cluster; groups belong to a namespace."""

    def local_group_of(self, namespace: str, group: str) -> str | None:
        """The id of a group of a namespace; None for a group of another one."""

    def transaction_of(self, namespace: str, transactional_id: str) -> str:
        """The transactional id in the cluster; they belong to a namespace."""

    def local_transaction_of(self, namespace: str, name: str) -> str | None:
        """The transactional id of a namespace; None for one of another namespace."""

    async def provide(self, topics: Sequence[str]) -> None:
        """See that topics of hubs exist."""

    def topic_id_of(self, topic: str) -> UUID | None:
        """The cluster's id of a topic that was provided."""

    async def topics_of_ids(self, ids: Iterable[UUID]) -> Mapping[UUID, str]:
        """The topics that have these ids."""

    @property
    def transaction_version(self) -> int:
        """The level of Kafka's feature `transaction.version`; 0 if the cluster does not have it."""

    def note_transaction(self, producer_id: int, transactional_id: str, produce_version: int) -> None:
        """The next batch of a producer has this transactional id; its client sent it in this version of Produce."""

    def subscriptions_of(self, client: str) -> dict[tuple[str, str], Any]:
        """What the members of a connection subscribe to, by group and member; forgotten when it is closed."""

    async def ask_transaction(self, client: str, name: str, body: object, version: int) -> Any:
        """Ask the coordinator of a transactional id."""

    async def ask_coordinator(self, client: str, group: str, body: object, version: int) -> Any:
        """Ask the coordinator of a group."""

    async def ask_leaders(self, client: str, body: Any, version: int) -> tuple[list[Any], list[tuple[Any, ErrorCode]]]:
        """Ask the leaders of all partitions that a request names.

        Returns the topics of their answers, and the topics of the request that have no answer, with the reason.
        """

    async def ask_all(self, body: object, version: int) -> list[Any]:
        """Ask every broker."""

    async def new_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch."""

    def begin_client(self, client: str, client_id: str) -> None:
        """A connection is used for the first time; `client_id` is the name that its client gives itself."""

    def end_client(self, client: str) -> None:
        """A connection is closed."""
