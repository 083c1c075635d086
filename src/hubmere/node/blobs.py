"""Composes the Blob endpoint from the settings: its storage accounts with their keys, and the connection string."""

import base64
from typing import Final

from hubmere.model.addresses import Addresses
from hubmere.settings import Settings
from hubmere.store.secrets import NodeSecrets

DEVELOPMENT_ACCOUNT: Final = "devstoreaccount1"
# The key that Azurite and the SDKs have built in; it protects nothing.
_DEVELOPMENT_KEY: Final = base64.b64decode(
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def blob_keys(settings: Settings, secrets: NodeSecrets) -> dict[str, bytes]:
    """The storage accounts of a node, each with its key."""
    # A blob's body is a file of one node: gateways have none.
    if not settings.blobs or settings.is_gateway:
        return {}
    development = {DEVELOPMENT_ACCOUNT: _DEVELOPMENT_KEY} if settings.blob_development_account else {}
    return {settings.blob_account: secrets.blob_key(), **development}


def blob_connection_string(settings: Settings, addresses: Addresses, secrets: NodeSecrets) -> str | None:
    """The connection string of the storage account: plain HTTP where it is served, because of the private CA."""
    scheme = "https" if addresses.http is None else "http"
    address = addresses.address_of(scheme)
    if not settings.blobs or settings.is_gateway or address is None:
        return None
    account, key = settings.blob_account, base64.b64encode(secrets.blob_key()).decode()
    endpoint = f"{scheme}://{address}/{account}"
    return f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};BlobEndpoint={endpoint};"
