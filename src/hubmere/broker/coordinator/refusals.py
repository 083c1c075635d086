"""Refusals of Kafka groups and transactions, which only coordinators raise.

They are part of the tree of `model.errors`; an endpoint without a row for one of them uses the row of its parent class.
Each class carries the data of its case and builds its text here and nowhere else.
"""

from hubmere.model.errors import FIXED_LIMIT, Refusal, setting_hint


class CoordinationRefused(Refusal):
    """A coordinator of groups or transactions cannot do this now."""


# --- groups ----------------------------------------------------------------------------------------------------------


class GroupRefused(CoordinationRefused):
    """A request that does not fit the state of a group."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def text(self) -> str:
        return f"The group '{self.group}' does not allow this now."


class InvalidGroupId(GroupRefused):
    """The group id is not valid."""

    def text(self) -> str:
        return "A group id has 1 to 256 characters and no control characters."


class GroupForbidden(GroupRefused):
    """The caller lacks the right to read, which groups require."""

    def text(self) -> str:
        return f"'Listen' claim(s) are required to take part in the group '{self.group}'."


class CoordinatorUnavailable(GroupRefused):
    """The group is being removed; a retry creates a new one."""

    def text(self) -> str:
        return f"The coordinator of group '{self.group}' is not available; try again."


class UnknownMember(GroupRefused):
    """The group does not know this member (any more)."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(group)
        self.member = member

    def text(self) -> str:
        return f"The group '{self.group}' has no member '{self.member}'."


class IllegalGeneration(GroupRefused):
    """The request has another generation than the group."""

    def __init__(self, group: str, generation: int, current: int) -> None:
        super().__init__(group)
        self.generation = generation
        self.current = current

    def text(self) -> str:
        return f"The group '{self.group}' is in generation {self.current}, not {self.generation}."


class RebalanceInProgress(GroupRefused):
    """The members must join again."""

    def text(self) -> str:
        return f"The group '{self.group}' is rebalancing; join again."


class InconsistentProtocol(GroupRefused):
    """The member shares no assignment protocol with the others."""

    def text(self) -> str:
        return f"The member shares no protocol with the other members of group '{self.group}'."


class SessionTimeoutOutOfRange(GroupRefused):
    """The session timeout is outside the range of the service."""

    def __init__(self, group: str, shortest_ms: int, longest_ms: int) -> None:
        super().__init__(group)
        self.shortest_ms = shortest_ms
        self.longest_ms = longest_ms

    def text(self) -> str:
        return f"A session timeout must be between {self.shortest_ms} and {self.longest_ms} ms."


class MemberIdRequired(GroupRefused):
    """The member must join again under the id that it gets here (KIP-394)."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(group)
        self.member = member

    def text(self) -> str:
        return f"Join the group '{self.group}' again as '{self.member}'."


class MemberFenced(GroupRefused):
    """Another member has taken over the instance id."""

    def __init__(self, group: str, instance: str) -> None:
        super().__init__(group)
        self.instance = instance

    def text(self) -> str:
        return f"The instance '{self.instance}' of group '{self.group}' was taken over by another member."


# The setting of the largest number of members of a group by the new protocol (KIP-848).
CONSUMER_MAX_SIZE = "group_consumer_max_size"


class GroupFull(GroupRefused):
    """The group has the maximum number of members."""

    def __init__(self, group: str, limit: int, setting: str | None = None) -> None:
        super().__init__(group)
        self.limit = limit
        self.setting = setting  # the setting of the node; None if the limit is fixed

    def text(self) -> str:
        hint = FIXED_LIMIT if self.setting is None else setting_hint(self.setting)
        return f"The group '{self.group}' already has {self.limit} members. {hint}"


class GroupNotEmpty(GroupRefused):
    """The group still has members."""

    def text(self) -> str:
        return f"The group '{self.group}' still has members."


class GroupUnknown(GroupRefused):
    """No such group has members or offsets."""

    def text(self) -> str:
        return f"There is no group '{self.group}'."


class HubStillRead(GroupRefused):
    """Members of the group still read the hub whose offsets should be deleted."""

    def text(self) -> str:
        return f"Members of the group '{self.group}' still read this event hub."


class OffsetMetadataTooLarge(GroupRefused):
    """The metadata of a committed offset is too long."""

    def __init__(self, group: str, limit_bytes: int) -> None:
        super().__init__(group)
        self.limit_bytes = limit_bytes

    def text(self) -> str:
        return f"The metadata of a committed offset has at most {self.limit_bytes} bytes."


class OffsetsUnstable(GroupRefused):
    """An open transaction holds newer offsets."""

    def text(self) -> str:
        return f"An open transaction holds newer offsets of group '{self.group}'."


# --- consumer groups (KIP-848) ---------------------------------------------------------------------------------------


class InvalidHeartbeat(GroupRefused):
    """A heartbeat that contradicts itself or the protocol."""

    def __init__(self, group: str, problem: str) -> None:
        super().__init__(group)
        self.problem = problem

    def text(self) -> str:
        return f"{self.problem}."


class FencedMemberEpoch(GroupRefused):
    """The member's epoch is neither the one that the coordinator knows nor the one before it."""

    def __init__(self, group: str, member: str, epoch: int, current: int) -> None:
        super().__init__(group)
        self.member = member
        self.epoch = epoch
        self.current = current

    def text(self) -> str:
        return (
            f"The member '{self.member}' of group '{self.group}' is at epoch {self.current}, not {self.epoch}; "
            "it must give up its partitions and join again."
        )


class StaleMemberEpoch(GroupRefused):
    """An offset request with another epoch than the member's current one."""

    def __init__(self, group: str, epoch: int, current: int) -> None:
        super().__init__(group)
        self.epoch = epoch
        self.current = current

    def text(self) -> str:
        return f"The member of group '{self.group}' is at epoch {self.current}, not {self.epoch}."


class UnreleasedInstance(GroupRefused):
    """Another member uses the instance id and has not left."""

    def __init__(self, group: str, instance: str, owner: str) -> None:
        super().__init__(group)
        self.instance = instance
        self.owner = owner

    def text(self) -> str:
        return f"The instance id '{self.instance}' of group '{self.group}' is used by the member '{self.owner}'."


class UnsupportedAssignor(GroupRefused):
    """An assignor that the coordinator does not have."""

    def __init__(self, group: str, assignor: str, supported: str) -> None:
        super().__init__(group)
        self.assignor = assignor
        self.supported = supported

    def text(self) -> str:
        return f"The assignor '{self.assignor}' is not supported; supported are: {self.supported}."


class InvalidRegex(GroupRefused):
    """A subscription by a regular expression that cannot be evaluated."""

    def __init__(self, group: str, pattern: str, reason: str) -> None:
        super().__init__(group)
        self.pattern = pattern
        self.reason = reason

    def text(self) -> str:
        return f"The regular expression '{self.pattern}' is not valid in RE2 syntax: {self.reason}."


class NotConsumerGroup(GroupRefused):
    """The group exists, but it does not use the consumer group protocol."""

    def text(self) -> str:
        return f"Group '{self.group}' is not a consumer group."


# --- transactions ----------------------------------------------------------------------------------------------------


class TransactionalRefusal(CoordinationRefused):
    """A request that does not fit the state of a transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def text(self) -> str:
        return f"The state of transactional id '{self.transactional_id}' does not allow this."


class TransactionalIdUnknown(TransactionalRefusal):
    """No producer has this transactional id."""

    def text(self) -> str:
        return f"There is no transactional id '{self.transactional_id}'."


class ConcurrentTransaction(TransactionalRefusal):
    """The last transaction of the producer is still being completed."""

    def text(self) -> str:
        return f"The previous transaction of '{self.transactional_id}' is still being completed; try again."


class InvalidTransactionState(TransactionalRefusal):
    """There is no transaction, or none that can be ended this way."""


class ProducerMismatch(TransactionalRefusal):
    """The producer id is not the one of the transactional id."""

    def text(self) -> str:
        return f"The producer id does not belong to transactional id '{self.transactional_id}'."


class TransactionalProducerFenced(TransactionalRefusal):
    """A newer producer of the transactional id has taken over."""

    def text(self) -> str:
        return f"A newer producer of transactional id '{self.transactional_id}' has taken over."


class TransactionTimeoutTooLong(TransactionalRefusal):
    """The transaction timeout is longer than allowed."""

    def __init__(self, transactional_id: str, longest_ms: int) -> None:
        super().__init__(transactional_id)
        self.longest_ms = longest_ms

    def text(self) -> str:
        return f"A transaction timeout must be between 1 and {self.longest_ms} ms."
