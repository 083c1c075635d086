"""Refusals to error codes: one table for the whole tree of refusals (reference: kafka 1.8).

A test walks the tree and fails on a missing row. Clients decide by the code whether to retry, so temporary refusals
have a retriable code.
"""

from collections.abc import Mapping

from hubmere.broker import refusals
from hubmere.model import errors
from hubmere.model.entity import Status
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.errors import ErrorCode

_E = ErrorCode

TABLE: Mapping[type[Refusal], ErrorCode] = {
    errors.Refusal: _E.INVALID_REQUEST,
    # Authentication and rights. At sign-in the session answers with its own code; later these concern a topic.
    errors.Unauthorized: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.AdminRequired: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.MissingToken: _E.SASL_AUTHENTICATION_FAILED,
    errors.MalformedToken: _E.SASL_AUTHENTICATION_FAILED,
    errors.UnsupportedToken: _E.SASL_AUTHENTICATION_FAILED,
    errors.WrongAdminToken: _E.SASL_AUTHENTICATION_FAILED,
    errors.InvalidIssuer: _E.SASL_AUTHENTICATION_FAILED,
    errors.RoleMissing: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.TokenNotYetValid: _E.SASL_AUTHENTICATION_FAILED,
    errors.KeysUnavailable: _E.SASL_AUTHENTICATION_FAILED,
    errors.InvalidSignature: _E.SASL_AUTHENTICATION_FAILED,
    errors.CredentialRevoked: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.InvalidAudience: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.ExpiredToken: _E.SASL_AUTHENTICATION_FAILED,
    errors.ClaimMissing: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.LocalAuthDisabled: _E.SASL_AUTHENTICATION_FAILED,
    errors.AddressNotAllowed: _E.SASL_AUTHENTICATION_FAILED,
    errors.ApplicationGroupDisabled: _E.SASL_AUTHENTICATION_FAILED,
    errors.PublisherRevoked: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.NotFound: _E.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NamespaceNotFound: _E.UNKNOWN_TOPIC_OR_PARTITION,
    errors.HubNotFound: _E.UNKNOWN_TOPIC_OR_PARTITION,
    errors.GroupNotFound: _E.GROUP_ID_NOT_FOUND,
    errors.RuleNotFound: _E.RESOURCE_NOT_FOUND,
    errors.AliasNotFound: _E.RESOURCE_NOT_FOUND,
    errors.PartitionNotFound: _E.UNKNOWN_TOPIC_OR_PARTITION,
    errors.AlreadyExists: _E.TOPIC_ALREADY_EXISTS,
    errors.Conflict: _E.POLICY_VIOLATION,
    errors.FailedOver: _E.POLICY_VIOLATION,
    errors.AliasElsewhere: _E.NOT_LEADER_OR_FOLLOWER,
    errors.InvalidArgument: _E.INVALID_REQUEST,
    errors.InvalidName: _E.INVALID_TOPIC_EXCEPTION,
    errors.PartitionCountFixed: _E.INVALID_PARTITIONS,
    errors.PartitionKeyMismatch: _E.INVALID_RECORD,
    errors.PositionBeyondEnd: _E.OFFSET_OUT_OF_RANGE,
    errors.NotSupported: _E.INVALID_REQUEST,
    # A namespace whose tier has no Kafka: the service's own answer (reference: kafka 1.1).
    errors.NotInTier: _E.TOPIC_AUTHORIZATION_FAILED,
    # Clients refresh their metadata and continue.
    errors.EntityUpdated: _E.NOT_LEADER_OR_FOLLOWER,
    errors.EntityDisabled: _E.TOPIC_AUTHORIZATION_FAILED,
    errors.LimitReached: _E.POLICY_VIOLATION,
    errors.ReceiverLimit: _E.POLICY_VIOLATION,
    errors.PublicationTooLarge: _E.MESSAGE_TOO_LARGE,
    errors.ServerBusy: _E.THROTTLING_QUOTA_EXCEEDED,
    # Not retriable: the client would time out and send the same request again and again.
    errors.ThrottledTooLong: _E.POLICY_VIOLATION,
    # The service's own answer to a producer over the rates of its application group.
    errors.ApplicationGroupThrottled: _E.POLICY_VIOLATION,
    errors.ReaderRefused: _E.POLICY_VIOLATION,
    errors.EpochTooLow: _E.POLICY_VIOLATION,
    errors.EpochRequired: _E.POLICY_VIOLATION,
    errors.ReaderStolen: _E.POLICY_VIOLATION,
    errors.SequenceOutOfRange: _E.OFFSET_OUT_OF_RANGE,
    errors.LeaderEpochRefused: _E.UNKNOWN_LEADER_EPOCH,
    errors.LeaderEpochFenced: _E.FENCED_LEADER_EPOCH,
    errors.LeaderEpochUnknown: _E.UNKNOWN_LEADER_EPOCH,
    errors.ProducerRefused: _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: _E.INVALID_PRODUCER_EPOCH,
    errors.SequenceGap: _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.TransactionRefused: _E.INVALID_TXN_STATE,
    errors.TransactionAbortable: _E.TRANSACTION_ABORTABLE,
    errors.StorageRefusal: _E.KAFKA_STORAGE_ERROR,
    errors.StorageFull: _E.KAFKA_STORAGE_ERROR,
    errors.PartitionOffline: _E.KAFKA_STORAGE_ERROR,
    errors.ClusterBusy: _E.NOT_ENOUGH_REPLICAS,
    # NOT_ENOUGH_REPLICAS tells an idempotent producer that nothing was appended: it may build other batches.
    errors.ClusterOutcomeUnknown: _E.REQUEST_TIMED_OUT,
    errors.HubDamaged: _E.KAFKA_STORAGE_ERROR,
    # Clients refresh their metadata and retry, as while Kafka elects a leader.
    errors.PartitionOpening: _E.NOT_LEADER_OR_FOLLOWER,
    errors.ColdUnreadable: _E.KAFKA_STORAGE_ERROR,
    errors.CorruptBatch: _E.CORRUPT_MESSAGE,
    errors.InvalidBatch: _E.INVALID_RECORD,
    errors.UndecodableMessage: _E.INVALID_RECORD,
    # Clients refresh their metadata and retry until the node is back.
    errors.ShuttingDown: _E.NOT_LEADER_OR_FOLLOWER,
    refusals.CoordinationRefused: _E.COORDINATOR_NOT_AVAILABLE,
    refusals.GroupRefused: _E.COORDINATOR_NOT_AVAILABLE,
    refusals.InvalidGroupId: _E.INVALID_GROUP_ID,
    refusals.GroupForbidden: _E.GROUP_AUTHORIZATION_FAILED,
    refusals.CoordinatorUnavailable: _E.COORDINATOR_NOT_AVAILABLE,
    refusals.UnknownMember: _E.UNKNOWN_MEMBER_ID,
    refusals.IllegalGeneration: _E.ILLEGAL_GENERATION,
    refusals.RebalanceInProgress: _E.REBALANCE_IN_PROGRESS,
    refusals.InconsistentProtocol: _E.INCONSISTENT_GROUP_PROTOCOL,
    refusals.SessionTimeoutOutOfRange: _E.INVALID_SESSION_TIMEOUT,
    refusals.MemberIdRequired: _E.MEMBER_ID_REQUIRED,
    refusals.MemberFenced: _E.FENCED_INSTANCE_ID,
    refusals.GroupFull: _E.GROUP_MAX_SIZE_REACHED,
    refusals.GroupNotEmpty: _E.NON_EMPTY_GROUP,
    refusals.GroupUnknown: _E.GROUP_ID_NOT_FOUND,
    refusals.HubStillRead: _E.GROUP_SUBSCRIBED_TO_TOPIC,
    refusals.OffsetMetadataTooLarge: _E.OFFSET_METADATA_TOO_LARGE,
    refusals.OffsetsUnstable: _E.UNSTABLE_OFFSET_COMMIT,
    refusals.InvalidHeartbeat: _E.INVALID_REQUEST,
    refusals.FencedMemberEpoch: _E.FENCED_MEMBER_EPOCH,
    refusals.StaleMemberEpoch: _E.STALE_MEMBER_EPOCH,
    refusals.UnreleasedInstance: _E.UNRELEASED_INSTANCE_ID,
    refusals.UnsupportedAssignor: _E.UNSUPPORTED_ASSIGNOR,
    refusals.InvalidRegex: _E.INVALID_REGULAR_EXPRESSION,
    refusals.NotConsumerGroup: _E.GROUP_ID_NOT_FOUND,
    refusals.TransactionalRefusal: _E.INVALID_TXN_STATE,
    refusals.TransactionalIdUnknown: _E.TRANSACTIONAL_ID_NOT_FOUND,
    refusals.ConcurrentTransaction: _E.CONCURRENT_TRANSACTIONS,
    refusals.InvalidTransactionState: _E.INVALID_TXN_STATE,
    refusals.ProducerMismatch: _E.INVALID_PRODUCER_ID_MAPPING,
    refusals.TransactionalProducerFenced: _E.PRODUCER_FENCED,
    refusals.TransactionTimeoutTooLong: _E.INVALID_TRANSACTION_TIMEOUT,
}


def code_of(refusal: Refusal) -> ErrorCode:
    """The error code of a refusal, or of its nearest base class in the table."""
    if isinstance(refusal, errors.EntityDisabled) and refusal.status == Status.DISABLED:
        # Reference, kafka 1.8: a disabled hub does not exist for Kafka clients.
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return next(TABLE[kind] for kind in type(refusal).__mro__ if kind in TABLE)
