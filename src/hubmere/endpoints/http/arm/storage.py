"""Storage accounts as ARM resources: the account, its keys, and their renewal (`Microsoft.Storage`, as `az storage`).

The accounts belong to the node's own namespace; who may manage that may manage them. They are made by the settings.
"""

from base64 import b64encode

from starlette.responses import Response

from hubmere.broker import Caller, blob_storage
from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.request import json_response
from hubmere.endpoints.http.arm.serializer import Json
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.security.roles import Control

_PROVIDER = "Microsoft.Storage"
_SUBSCRIPTION = f"subscriptions/{{subscription}}/providers/{_PROVIDER}/storageAccounts"
_GROUP = f"subscriptions/{{subscription}}/resourceGroups/{{resourceGroup}}/providers/{_PROVIDER}/storageAccounts"
_ACCOUNT = _GROUP + "/{account}"


def storage_routes() -> Routes:
    """Handlers by path and method."""
    return {
        _SUBSCRIPTION: {"GET": list_storage_accounts},
        _GROUP: {"GET": list_storage_accounts},
        _ACCOUNT: {"GET": get_storage_account},
        f"{_ACCOUNT}/listKeys": {"POST": list_storage_keys},
        f"{_ACCOUNT}/regenerateKey": {"POST": regenerate_storage_key},
    }


async def list_storage_accounts(request: Request) -> Response:
    """The storage accounts of the node."""
    _sign_in(request, Control.READ)
    names = request.context.broker.blob_accounts.keys.accounts
    return json_response({"value": [_account(request, name) for name in names]})


async def get_storage_account(request: Request) -> Response:
    """One storage account, without its keys."""
    _sign_in(request, Control.READ)
    _keys(request)
    return json_response(_account(request, request.names["account"]))


async def list_storage_keys(request: Request) -> Response:
    """The keys of a storage account."""
    caller, account = _sign_in(request, Control.WRITE), request.names["account"]
    body = _keys_json(request)
    request.context.broker.audit.write(request.actor(caller).line("list storage keys", account))
    return json_response(body)


async def regenerate_storage_key(request: Request) -> Response:
    """Replace a key; the old one is refused from now on."""
    caller, account = _sign_in(request, Control.WRITE), request.names["account"]
    body = models.parse_body(models.RegenerateStorageKeyBody, await request.body())
    keys = request.context.broker.blob_accounts.keys
    await await_change(lambda on_done: keys.renew(account, body.kind, request.actor(caller), on_done))
    return json_response(_keys_json(request))


def _sign_in(request: Request, control: Control) -> Caller:
    return request.sign_in_manager(request.context.broker.namespace_at(None).name, control)


def _keys(request: Request) -> "dict[blob_storage.StorageKeyName, bytes]":
    return dict(request.context.broker.blob_accounts.keys.of(request.names["account"]))


def _keys_json(request: Request) -> Json:
    account, addresses = request.names["account"], request.context.addresses
    return {
        "keys": [
            {
                "keyName": name.value,
                "value": b64encode(key).decode(),
                "permissions": "FULL",
                # Not in ARM: `az storage account show-connection-string` puts it together from the parts.
                "connectionString": addresses.blob_connection_string(account, key),
            }
            for name, key in _keys(request).items()
        ]
    }


def _account(request: Request, name: str) -> Json:
    subscription, group = request.names.get("subscription", ""), request.names.get("resourceGroup", "hubmere")
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{_PROVIDER}/storageAccounts/{name}",
        "name": name,
        "type": f"{_PROVIDER}/storageAccounts",
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS", "tier": "Standard"},
        "location": "local",
        "properties": {
            "provisioningState": "Succeeded",
            "primaryEndpoints": {"blob": f"{request.context.addresses.blob_endpoint(name)}/"},
            "allowSharedKeyAccess": not request.context.broker.namespace_at(None).entity.disable_local_auth,
        },
    }
