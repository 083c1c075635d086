"""Access to the Blob endpoint: network rules, `disableLocalAuth`, bearer tokens, and renewed keys."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from broker.issuers import claims, token
from commands.runner import at
from endpoints.identity_issuer import HttpIssuer
from hubmere.cli.exit_codes import Exit
from hubmere.model.security.roles import DATA_RECEIVER
from hubmere.testing import Node

NAMESPACE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/hubmere"
ACCOUNT = "hubmerestorage"
RECEIVER = "receiver-id"
_ASSIGNMENT = "7a4f3c1e-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def issuer() -> Iterator[HttpIssuer]:
    with HttpIssuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: HttpIssuer) -> Iterator[Node]:
    settings: dict[str, Any] = {"identity.issuers.foreign.issuer": issuer.url, "blob_development_account": True}
    with Node(hubs=["orders"], settings=settings) as running:
        manage(
            running,
            f"{NAMESPACE}/providers/Microsoft.Authorization/roleAssignments/{_ASSIGNMENT}",
            {"properties": {"roleDefinitionId": DATA_RECEIVER.id, "principalId": RECEIVER}},
        )
        yield running


def manage(node: Node, path: str, body: dict[str, Any], method: str = "PUT") -> Any:
    request = urllib.request.Request(
        f"{node.http}{path}?api-version=2024-01-01",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {node.admin_token}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.loads(answer.read() or b"null")


def containers(connection: str, **options: Any) -> list[str]:
    with BlobServiceClient.from_connection_string(connection, retry_total=0, **options) as service:
        return [str(container.name) for container in service.list_containers()]


def refused_code(call: Callable[[], object]) -> tuple[int | None, object]:
    with pytest.raises(HttpResponseError) as refusal:
        call()
    return refusal.value.status_code, getattr(refusal.value, "error_code", None)


class Bearer:
    """A credential of the Azure SDK that has one token."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        return AccessToken(self.text, int(time.time()) + 3600)


def bearer(node: Node, issuer: HttpIssuer, **changes: Any) -> BlobServiceClient:
    now = int(time.time())
    values = {"iss": issuer.url, "oid": RECEIVER, "iat": now - 5, "nbf": now - 5, "exp": now + 3600} | changes
    return BlobServiceClient(
        f"{node.https}/{ACCOUNT}",
        Bearer(token(claims(**values))),
        connection_verify=node.ca_file,
        retry_total=0,
    )


def test_network_rules_apply_to_blobs(node: Node) -> None:
    """A client that may not connect to the namespace may not read its checkpoints; its credential is not checked."""
    rules = f"{NAMESPACE}/networkRuleSets/default"
    manage(node, rules, {"properties": {"defaultAction": "Deny", "ipRules": [{"ipMask": "203.0.113.0/24"}]}})
    try:
        shared = refused_code(lambda: containers(node.blob_connection_string))
        anonymous = httpx.get(f"{node.http}/{ACCOUNT}?comp=list", timeout=600)
    finally:
        manage(node, rules, {"properties": {"defaultAction": "Allow"}})

    assert shared == (403, "AuthorizationFailure")
    assert (anonymous.status_code, anonymous.headers["x-ms-error-code"]) == (403, "AuthorizationFailure")
    assert containers(node.blob_connection_string) is not None


def test_namespace_without_local_authentication_refuses_account_keys(node: Node, issuer: HttpIssuer) -> None:
    """With `disableLocalAuth` only tokens of an issuer are accepted, neither a key nor a signature made with it."""
    sas = signature(node.blob_connection_string)
    manage(node, NAMESPACE, {"properties": {"disableLocalAuth": True}}, "PATCH")
    try:
        shared = refused_code(lambda: containers(node.blob_connection_string))
        signed = httpx.get(f"{node.http}/{ACCOUNT}/box?restype=container&comp=list&{sas}", timeout=600)
        with bearer(node, issuer, aud="https://storage.azure.com") as service:
            found = [container.name for container in service.list_containers()]
    finally:
        manage(node, NAMESPACE, {"properties": {"disableLocalAuth": False}}, "PATCH")

    assert shared == (403, "KeyBasedAuthenticationNotPermitted")
    assert (signed.status_code, signed.headers["x-ms-error-code"]) == (403, "KeyBasedAuthenticationNotPermitted")
    assert isinstance(found, list)


def signature(connection: str) -> str:
    """A shared access signature of the container `box`."""
    key = dict(part.split("=", 1) for part in connection.rstrip(";").split(";"))["AccountKey"]
    text: str = generate_container_sas(
        ACCOUNT,
        "box",
        account_key=key,
        permission=ContainerSasPermissions(list=True, read=True),
        expiry="2100-01-01T00:00:00Z",
    )
    return text


def test_storage_token_is_valid_for_blobs_only(node: Node, issuer: HttpIssuer) -> None:
    """Storage libraries ask for tokens for Azure Storage, which are no tokens for Event Hubs."""
    now = int(time.time())
    text = token(
        claims(iss=issuer.url, oid=RECEIVER, aud="https://storage.azure.com/", iat=now, nbf=now - 5, exp=now + 60)
    )

    with bearer(node, issuer, aud="https://storage.azure.com/") as service:
        list(service.list_containers())
    hub = httpx.get(f"{node.http}/orders", headers={"Authorization": f"Bearer {text}"}, timeout=600)

    assert hub.status_code == 401


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"oid": "nobody-id"}, "AuthorizationPermissionMismatch"),
        ({"oid": "sender-id"}, "AuthorizationPermissionMismatch"),
        ({"aud": "https://graph.microsoft.com"}, "AuthenticationFailed"),
        ({"exp": 1}, "AuthenticationFailed"),
    ],
)
def test_bearer_without_the_right_is_refused(
    node: Node, issuer: HttpIssuer, changes: dict[str, Any], code: str
) -> None:
    """The identity has no role that reads events, or the token is for another service or expired."""
    with bearer(node, issuer, **changes) as service:
        assert refused_code(lambda: list(service.list_containers())) == (403, code)


def test_bearer_of_an_unreachable_issuer_gets_an_error_that_clients_retry() -> None:
    """A token that cannot be verified now is not invalid."""
    with HttpIssuer() as fresh, Node(hubs=["orders"], settings={"identity.issuers.foreign.issuer": fresh.url}) as one:
        fresh.is_failing = True
        with bearer(one, fresh) as service:
            assert refused_code(lambda: list(service.list_containers())) == (503, "ServerBusy")


def test_first_bearer_token_waits_for_the_keys_of_its_issuer() -> None:
    """A node that has just started knows no keys: the request waits for them and is not refused."""
    with HttpIssuer() as fresh, Node(hubs=["orders"], settings={"identity.issuers.foreign.issuer": fresh.url}) as one:
        manage(
            one,
            f"{NAMESPACE}/providers/Microsoft.Authorization/roleAssignments/{_ASSIGNMENT}",
            {"properties": {"roleDefinitionId": DATA_RECEIVER.id, "principalId": RECEIVER}},
        )
        with bearer(one, fresh) as service:
            assert list(service.list_containers()) == []
        assert fresh.key_requests == 1


def test_renewed_key_invalidates_its_old_connection_string(node: Node) -> None:
    """It is refused at once, also signatures made with it; the other key stays valid, also after a restart."""
    old, other = (connection_string(node, key) for key in ("key1", "secondary"))
    sas = signature(old)

    renewed = at(node, "storage", "account", "keys", "renew", "--key", "primary", "-o", "json")

    assert renewed.code == Exit.OK
    names = [key["keyName"] for key in renewed.json]
    assert names == ["key1", "key2"]
    assert refused_code(lambda: containers(old)) == (403, "AuthenticationFailed")
    assert httpx.get(f"{node.http}/{ACCOUNT}/box?restype=container&comp=list&{sas}", timeout=600).status_code == 403
    fresh = connection_string(node, "key1")
    assert fresh != old
    node.restart()
    # A restart may change the ports, and with them the connection strings.
    assert containers(with_ports_of(node, fresh)) == containers(with_ports_of(node, other))
    assert key_of(node.blob_connection_string) == key_of(fresh)
    assert refused_code(lambda: containers(with_ports_of(node, old))) == (403, "AuthenticationFailed")


def test_ready_file_has_the_renewed_keys() -> None:
    """A program that starts later reads it; the keys of the namespace and of the storage account are both in it."""
    with Node(hubs=["orders"]) as one:
        path = one.data / "ready.json"
        before = json.loads(path.read_text())
        assert at(one, "storage", "account", "keys", "renew", "--key", "key1").code == Exit.OK
        assert at(one, "namespace", "authorization-rule", "keys", "renew", "--name", "RootManageSharedAccessKey",
                  "--key", "PrimaryKey").code == Exit.OK  # fmt: skip
        changed = {"blob_connection_string", "connection_string", "emulator_connection_string"}

        deadline = time.monotonic() + 240
        after = before
        while {name for name in before if after[name] != before[name]} != changed and time.monotonic() < deadline:
            time.sleep(0.2)
            after = json.loads(path.read_text())

        assert {name for name in before if after[name] != before[name]} == changed
        assert path.stat().st_mode & 0o777 == 0o600
        assert containers(after["blob_connection_string"]) == []
        assert key_of(after["blob_connection_string"]) not in one.logs()


def connection_string(node: Node, key: str) -> str:
    result = at(node, "storage", "account", "show-connection-string", "--key", key, "-o", "json")
    return str(result.json["connectionString"])


def key_of(connection: str) -> str:
    return connection.partition("AccountKey=")[2].partition(";")[0]


def with_ports_of(node: Node, connection: str) -> str:
    return node.blob_connection_string.replace(key_of(node.blob_connection_string), key_of(connection))


def test_renewal_is_audited_without_the_key(node: Node) -> None:
    """The audit line names the key and the account, but never the key's value."""
    at(node, "storage", "account", "keys", "renew", "--key", "key2")
    keys = at(node, "storage", "account", "keys", "list", "-o", "json").json

    written = node.logs() + (node.data / "audit.log").read_text()

    assert "renew storage key" in written
    assert f"{ACCOUNT}/key2" in written
    assert not [key for key in keys if key["value"] in written]


@pytest.mark.parametrize(
    ("account", "body", "status"),
    [
        ("devstoreaccount1", {"keyName": "key1"}, 409),
        ("nobody", {"keyName": "key1"}, 404),
        (ACCOUNT, {"keyName": "key3"}, 400),
        (ACCOUNT, {}, 400),
    ],
)
def test_renewal_of_an_unknown_key_is_refused(node: Node, account: str, body: dict[str, str], status: int) -> None:
    """The development account's key is built into the SDKs: it cannot be renewed."""
    path = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{account}/regenerateKey"
    headers = {"Authorization": f"Bearer {node.admin_token}"}

    answer = httpx.post(f"{node.http}{path}", json=body, headers=headers, timeout=600)

    assert answer.status_code == status


def test_keys_are_shown_to_managers_only(node: Node) -> None:
    """Without a credential nobody sees a key."""
    path = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}/listKeys"

    assert httpx.post(f"{node.http}{path}", timeout=600).status_code == 401


def test_accounts_are_shown(node: Node) -> None:
    """The answers are those of `az storage account list` and `show`."""
    listed = at(node, "storage", "account", "list", "-o", "json").json
    shown = at(node, "storage", "account", "show", "-o", "json").json

    assert [account["name"] for account in listed] == [ACCOUNT, "devstoreaccount1"]
    assert shown["primaryEndpoints"]["blob"] == f"{node.http}/{ACCOUNT}/"
