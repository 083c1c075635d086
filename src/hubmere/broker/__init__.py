"""Every decision, behind one front door: who may connect, publish, read and manage, how much, and where it goes.

Protocols and the portal import from this package only, never from its modules. They hold a `Caller`, and what a caller
hands out: publishers, readers and read-only views. `caller` has the order of the checks. Nothing here waits, reads a
clock, opens a socket or writes a log line; time is an argument.
"""

from hubmere.broker.access import Access, Principal, Resource
from hubmere.broker.broker import Broker, HubInfo, PartitionInfo, Peek
from hubmere.broker.caller import Caller, Claims
from hubmere.broker.coalesce import Coalescer
from hubmere.broker.conditions import NAMES as CONDITION_NAMES
from hubmere.broker.conditions import Condition, ConditionSeverity
from hubmere.broker.coordinator.groups import GroupDescription
from hubmere.broker.coordinator.refusals import CoordinationRefused
from hubmere.broker.counters import Counters, Traffic
from hubmere.broker.credentials import (
    AdminToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.management.auditing import AuditLine
from hubmere.broker.management.capture import STARTING as CAPTURE_STARTING
from hubmere.broker.management.capture import (
    CapturedFile,
    HubReport,
    HubStanding,
    JobReport,
    JobState,
    NewFile,
    PartitionReport,
    PartitionStanding,
    PlannedHub,
    Supervision,
)
from hubmere.broker.management.connections import (
    MAX_DESCRIBED,
    Connections,
    ConnectionView,
    LinkView,
    Role,
    display_text,
)
from hubmere.broker.management.entities import Entities
from hubmere.broker.management.manager import Actor, Done, Manager
from hubmere.broker.management.outbox import Copy, HubCopy, Outbox, copies_of
from hubmere.broker.management.replica import Claim, GroupWish, HubWish, RuleWish
from hubmere.broker.publish import Publisher
from hubmere.broker.quotas.throughput import Rates
from hubmere.broker.read import Reader, Steal
from hubmere.broker.revocation import Judge
from hubmere.broker.tracing import EndSpan
from hubmere.broker.views import HubView, NamespaceView, PartitionView

__all__ = [
    # the front door
    "Broker",
    "Caller",
    "Claims",
    # credentials and what they prove
    "Access",
    "AdminToken",
    "ConnectionStringCredential",
    "Credential",
    "Principal",
    "Resource",
    "SharedAccessSignature",
    "SharedKey",
    # what a caller hands out, and queries over entities
    "Entities",
    "HubInfo",
    "HubView",
    "NamespaceView",
    "PartitionInfo",
    "PartitionView",
    "Peek",
    "Coalescer",
    "Publisher",
    "Reader",
    # changes of entities, and who makes them
    "Actor",
    "AuditLine",
    "Done",
    "Manager",
    # capture
    "CAPTURE_STARTING",
    "CapturedFile",
    "HubReport",
    "HubStanding",
    "JobReport",
    "JobState",
    "NewFile",
    "PartitionReport",
    "PartitionStanding",
    "PlannedHub",
    "Supervision",
    # pairings with other nodes
    "Claim",
    "Copy",
    "GroupWish",
    "HubCopy",
    "HubWish",
    "Outbox",
    "RuleWish",
    "copies_of",
    # monitoring
    "CONDITION_NAMES",
    "MAX_DESCRIBED",
    "Condition",
    "ConditionSeverity",
    "ConnectionView",
    "Connections",
    "Counters",
    "EndSpan",
    "GroupDescription",
    "Judge",
    "LinkView",
    "Rates",
    "Role",
    "Steal",
    "Traffic",
    "display_text",
    # refusals
    "CoordinationRefused",
]
