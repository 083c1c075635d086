"""The table from refusals to AMQP error conditions.

Each row has the condition, the status of a reply of the claims or management node, and whether a publisher's link is
detached (reference: AMQP 6). The Azure SDK for Python does not retry a rejected delivery, but every SDK reopens a
detached link. Temporary refusals (throttling, a partition being verified) therefore detach the link, and refusals that
the sender must act on (a message too large, a gap in its numbers) reject the delivery. `RecentlyBusy` belongs to that.
"""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from hubmere.model import errors
from hubmere.model.errors import Refusal
from hubmere.wire.amqp import Condition
from hubmere.wire.amqp.codec.performatives import Error, Rejected


class RenewToken(errors.Unauthorized):
    """The last claim that allowed a link has expired; the peer puts a new token and attaches again."""

    def __init__(self, link: str, right: str, resource: str) -> None:
        super().__init__(link, right, resource)
        self.link = link
        self.right = right
        self.resource = resource

    def text(self) -> str:
        """The text of the service (reference: AMQP 2.4)."""
        why = errors.ClaimMissing(self.right, self.resource).text()
        return f"The link '{self.link}' is force detached. Code: RenewToken. Details: {why}"


class SecondClaimsLink(errors.Refusal):
    """A connection has a second link to the claims node."""

    def __init__(self, link: str) -> None:
        super().__init__(link)
        self.link = link

    def text(self) -> str:
        """Name the link that is attached."""
        return f"A connection has one sending link to '$cbs', and '{self.link}' is attached."


class InvalidProducerState(errors.ProducerRefused):
    """A link property of an idempotent producer is negative or too large."""

    def text(self) -> str:
        """The text of the service (reference: AMQP 4.5)."""
        return (
            "Invalid range for idempotent producer state. "
            "Producer Id, Epoch, and Sequence Number must be zero or positive."
        )


class Row(NamedTuple):
    """How a refusal is reported."""

    condition: Condition
    status: int
    detaches: bool = False


_UNAUTHORIZED = Row(Condition.UNAUTHORIZED_ACCESS, 401, True)
_NOT_FOUND = Row(Condition.NOT_FOUND, 404, True)
_ARGUMENT = Row(Condition.ARGUMENT_ERROR, 400)
_STOLEN = Row(Condition.LINK_STOLEN, 410, True)
_BUSY = Row(Condition.SERVER_BUSY, 503, True)

TABLE: Mapping[type[Refusal], Row] = {
    Refusal: Row(Condition.NOT_ALLOWED, 400),
    SecondClaimsLink: Row(Condition.NOT_ALLOWED, 400),
    errors.Unauthorized: _UNAUTHORIZED,
    errors.AdminRequired: _UNAUTHORIZED,
    errors.MissingToken: _UNAUTHORIZED,
    errors.MalformedToken: _UNAUTHORIZED,
    errors.UnsupportedToken: _UNAUTHORIZED,
    errors.WrongAdminToken: _UNAUTHORIZED,
    errors.InvalidIssuer: _UNAUTHORIZED,
    errors.RoleMissing: _UNAUTHORIZED,
    errors.TokenNotYetValid: _UNAUTHORIZED,
    errors.KeysUnavailable: _BUSY,
    errors.InvalidSignature: _UNAUTHORIZED,
    errors.CredentialRevoked: _UNAUTHORIZED,
    errors.InvalidAudience: _UNAUTHORIZED,
    errors.ExpiredToken: _UNAUTHORIZED,
    errors.ClaimMissing: _UNAUTHORIZED,
    errors.LocalAuthDisabled: _UNAUTHORIZED,
    errors.AddressNotAllowed: _UNAUTHORIZED,
    errors.ApplicationGroupDisabled: _UNAUTHORIZED,
    RenewToken: Row(Condition.LINK_DETACH_FORCED, 401, True),
    errors.PublisherRevoked: Row(Condition.PUBLISHER_REVOKED, 401, True),
    errors.NotFound: _NOT_FOUND,
    errors.NamespaceNotFound: _NOT_FOUND,
    errors.HubNotFound: _NOT_FOUND,
    errors.GroupNotFound: _NOT_FOUND,
    errors.RuleNotFound: _NOT_FOUND,
    errors.AliasNotFound: _NOT_FOUND,
    errors.PartitionNotFound: Row(Condition.ARGUMENT_OUT_OF_RANGE, 400, True),
    errors.AlreadyExists: Row(Condition.ENTITY_ALREADY_EXISTS, 409),
    errors.Conflict: Row(Condition.MESSAGING_PRECONDITION_FAILED, 409),
    errors.FailedOver: Row(Condition.MESSAGING_PRECONDITION_FAILED, 409),
    # Clients retry, and reach the primary once the alias has moved.
    errors.AliasElsewhere: Row(Condition.CONNECTION_FORCED, 503, True),
    errors.InvalidArgument: _ARGUMENT,
    errors.InvalidName: _ARGUMENT,
    errors.PartitionCountFixed: _ARGUMENT,
    errors.PartitionKeyMismatch: _ARGUMENT,
    errors.PositionBeyondEnd: _ARGUMENT,
    errors.NotSupported: Row(Condition.NOT_IMPLEMENTED, 501),
    errors.NotInTier: Row(Condition.NOT_ALLOWED, 400),
    errors.EntityUpdated: Row(Condition.ENTITY_UPDATED, 409, True),
    errors.EntityDisabled: Row(Condition.ENTITY_DISABLED, 403, True),
    errors.LimitReached: Row(Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    errors.ReceiverLimit: Row(Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    errors.PublicationTooLarge: Row(Condition.LINK_MESSAGE_SIZE_EXCEEDED, 413),
    errors.ServerBusy: _BUSY,
    errors.ThrottledTooLong: _BUSY,
    errors.ApplicationGroupThrottled: _BUSY,
    errors.ReaderRefused: _STOLEN,
    errors.EpochTooLow: _STOLEN,
    errors.EpochRequired: _STOLEN,
    errors.ReaderStolen: _STOLEN,
    errors.SequenceOutOfRange: _ARGUMENT,
    errors.LeaderEpochRefused: _ARGUMENT,
    errors.LeaderEpochFenced: _ARGUMENT,
    errors.LeaderEpochUnknown: _ARGUMENT,
    InvalidProducerState: Row(Condition.ARGUMENT_OUT_OF_RANGE, 400, True),
    errors.ProducerRefused: Row(Condition.OUT_OF_ORDER_SEQUENCE, 400),
    errors.ProducerFenced: Row(Condition.PRODUCER_EPOCH_STOLEN, 410),
    errors.SequenceGap: Row(Condition.OUT_OF_ORDER_SEQUENCE, 400),
    errors.TransactionRefused: Row(Condition.NOT_ALLOWED, 400),
    errors.TransactionAbortable: Row(Condition.NOT_ALLOWED, 400),
    # Disk problems are temporary, so clients retry.
    errors.StorageRefusal: _BUSY,
    errors.StorageFull: _BUSY,
    errors.PartitionOffline: _BUSY,
    errors.ClusterBusy: _BUSY,
    errors.ClusterOutcomeUnknown: _BUSY,
    errors.HubDamaged: _BUSY,
    errors.PartitionOpening: _BUSY,
    errors.ColdUnreadable: _BUSY,
    errors.CorruptBatch: Row(Condition.INTERNAL_ERROR, 500),
    errors.InvalidBatch: Row(Condition.DECODE_ERROR, 400),
    errors.UndecodableMessage: Row(Condition.DECODE_ERROR, 400),
    errors.ShuttingDown: Row(Condition.LINK_DETACH_FORCED, 503, True),
}


def row_of(refusal: Refusal) -> Row:
    """The row of a refusal, or of its nearest base class that has one."""
    return next(TABLE[kind] for kind in type(refusal).__mro__ if kind in TABLE)


def with_tracking(text: str, namespace: str, entity: str, now_ms: int) -> str:
    """A description with the tracking part of the service, by which a client's log is found (reference: AMQP 5.6).

    `entity` is the `entity_name` of a hub or of a part of one, or empty.
    """
    tracker = f"{namespace}:eventhub:{entity}" if entity else namespace
    return f"{text} {tracking_part(tracker, now_ms)}"


def tracking_part(tracker: str, now_ms: int) -> str:
    """The tracking part of a description."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"TrackingId:{uuid.uuid4()}_G1, SystemTracker:{tracker}, Timestamp:{moment}"


def entity_name(hub: str, partition: object = None, group: str | None = None) -> str:
    """A hub, one of its partitions or a consumer group, as in tracking parts: `orders~0|$default`."""
    numbered = hub if partition is None else f"{hub}~{partition}"
    return numbered if group is None else f"{numbered}|{group}"


class RecentlyBusy:
    """Hubs that have just refused a publisher: a new attach to one of them is refused at once.

    The Azure SDK for Python backs off and retries when an attach is refused, but drops an event when its link is
    detached. Without this class it would attach again at once and lose the event at the second attempt.
    Thread rule: the loop's thread only.
    """

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[tuple[str, str], tuple[float, Refusal]] = {}

    def note(self, hub_uid: str, refusal: Refusal, now: float) -> None:
        """Record a temporary refusal; rates of an application group concern that group only."""
        if isinstance(refusal, _TEMPORARY):
            group = refusal.group if isinstance(refusal, errors.ApplicationGroupThrottled) else ""
            self._refusals[hub_uid, group] = (now + _BUSY_SECONDS, refusal)

    def check(self, hub_uid: str, now: float, group: str = "") -> None:
        """Refuse a publisher that attaches too early, with the same reason."""
        for key in {(hub_uid, ""), (hub_uid, group)}:
            until, refusal = self._refusals.get(key, (0.0, None))
            if refusal is not None and now < until:
                raise refusal
            self._refusals.pop(key, None)


# Shorter than the first back-off of any SDK, and long enough for quota buckets to refill a little.
_BUSY_SECONDS = 0.5
_TEMPORARY = (errors.ServerBusy, errors.StorageRefusal)


def rejection(condition: Condition, description: str) -> Rejected:
    """The outcome of a delivery that is not accepted."""
    return Rejected(Error(condition, description))
