"""The topics of hubs: one per hub, named by the cluster's prefix and the hub's uid.

The gateway that creates a hub creates its topic at once; the first use does it if that gateway could not. A uid is
never used twice, so a topic of that name belongs to the hub, whichever gateway created it. A hub whose topic was
deleted, or has another id than the recorded one, is refused: starting again at 0 under the same uid would mislead
readers.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hubmere.cluster.upstream.failures import RequestRefused, TopicDamaged
from hubmere.cluster.upstream.upstream import MOVED, Upstream, with_patience
from hubmere.store.engine import LogConfig, LogId
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletableTopic,
    DeleteTopicsRequest,
    GrowingTopic,
    TopicConfig,
)
from hubmere.wire.kafka.messages.configs import (
    ChangedConfig,
    ChangedResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    ResourceType,
)

_CREATE_MS: Final = 30_000
# A new topic is known to all brokers within this time.
_SPREAD_SECONDS: Final = 20.0
# Interval of the checks whether a new topic has leaders: it takes some tens of milliseconds, and a client waits.
_LEADER_PAUSE_S: Final = 0.1
# A topic that one broker does not know is asked for again before it counts as deleted.
_MISSING_ATTEMPTS: Final = 4
_MISSING_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """How topics are created: replicas, and how many must be in sync. `largest_batch_bytes` bounds one batch."""

    prefix: str
    replication: int = 3
    in_sync: int = 2
    largest_batch_bytes: int = 20 * 1024 * 1024


def split_log_id(log: LogId) -> tuple[str, int]:
    """The hub's uid and the partition."""
    uid, _, partition = log.rpartition("-")
    return uid, int(partition)


class Topics:
    """Creates, extends and deletes the topics of hubs. Thread rule: the loop's thread only.

    `partition_count_of` and `config_of` return what the catalog has for a hub, None if the hub does not exist any more.
    `recorded_id` returns the id of the topic that was created for a hub, and `record` stores it.
    """

    def __init__(
        self,
        upstream: Upstream,
        plan: TopicPlan,
        partition_count_of: Callable[[str], int | None],
        config_of: Callable[[str], LogConfig],
        *,
        recorded_id: Callable[[str], str | None] = lambda _: None,
        record: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        self._upstream = upstream
        self._plan = plan
        self._partition_count_of = partition_count_of
        self._config_of = config_of
        self._recorded_id = recorded_id
        self._record = record

    def name_of(self, hub_uid: str) -> str:
        """The topic of a hub."""
        return f"{self._plan.prefix}hub.{hub_uid}"

    def exists(self, hub_uid: str) -> bool:
        """Whether the catalog has the hub."""
        return self._partition_count_of(hub_uid) is not None

    async def provide(self, hub_uid: str) -> None:
        """Create or extend the topic of a hub if necessary, and wait until every partition has a leader."""
        name = self.name_of(hub_uid)
        wanted = self._partition_count_of(hub_uid)
        if wanted is None:
            raise RequestRefused(f"the topic {name} of a deleted hub", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if await self._is_missing(name, hub_uid):
            await self._create(name, wanted, self._config_of(hub_uid))
        elif self._is_replaced(hub_uid):
            raise TopicDamaged(f"the topic {name} was deleted by hand, and another one has its name")
        count = self._upstream.partition_count(name) or 0
        if 0 < count < wanted:
            await self._grow(name, wanted)
        await with_patience(
            lambda: self._await_leaders(name, wanted), seconds=_SPREAD_SECONDS, longest_pause_s=_LEADER_PAUSE_S
        )
        self._record_id(hub_uid)

    def _record_id(self, hub_uid: str) -> None:
        found = self._upstream.topic_id(self.name_of(hub_uid))
        if found is not None and self._recorded_id(hub_uid) is None:
            self._record(hub_uid, found)

    async def _is_missing(self, name: str, hub_uid: str) -> bool:
        """Whether a topic must be created; raises TopicDamaged if it was created before and is gone."""
        for _ in range(_MISSING_ATTEMPTS):
            codes = await self._upstream.refresh((name,))
            if codes[name] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            if self._recorded_id(hub_uid) is None:
                return True
            await asyncio.sleep(_MISSING_PAUSE_S)
        raise TopicDamaged(f"the topic {name} does not exist any more: it was deleted by hand")

    def _is_replaced(self, hub_uid: str) -> bool:
        recorded, found = self._recorded_id(hub_uid), self._upstream.topic_id(self.name_of(hub_uid))
        return recorded is not None and found is not None and recorded != found

    async def suspects(self, hub_uids: Sequence[str]) -> list[str]:
        """Existing hubs whose topic is missing or was replaced, according to one broker."""
        hubs = [uid for uid in hub_uids if self.exists(uid)]
        codes = await self._upstream.refresh([self.name_of(uid) for uid in hubs]) if hubs else {}
        for uid in hubs:
            self._record_id(uid)  # the control log may have been away when the topic was made
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [uid for uid in hubs if codes.get(self.name_of(uid)) == missing or self._is_replaced(uid)]

    async def _create(self, name: str, partitions: int, config: LogConfig) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=self._plan.replication,
            configs=tuple(
                TopicConfig(name=key, value=value) for key, value in topic_configs(config, self._plan).items()
            ),
        )
        answer = await self._upstream.ask_any(CreateTopicsRequest(topics=(topic,), timeout_ms=_CREATE_MS))
        (made,) = answer.topics
        if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RequestRefused(f"the topic {name} cannot be created", made.error_code, made.error_message)

    async def _grow(self, name: str, partitions: int) -> None:
        request = CreatePartitionsRequest(
            topics=(GrowingTopic(name=name, count=partitions),), timeout_ms=_CREATE_MS, validate_only=False
        )
        (grown,) = (await self._upstream.ask_any(request)).results
        # Another gateway may have been faster.
        if grown.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            raise RequestRefused(f"the topic {name} cannot get more partitions", grown.error_code, grown.error_message)

    async def _await_leaders(self, name: str, partitions: int) -> None:
        code = (await self._upstream.refresh((name,)))[name]
        if code and code not in MOVED:
            raise RequestRefused(f"the topic {name}", code)
        if any(self._upstream.leader(name, number) is None for number in range(partitions)):
            raise RequestRefused(f"the topic {name}", ErrorCode.LEADER_NOT_AVAILABLE)

    async def reconfigure(self, hub_uid: str, config: LogConfig) -> None:
        """Give the topic of a hub another configuration."""
        configs = topic_configs(config, self._plan)
        # The policy of a topic is fixed at its creation.
        configs.pop("cleanup.policy")
        resource = ChangedResource(
            resource_type=ResourceType.TOPIC,
            resource_name=self.name_of(hub_uid),
            configs=tuple(
                ChangedConfig(name=key, config_operation=ConfigOperation.SET, value=value)
                for key, value in configs.items()
            ),
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (changed,) = (await self._upstream.ask_any(request)).responses
        if changed.error_code:
            what = f"the topic {resource.resource_name} cannot be configured"
            raise RequestRefused(what, changed.error_code, changed.error_message)

    async def delete(self, hub_uid: str) -> None:
        """Delete the topic of a hub, if it exists."""
        topic = DeletableTopic(name=self.name_of(hub_uid))
        answer = await self._upstream.ask_any(DeleteTopicsRequest(topics=(topic,), timeout_ms=_CREATE_MS))
        (gone,) = answer.responses
        if gone.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise RequestRefused(f"the topic {gone.name} cannot be deleted", gone.error_code, gone.error_message)


def topic_configs(config: LogConfig, plan: TopicPlan) -> dict[str, str]:
    """The configuration of a hub's topic."""
    has_age = config.retention_ms is not None
    policy = ("compact,delete" if has_age else "compact") if config.compact else "delete"
    return {
        "cleanup.policy": policy,
        "retention.ms": str(config.retention_ms if config.retention_ms is not None else -1),
        "retention.bytes": str(config.retention_bytes if config.retention_bytes is not None else -1),
        "segment.bytes": str(max(config.segment_bytes, 1024 * 1024)),
        "segment.ms": str(config.segment_ms),
        "message.timestamp.type": "LogAppendTime" if config.append_time else "CreateTime",
        "max.message.bytes": str(plan.largest_batch_bytes),
        "min.insync.replicas": str(plan.in_sync),
        "unclean.leader.election.enable": "false",
        "delete.retention.ms": str(config.tombstone_retention_ms),
        "min.compaction.lag.ms": str(config.min_compaction_lag_ms),
    }
