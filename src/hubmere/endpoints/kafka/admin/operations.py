"""Authorized operations (KIP-430): what the caller's rights allow, as the bit field of Kafka's ACL operations.

An operation is listed where its request would be served to this caller, and only there: Listen reads, Send writes,
Manage creates, changes and deletes. Nobody is listed for what no request does here, such as changing a broker.
"""

from enum import IntEnum
from typing import Final

from hubmere.broker.access import Principal, Resource
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


def topic_operations(principal: Principal, namespace: str, topic: str) -> int:
    """What may be done with a topic."""
    resource = Resource.of_hub(namespace, topic)
    allowed = [one for right, ones in _ON_TOPIC if principal.may(right, resource) for one in ones]
    return _bits(*allowed, *_creation(principal, namespace))


def cluster_operations(principal: Principal, namespace: str) -> int:
    """What may be done with the namespace, which stands for the cluster."""
    allowed = [one for right, ones in _ON_CLUSTER if principal.rights.allows(right) for one in ones]
    return _bits(*allowed, *_creation(principal, namespace))


def group_operations(principal: Principal, namespace: str) -> int:
    """What may be done with a group that the caller may see."""
    may_delete = principal.may(Rights.MANAGE, Resource.of_namespace(namespace))
    return _bits(Operation.READ, Operation.DESCRIBE, *((Operation.DELETE,) if may_delete else ()))


def _creation(principal: Principal, namespace: str) -> tuple[Operation, ...]:
    """Topics are created by whoever may manage the namespace."""
    return (Operation.CREATE,) if principal.may(Rights.MANAGE, Resource.of_namespace(namespace)) else ()


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)
