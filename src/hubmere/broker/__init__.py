"""Every decision, behind one front door: who may connect, publish, read and manage, how much, and where it goes.

Protocols and the portal import from this package only, never from its modules. They hold a `Caller`, and what a caller
hands out: publishers, readers and read-only views. `caller` has the order of the checks. Nothing here waits, reads a
clock, opens a socket or writes a log line; time is an argument.
"""

from hubmere.broker.access import Access, Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.caller import Caller, Claims
from hubmere.broker.conditions import Condition, ConditionSeverity
from hubmere.broker.coordinator.groups import GroupDescription
from hubmere.broker.counters import Counters, Traffic
from hubmere.broker.credentials import (
    AdminToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.management.auditing import AuditLine
from hubmere.broker.management.capture import HubStanding, JobState, PartitionStanding
from hubmere.broker.management.connections import MAX_DESCRIBED, ConnectionView, LinkView, Role
from hubmere.broker.management.entities import Entities
from hubmere.broker.management.manager import Actor, Done, Manager
from hubmere.broker.publish import Publisher
from hubmere.broker.quotas.throughput import Rates
from hubmere.broker.read import Reader, Steal
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
    "HubView",
    "NamespaceView",
    "PartitionView",
    "Publisher",
    "Reader",
    # management
    "Actor",
    "AuditLine",
    "Done",
    "Manager",
    # snapshots for monitoring
    "MAX_DESCRIBED",
    "Condition",
    "ConditionSeverity",
    "ConnectionView",
    "Counters",
    "GroupDescription",
    "HubStanding",
    "JobState",
    "LinkView",
    "PartitionStanding",
    "Rates",
    "Role",
    "Steal",
    "Traffic",
]
