"""Every decision: who may connect, publish, read and manage, how much, and which partition an event goes to.

Protocols and the portal import from this package only, never from its modules. They hold a `Caller`, and the objects
that a caller returns: publishers, readers and read-only views. `caller` has the order of the checks. Nothing here
waits, reads a clock, opens a socket or writes a log line; time is an argument.
"""

from hubmere.broker import blobs as blob_storage
from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.credentials import (
    AdminToken,
    BearerToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.access.resources import Resource
from hubmere.broker.access.revocation import Judge
from hubmere.broker.broker import Broker, Peek
from hubmere.broker.caller import Caller
from hubmere.broker.coalesce import Coalescer, shared_limit_bytes, split_run
from hubmere.broker.coalesce_runs import RunCoalescer
from hubmere.broker.coordinator import refusals
from hubmere.broker.coordinator.administration import (
    GroupAdministration,
    GroupOverview,
    GroupPosition,
    PlannedOffset,
    Reset,
    ResetKind,
)
from hubmere.broker.coordinator.classic_group import ClassicGroup
from hubmere.broker.coordinator.consumer_group.assignments import Assignment, TopicPartition
from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedSubscription, MalformedBytes, NamedPartition
from hubmere.broker.coordinator.consumer_group.group import ConsumerGroup
from hubmere.broker.coordinator.consumer_group.members import (
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    ConsumerMemberView,
    Heartbeat,
    HeartbeatAnswer,
)
from hubmere.broker.coordinator.coordinators import Coordinator
from hubmere.broker.coordinator.groups import GroupDescription
from hubmere.broker.coordinator.membership import (
    GroupProtocol,
    GroupState,
    GroupType,
    JoinRequest,
    JoinResponse,
    MemberView,
    SyncRequest,
    SyncResponse,
)
from hubmere.broker.coordinator.offsets import Commit
from hubmere.broker.coordinator.refusals import CoordinationRefused
from hubmere.broker.coordinator.transaction import PendingOffset, Phase, Transaction
from hubmere.broker.hubs.counters import Traffic
from hubmere.broker.hubs.live import segment_lifetime_ms
from hubmere.broker.hubs.opening import MAX_WAIT_S as MAX_OPENING_WAIT_S
from hubmere.broker.hubs.opening import LogOpening, Waiting
from hubmere.broker.hubs.runtime_information import HubInfo, PartitionInfo
from hubmere.broker.hubs.views import HubView, NamespaceView, PartitionView
from hubmere.broker.identity.keys import IssuerKeys, KeysPending, MalformedKeys, TrustedKey, read_key_set
from hubmere.broker.management.auditing import AuditLine, AuditLog
from hubmere.broker.management.capture import STARTING as CAPTURE_STARTING
from hubmere.broker.management.capture import (
    CapturedFile,
    HubCaptureStatus,
    HubReport,
    JobReport,
    JobState,
    NewFile,
    PartitionCaptureStatus,
    PartitionReport,
    PlannedHub,
    Supervision,
)
from hubmere.broker.management.connections import (
    MAX_DESCRIBED,
    MAX_LINK_VIEWS,
    Connections,
    ConnectionView,
    LinkRole,
    LinkView,
    LiveConnection,
    display_text,
)
from hubmere.broker.management.entities import Entities
from hubmere.broker.management.manager import Actor, Manager, OnDone
from hubmere.broker.management.outbox import Copy, HubCopy, Outbox, copies_of
from hubmere.broker.management.processors import ProcessorGroup, ProcessorPosition, Processors, ProcessorState
from hubmere.broker.management.replica import GroupReplica, HubReplica, PairingClaim, RuleReplica
from hubmere.broker.monitoring.conditions import CLUSTER as CLUSTER_CONDITION
from hubmere.broker.monitoring.conditions import NAMES as CONDITION_NAMES
from hubmere.broker.monitoring.conditions import Condition, ConditionSeverity
from hubmere.broker.monitoring.loop_lag import LAG_BOUNDS_S, LoopLag
from hubmere.broker.monitoring.tracing import EndSpan, Tracer
from hubmere.broker.partition_reader import PartitionRead, PartitionReader, leader_epoch_refusal
from hubmere.broker.publish import OverLimit, Publisher, RunPart
from hubmere.broker.read import Reader, Steal

__all__ = [
    # callers
    "Actor",
    "Broker",
    "Caller",
    # credentials and principals
    "AdminToken",
    "BearerToken",
    "ConnectionStringCredential",
    "Credential",
    "IssuerKeys",
    "Judge",
    "KeysPending",
    "MalformedKeys",
    "Principal",
    "Resource",
    "SharedAccessSignature",
    "SharedKey",
    "TrustedKey",
    "read_key_set",
    # publishing
    "Coalescer",
    "OverLimit",
    "Publisher",
    "RunCoalescer",
    "RunPart",
    "shared_limit_bytes",
    "split_run",
    # waiting for a log that is being opened
    "MAX_OPENING_WAIT_S",
    "LogOpening",
    "Waiting",
    # reading
    "PartitionRead",
    "PartitionReader",
    "Peek",
    "Reader",
    "leader_epoch_refusal",
    # read-only views and queries
    "Entities",
    "HubInfo",
    "HubView",
    "NamespaceView",
    "PartitionInfo",
    "PartitionView",
    "segment_lifetime_ms",
    # management
    "AuditLine",
    "AuditLog",
    "OnDone",
    "Manager",
    # connections, for monitoring
    "MAX_DESCRIBED",
    "MAX_LINK_VIEWS",
    "ConnectionView",
    "Connections",
    "LinkRole",
    "LinkView",
    "LiveConnection",
    "display_text",
    # state of the node, for monitoring
    "CLUSTER_CONDITION",
    "CONDITION_NAMES",
    "Condition",
    "ConditionSeverity",
    "EndSpan",
    "LAG_BOUNDS_S",
    "LoopLag",
    "Steal",
    "Tracer",
    "Traffic",
    # blob storage: a package with a surface of its own
    "blob_storage",
    "ProcessorGroup",
    "ProcessorPosition",
    "ProcessorState",
    "Processors",
    # Capture
    "CAPTURE_STARTING",
    "CapturedFile",
    "HubCaptureStatus",
    "HubReport",
    "JobReport",
    "JobState",
    "NewFile",
    "PartitionCaptureStatus",
    "PartitionReport",
    "PlannedHub",
    "Supervision",
    # geo-disaster recovery
    "PairingClaim",
    "Copy",
    "GroupReplica",
    "HubCopy",
    "HubReplica",
    "Outbox",
    "RuleReplica",
    "copies_of",
    # Kafka's coordinator: groups, offsets and transactions
    "Assignment",
    "ClassicGroup",
    "Commit",
    "ConsumerGroup",
    "ConsumerGroupConfig",
    "ConsumerGroupDescription",
    "ConsumerMemberView",
    "CoordinationRefused",
    "Coordinator",
    "EmbeddedSubscription",
    "GroupAdministration",
    "GroupDescription",
    "GroupOverview",
    "GroupPosition",
    "GroupProtocol",
    "GroupState",
    "GroupType",
    "Heartbeat",
    "HeartbeatAnswer",
    "JoinRequest",
    "JoinResponse",
    "MalformedBytes",
    "MemberView",
    "NamedPartition",
    "PendingOffset",
    "Phase",
    "PlannedOffset",
    "Reset",
    "ResetKind",
    "SyncRequest",
    "SyncResponse",
    "TopicPartition",
    "Transaction",
    "refusals",
]
