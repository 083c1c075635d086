"""Error conditions of AMQP and of Event Hubs, and the two protocol errors.

`LocalProtocolError` is a bug on our side and is raised before any state changes. `RemoteProtocolError` is a violation
by the peer and carries the condition of our answer. AMQP 1.0, part 2.8.15 to 2.8.18; the `com.microsoft` conditions are
those of the Event Hubs service.
"""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """Every error condition that we send or understand."""

    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    RESOURCE_LOCKED = "amqp:resource-locked"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_DELETED = "amqp:resource-deleted"
    ILLEGAL_STATE = "amqp:illegal-state"
    FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"

    CONNECTION_FORCED = "amqp:connection:forced"
    CONNECTION_FRAMING_ERROR = "amqp:connection:framing-error"
    CONNECTION_REDIRECT = "amqp:connection:redirect"

    SESSION_WINDOW_VIOLATION = "amqp:session:window-violation"
    SESSION_ERRANT_LINK = "amqp:session:errant-link"
    SESSION_HANDLE_IN_USE = "amqp:session:handle-in-use"
    SESSION_UNATTACHED_HANDLE = "amqp:session:unattached-handle"

    LINK_DETACH_FORCED = "amqp:link:detach-forced"
    LINK_TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
    LINK_MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    LINK_REDIRECT = "amqp:link:redirect"
    LINK_STOLEN = "amqp:link:stolen"

    SERVER_BUSY = "com.microsoft:server-busy"
    TIMEOUT = "com.microsoft:timeout"
    ARGUMENT_ERROR = "com.microsoft:argument-error"
    ARGUMENT_OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
    ENTITY_DISABLED = "com.microsoft:entity-disabled"
    ENTITY_UPDATED = "com.microsoft:entity-updated"
    ENTITY_ALREADY_EXISTS = "com.microsoft:entity-already-exists"
    PUBLISHER_REVOKED = "com.microsoft:publisher-revoked"
    OPERATION_CANCELLED = "com.microsoft:operation-cancelled"
    CONTAINER_CLOSE = "com.microsoft:container-close"
    AUTH_FAILED = "com.microsoft:auth-failed"
    PARTITION_NOT_OWNED = "com.microsoft:partition-not-owned"
    STORE_LOCK_LOST = "com.microsoft:store-lock-lost"
    MESSAGING_PRECONDITION_FAILED = "com.microsoft:precondition-failed"
    OUT_OF_ORDER_SEQUENCE = "com.microsoft:out-of-order-sequence"
    PRODUCER_EPOCH_STOLEN = "com.microsoft:producer-epoch-stolen"
    GEOREPLICATION_INVALID_OFFSET = "com.microsoft:georeplication:invalid-offset"


# AMQP 1.0, 2.8.17: these end the session; every other violation closes the connection.
SESSION_CONDITIONS = frozenset(
    {
        Condition.SESSION_WINDOW_VIOLATION,
        Condition.SESSION_ERRANT_LINK,
        Condition.SESSION_HANDLE_IN_USE,
        Condition.SESSION_UNATTACHED_HANDLE,
    }
)


class LocalProtocolError(Exception):
    """The caller used the engine in a way that the protocol or the present state forbids. Nothing was changed."""


class FrameTooLarge(LocalProtocolError):
    """A frame that cannot be split is larger than the peer accepts."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} bytes exceeds the negotiated {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class RemoteProtocolError(Exception):
    """The peer violated the protocol; `condition` and `description` go into the frame that answers it."""

    def __init__(self, condition: Condition, description: str) -> None:
        super().__init__(f"{condition.value}: {description}")
        self.condition = condition
        self.description = description

    @property
    def is_session_scoped(self) -> bool:
        """Whether the answer is the end of a session instead of the close of the connection."""
        return self.condition in SESSION_CONDITIONS
