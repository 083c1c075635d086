"""Composes the Blob endpoint from the settings: its storage accounts, their first keys, and the connection string."""

import base64
import hashlib
import hmac
from typing import Final

from hubmere.broker import Broker, blob_storage
from hubmere.model.addresses import Addresses
from hubmere.settings import Settings
from hubmere.store.secrets import NodeSecrets

DEVELOPMENT_ACCOUNT: Final = "devstoreaccount1"
# The key that Azurite and the SDKs have built in; it protects nothing.
_DEVELOPMENT_KEY: Final = base64.b64decode(
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def blob_keys(settings: Settings, secrets: NodeSecrets) -> dict[str, tuple[bytes, ...]]:
    """The storage accounts of a node, each with its first keys."""
    if not settings.blobs:
        return {}
    development = {DEVELOPMENT_ACCOUNT: (_DEVELOPMENT_KEY,)} if settings.blob_development_account else {}
    first = secrets.blob_key()
    second = hmac.new(first, b"key2", hashlib.sha512).digest()
    return {settings.blob_account: (first, second), **development}


def blob_connection_string(settings: Settings, addresses: Addresses, broker: Broker) -> str | None:
    """The connection string of the node's storage account."""
    keys = broker.blob_accounts.keys
    if settings.blob_account not in keys.accounts:
        return None
    key = keys.of(settings.blob_account)[blob_storage.StorageKeyName.KEY1]
    return addresses.blob_connection_string(settings.blob_account, key)
