"""The tree of refusals: every way in which Hubmere says no.

Each class carries the data of its case and builds its text here and nowhere else; each endpoint maps the tree to its
own protocol in one table (`endpoints/*/errors.py`), and a test walks the tree to see that no row is missing. Wordings
that clients match on are those of the service (reference: AMQP conditions, HTTP status table).
"""

from collections.abc import Sequence
from datetime import UTC, datetime


class Refusal(Exception):
    """A rule was broken, or a wish cannot be met; nothing was changed."""

    def __str__(self) -> str:
        """The text that a client may see: never a secret."""
        return self.text()

    def text(self) -> str:
        """What was wrong and what is allowed."""
        return "The request was refused."


# --- who may ---------------------------------------------------------------------------------------------------------


class Unauthorized(Refusal):
    """The caller is not known, or may not do this."""


class MissingToken(Unauthorized):
    """No credential was given."""

    def text(self) -> str:
        return "MissingToken: The request has no authorization; send a SharedAccessSignature token."


class AdminRequired(Unauthorized):
    """Only the administrator's token allows this."""

    def text(self) -> str:
        return "Unauthorized access. This operation needs the administrator's token."


class MalformedToken(Unauthorized):
    """The credential cannot be read."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"MalformedToken: {self.why}"


class UnsupportedToken(Unauthorized):
    """A kind of credential for which no issuer is configured."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def text(self) -> str:
        return (
            f"UnsupportedToken: '{self.kind}' tokens need a configured issuer; use a SAS token or a connection string."
        )


class InvalidSignature(Unauthorized):
    """The signature does not fit any key of the named rule."""

    def text(self) -> str:
        return "InvalidSignature: The token has an invalid signature."


class CredentialRevoked(Unauthorized):
    """The rule was deleted or its key was regenerated after the client had signed in."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule

    def text(self) -> str:
        return (
            f"Unauthorized access. The credential of the authorization rule '{self.rule}' was revoked: "
            "the rule was deleted or its key was regenerated."
        )


class InvalidAudience(Unauthorized):
    """The token is for another resource."""

    def __init__(self, audience: str, resource: str) -> None:
        super().__init__(audience, resource)
        self.audience = audience
        self.resource = resource

    def text(self) -> str:
        return f"InvalidAudience: The token for '{self.audience}' does not cover '{self.resource}'."


class ExpiredToken(Unauthorized):
    """The token's time is over."""

    def __init__(self, expired_at_s: int) -> None:
        super().__init__(expired_at_s)
        self.expired_at_s = expired_at_s

    def text(self) -> str:
        return f"ExpiredToken: The token is expired. Expiration time: '{_instant(self.expired_at_s)}'."


class ClaimMissing(Unauthorized):
    """The caller is known but lacks the right."""

    def __init__(self, right: str, resource: str) -> None:
        super().__init__(right, resource)
        self.right = right
        self.resource = resource

    def text(self) -> str:
        return (
            f"Unauthorized access. '{self.right}' claim(s) are required to perform this operation. "
            f"Resource: '{self.resource}'."
        )


class LocalAuthDisabled(Unauthorized):
    """The namespace takes no SAS credentials."""

    def text(self) -> str:
        return "LocalAuthDisabled: SAS authentication is disabled on this namespace."


class AddressNotAllowed(Unauthorized):
    """The caller's network address is not let in; the rule is not named to it."""

    def text(self) -> str:
        return "Unauthorized access. The client's address is not allowed on this namespace."


class ApplicationGroupDisabled(Unauthorized):
    """The clients of this credential are shut out together."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def text(self) -> str:
        return f"Unauthorized access. The application group '{self.group}' is disabled."


class PublisherRevoked(Unauthorized):
    """The publisher was taken off the hub."""

    def __init__(self, hub: str, publisher: str) -> None:
        super().__init__(hub, publisher)
        self.hub = hub
        self.publisher = publisher

    def text(self) -> str:
        return f"The publisher '{self.publisher}' of event hub '{self.hub}' has been revoked."


# --- what is not there -----------------------------------------------------------------------------------------------


class NotFound(Refusal):
    """Something that was named does not exist."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def text(self) -> str:
        return f"The messaging entity '{self.resource}' could not be found."


class NamespaceNotFound(NotFound):
    """No such namespace on this node."""


class HubNotFound(NotFound):
    """No such event hub in the namespace."""


class GroupNotFound(NotFound):
    """No such consumer group on the hub."""


class RuleNotFound(NotFound):
    """No such authorization rule."""


class AliasNotFound(NotFound):
    """No such geo-recovery alias."""


class PartitionNotFound(Refusal):
    """The hub has no partition of that id."""

    def __init__(self, hub: str, partition: str, count: int) -> None:
        super().__init__(hub, partition, count)
        self.hub = hub
        self.partition = partition
        self.count = count

    def text(self) -> str:
        return (
            f"The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 "
            f"and {self.count - 1}, but '{self.partition}' was given for '{self.hub}'."
        )


# --- what clashes ----------------------------------------------------------------------------------------------------


class AlreadyExists(Refusal):
    """The name is taken."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def text(self) -> str:
        return f"The messaging entity '{self.resource}' already exists."


class Conflict(Refusal):
    """The entity's state does not allow this now."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return self.why


class EntityUpdated(Refusal):
    """The hub's settings changed; who reads it connects again and goes on under the new ones."""

    def __init__(self, hub: str) -> None:
        super().__init__(hub)
        self.hub = hub

    def text(self) -> str:
        return "Entity was updated."


class FailedOver(Conflict):
    """A pairing is over because its secondary has taken the alias."""

    def __init__(self, alias: str) -> None:
        super().__init__(f"The alias '{alias}' was failed over and is served here now.")
        self.alias = alias


class AliasElsewhere(Refusal):
    """A client used an alias that the partner on another node serves now."""

    def __init__(self, alias: str, partner: str) -> None:
        super().__init__(alias, partner)
        self.alias = alias
        self.partner = partner

    def text(self) -> str:
        return (
            f"This node is the secondary of the alias '{self.alias}'; it is served by the namespace '{self.partner}'. "
            "Point the alias at that node, or fail over to this one."
        )


# --- what is not allowed ---------------------------------------------------------------------------------------------


class InvalidArgument(Refusal):
    """A value that cannot be taken: says which, what it was and what is allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(name, value, allowed)
        self.name = name
        self.value = value
        self.allowed = allowed

    def text(self) -> str:
        return f"'{_shorten(self.value)}' is not a valid {self.name}: {self.allowed}."


class InvalidName(InvalidArgument):
    """A name outside the naming rules."""


class PartitionCountFixed(InvalidArgument):
    """The tier does not let the partition count change (service sub-code 40000)."""


class PartitionKeyMismatch(Refusal):
    """A publisher's events carry the publisher's name as key and no other."""

    def __init__(self, publisher: str, key: str) -> None:
        super().__init__(publisher, key)
        self.publisher = publisher
        self.key = key

    def text(self) -> str:
        return f"The partition key '{_shorten(self.key)}' must equal the publisher's name '{self.publisher}'."


class PositionBeyondEnd(Refusal):
    """A reader asked to start after the last event."""

    def __init__(self, kind: str, supplied: str, last: str) -> None:
        super().__init__(kind, supplied, last)
        self.kind = kind
        self.supplied = supplied
        self.last = last

    def text(self) -> str:
        return (
            f"The supplied {self.kind} '{self.supplied}' is invalid. "
            f"The last {self.kind} in the system is '{self.last}'"
        )


class NotSupported(Refusal):
    """An operation that does not exist here."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def text(self) -> str:
        return f"{self.what} is not supported."


class NotInTier(Refusal):
    """The tier lacks the feature."""

    def __init__(self, feature: str, tier: str) -> None:
        super().__init__(feature, tier)
        self.feature = feature
        self.tier = tier

    def text(self) -> str:
        return f"{self.feature} is not available in the {self.tier} tier."


class EntityDisabled(Refusal):
    """The hub's status does not allow the operation."""

    def __init__(self, hub: str, status: str) -> None:
        super().__init__(hub, status)
        self.hub = hub
        self.status = status

    def text(self) -> str:
        return f"The messaging entity '{self.hub}' is currently disabled for this operation (status {self.status})."


# --- what is too much ------------------------------------------------------------------------------------------------


class LimitReached(Refusal):
    """A count of the tier is used up (service sub-code 40300)."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit

    def text(self) -> str:
        return f"The maximum number of {self.what} ({self.limit}) has been reached."


class ReceiverLimit(Refusal):
    """A sixth reader without epoch on a partition and group."""

    def __init__(self, limit: int, names: Sequence[str]) -> None:
        super().__init__(limit, names)
        self.limit = limit
        self.names = tuple(names)

    def text(self) -> str:
        return (
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is "
            f"{self.limit}. List of connected receivers - {', '.join(self.names)}."
        )


class PublicationTooLarge(Refusal):
    """More bytes in one publication than the tier takes."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def text(self) -> str:
        return (
            f"The received message (size:{self.size_bytes} bytes) exceeds the limit ({self.limit_bytes} bytes) "
            "currently allowed."
        )


class ServerBusy(Refusal):
    """Over the throughput that was bought; try again after a while."""

    def __init__(self, retry_after_s: float, *, code: int = 50002) -> None:
        super().__init__(retry_after_s, code)
        self.retry_after_s = retry_after_s
        self.code = code

    def text(self) -> str:
        return (
            f"The request was terminated because the entity is being throttled. Error code : {self.code}. "
            "Please wait 4 seconds and try again."
        )


class ThrottledTooLong(ServerBusy):
    """A client has to pause longer for the throughput it has used than it is willing to wait."""

    def __init__(self, delay_s: float, max_delay_s: float) -> None:
        super().__init__(delay_s)
        self.max_delay_s = max_delay_s

    def text(self) -> str:
        return (
            f"The namespace is over its throughput units: publishing is delayed by {self.retry_after_s:.1f} s, "
            f"which is longer than the request may take ({self.max_delay_s:.1f} s)."
        )


class ApplicationGroupThrottled(ServerBusy):
    """Over the rate of the sender's application group; others of the namespace go on."""

    def __init__(self, group: str, policy: str) -> None:
        super().__init__(4.0, code=50004)
        self.group = group
        self.policy = policy

    def text(self) -> str:
        return (
            f"The request was terminated because the application group '{self.group}' is throttled by its policy "
            f"'{self.policy}'. Error code : {self.code}. SubCode:50013. Please wait 4 seconds and try again."
        )


# --- who reads -------------------------------------------------------------------------------------------------------


class ReaderRefused(Refusal):
    """The epoch rules of a partition and group (AMQP: link stolen)."""


class EpochTooLow(ReaderRefused):
    """A reader of a higher epoch is there."""

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
    """A reader without epoch while one with epoch is there."""

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
    """Told to a reader that gives way to a new one."""

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
    """A read outside what the log holds."""

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
        return f"Leader epoch {self.epoch} is over: the partition is at {self.current}."


class LeaderEpochUnknown(LeaderEpochRefused):
    """The reader's epoch is newer than the partition's."""

    def text(self) -> str:
        return f"Leader epoch {self.epoch} is not known: the partition is at {self.current}."


# --- producers with a memory -----------------------------------------------------------------------------------------


class ProducerRefused(Refusal):
    """An idempotent or transactional producer broke its order."""


class ProducerFenced(ProducerRefused):
    """A newer instance of the producer has taken over."""

    def __init__(self, producer_id: int, epoch: int, current_epoch: int) -> None:
        super().__init__(producer_id, epoch, current_epoch)
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch

    def text(self) -> str:
        return f"Producer {self.producer_id} with epoch {self.epoch} was superseded by epoch {self.current_epoch}."


class SequenceGap(ProducerRefused):
    """A producer's sequence number is not the next one."""

    def __init__(self, producer_id: int, got: int, last: int) -> None:
        super().__init__(producer_id, got, last)
        self.producer_id = producer_id
        self.got = got
        self.last = last

    def text(self) -> str:
        return (
            f"Producer {self.producer_id} sent sequence number {self.got} after {self.last}; {self.last + 1} is next."
        )


class TransactionRefused(ProducerRefused):
    """A transactional request that does not fit the transaction's state."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return self.why


# --- the disk --------------------------------------------------------------------------------------------------------


class StorageRefusal(Refusal):
    """The log cannot take or give this now; trying again later is right."""


class StorageFull(StorageRefusal):
    """No room or an I/O error on append; nothing of it became visible."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The log cannot take events now ({self.why}); try again later."


class PartitionOffline(StorageRefusal):
    """The partition is out until it was re-opened and verified."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The partition is offline and being verified ({self.why}); try again later."


class CorruptBatch(StorageRefusal):
    """A stored or offered batch that is not what its checksum says."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The record batch is not intact: {self.why}."


class InvalidBatch(Refusal):
    """An offered record batch that breaks a rule of the format; `record_index` is set when one record breaks it."""

    def __init__(self, why: str, record_index: int | None = None) -> None:
        super().__init__(why, record_index)
        self.why = why
        self.record_index = record_index

    def text(self) -> str:
        return f"The record batch is not valid: {self.why}."


class UndecodableMessage(Refusal):
    """A published message, or one inside a batch, whose encoding breaks the rules of AMQP or of the batch format."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The message cannot be decoded: {self.why}."


class ShuttingDown(StorageRefusal):
    """The node is going away; another try reaches its successor."""

    def text(self) -> str:
        return "The node is shutting down; reconnect and try again."


def _instant(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


# Longest piece of a caller's own text that an error repeats: enough to recognise, too little to flood a log.
_SHOWN_CHARACTERS = 80


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
