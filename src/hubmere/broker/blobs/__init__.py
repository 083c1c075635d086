"""Blob storage for checkpoints and leases: what the checkpoint stores of the Azure SDKs need, and no more.

Protocols use this package as `hubmere.broker.blob_storage`; `__all__` is its surface.
"""

from hubmere.broker.blobs import leases
from hubmere.broker.blobs.access import BlobGrant, BlobPermission, parse_permissions
from hubmere.broker.blobs.accounts import BlobAccounts
from hubmere.broker.blobs.conditions import RequestConditions
from hubmere.broker.blobs.keys import StorageKeyName, StorageKeys
from hubmere.broker.blobs.leases import LeaseRequest, LeaseState, lease_state
from hubmere.broker.blobs.listing import MAX_RESULTS, ListRequest, Page
from hubmere.broker.blobs.processors import ProcessorPartition
from hubmere.broker.blobs.records import BlobHeaders, decode_metadata
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.broker.blobs.service import BlobAccount
from hubmere.store.catalog.blob_records import BlobRecord, BlockRecord, ContainerRecord

__all__ = [
    "MAX_RESULTS",
    "BlobAccount",
    "BlobAccounts",
    "BlobErrorCode",
    "BlobGrant",
    "BlobHeaders",
    "BlobPermission",
    "BlobRecord",
    "BlobRefused",
    "BlockRecord",
    "RequestConditions",
    "ContainerRecord",
    "LeaseRequest",
    "LeaseState",
    "ListRequest",
    "Page",
    "ProcessorPartition",
    "StorageKeyName",
    "StorageKeys",
    "decode_metadata",
    "lease_state",
    "leases",
    "parse_permissions",
]
