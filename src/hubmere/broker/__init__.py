"""Every decision, behind one front door: who may connect, publish, read and manage, how much, and where it goes.

Protocols and the portal import from this package only, never from its modules. They hold a `Caller`, and what a caller
hands out: publishers, readers and read-only views. `caller` has the order of the checks. Nothing here waits, reads a
clock, opens a socket or writes a log line; time is an argument.
"""

from hubmere.broker.access import Access, Principal, Resource
from hubmere.broker.broker import Broker
from hubmere.broker.caller import Caller, Claims
from hubmere.broker.credentials import (
    AdminToken,
    ConnectionStringCredential,
    Credential,
    SharedAccessSignature,
    SharedKey,
)
from hubmere.broker.management.entities import Entities
from hubmere.broker.publish import Publisher
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
]
