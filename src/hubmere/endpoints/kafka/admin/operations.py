"""Authorized operations (KIP-430): what the caller's rights allow, as the bit field of Kafka's ACL operations.

An operation is listed where its request would be served to this caller, and only there: Listen reads, Send writes,
Manage creates, changes and deletes. Operations that no request can do here, such as changing a broker, are never
listed.
"""

from enum import IntEnum
from typing import Final

from hubmere.broker import Caller
from hubmere.model.entity import Rights

_ANY: Final = Rights.LISTEN | Rights.SEND | Rights.MANAGE


class Operation(IntEnum):
    """Kafka's codes of operations (`AclOperation`)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_ON_TOPIC: Final = (
    (Rights.LISTEN, (Operation.READ,)),
    (Rights.SEND, (Operation.WRITE,)),
    (Rights.MANAGE, (Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS)),
    (_ANY, (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)),
)
_ON_CLUSTER: Final = (
    (Rights.SEND, (Operation.IDEMPOTENT_WRITE,)),
    (_ANY, (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)),
)


def topic_operations(caller: Caller, topic: str) -> int:
    """What the caller may do with a topic."""
    allowed = [one for right, ones in _ON_TOPIC if caller.may(right, topic) for one in ones]
    return _bits(*allowed, *_creation(caller))


def cluster_operations(caller: Caller) -> int:
    """What the caller may do with the namespace, which stands for the cluster."""
    allowed = [one for right, ones in _ON_CLUSTER if caller.principal.rights.allows(right) for one in ones]
    return _bits(*allowed, *_creation(caller))


def group_operations(caller: Caller) -> int:
    """What the caller may do with a group that it may see."""
    return _bits(Operation.READ, Operation.DESCRIBE, *((Operation.DELETE,) if caller.may(Rights.MANAGE) else ()))


def _creation(caller: Caller) -> tuple[Operation, ...]:
    """Topics are created by a caller that may manage the namespace."""
    return (Operation.CREATE,) if caller.may(Rights.MANAGE) else ()


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)
