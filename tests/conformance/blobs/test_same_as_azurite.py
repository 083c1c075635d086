"""The same requests to the node and to Azurite, Microsoft's emulator: status, error code, headers and body by call.

The requests are those of the Azure SDK, recorded below its retries. What differs on purpose is listed in `_DIFFERENT`.
"""

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.storage.blob import (
    AccountSasPermissions,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    ResourceTypes,
    generate_account_sas,
    generate_blob_sas,
)

from conformance.conformance_node import ConformanceNode

pytestmark = pytest.mark.foreign

# Headers that clients use; others are dates, ids and the name of the server.
_COMPARED = (
    "x-ms-error-code",
    "content-type",
    "content-range",
    "content-md5",
    "x-ms-blob-type",
    "x-ms-lease-state",
    "x-ms-lease-status",
    "x-ms-lease-duration",
    "x-ms-lease-id",
    "x-ms-lease-time",
)
_IDS = tuple(str(uuid.UUID(int=number)) for number in (1, 2, 3))
# Elements of a list that depend on the time or the server.
_VOLATILE = re.compile("Creation-Time|Last-Modified|Etag|ServerEncrypted|AccessTier.*|TagCount|Has.*|.*Change.*")
# (call, field): Azurite answers a lease id on a blob without a lease as a lease that was lost; the service's table of
# outcomes has LeaseNotPresentWithBlobOperation for one and LeaseLost for the other.
_DIFFERENT: dict[tuple[str, str], str] = {
    (
        "write with a lost lease",
        "x-ms-error-code",
    ): "the service says LeaseLost, Azurite LeaseNotPresentWithBlobOperation",
    ("delete container again", "status"): "the service accepts it for about 30 s, Azurite says 404",
    ("delete container again", "x-ms-error-code"): "the service accepts it for about 30 s, Azurite says 404",
    ("delete container again", "content-type"): "only Azurite answers with an error document",
}


class Recorder(SansIOHTTPPolicy):  # type: ignore[misc]  # the SDK ships no types
    """Records the answers of a server."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []

    def on_response(self, request: Any, response: Any) -> None:
        http = response.http_response
        headers = {name.lower(): value for name, value in http.headers.items()}
        answer = {"status": http.status_code, **{name: headers.get(name) for name in _COMPARED}}
        answer["metadata"] = {name: value for name, value in headers.items() if name.startswith("x-ms-meta-")}
        if http.status_code >= 300:
            # Lengths, types and texts of error documents differ; clients read the code.
            answer["content-type"] = None
        self.answers.append(answer)


class Storage:
    """A server and its answers to each named call."""

    def __init__(self, connection_string: str) -> None:
        self.recorder = Recorder()
        self.connection_string = connection_string
        self.service = BlobServiceClient.from_connection_string(
            connection_string, _additional_pipeline_policies=[self.recorder], retry_total=0
        )
        self.account = str(self.service.account_name)
        self.key = str(self.service.credential.account_key)
        self.container = self.service.get_container_client(f"box-{uuid.uuid4().hex}")
        self.answers: dict[str, list[dict[str, Any]]] = {}
        self.results: dict[str, Any] = {}

    def call(self, name: str, action: Callable[[], Any]) -> None:
        """Run one call; its answers and its result are stored under a name."""
        before = len(self.recorder.answers)
        try:
            self.results[name] = _plain(action())
        except HttpResponseError as error:
            self.results[name] = {"error": str(error.error_code)}
        self.answers[name] = self.recorder.answers[before:]


def _plain(result: Any) -> Any:
    """The comparable part of a result."""
    if isinstance(result, bytes | str | int | list):
        return result
    return None


def _run(storage: Storage) -> None:
    """Every operation that checkpoint stores and processors use, with its refusals."""
    box = storage.container
    blob, other = box.get_blob_client("ns/hub/$default/ownership/0"), box.get_blob_client("body")
    call = storage.call
    call("read from a missing container", lambda: list(box.list_blobs()))
    _run_without_container(storage, call)
    call("create container", lambda: box.create_container(metadata={"team": "a"}))
    call("create container again", box.create_container)
    call("container properties", box.get_container_properties)
    call("container with a bad name", lambda: storage.service.create_container("Bad_Name"))
    call("metadata of a missing blob", lambda: blob.set_blob_metadata({"ownerid": "a"}))
    call("read a missing blob", lambda: blob.download_blob().readall())
    call("head of a missing blob", blob.exists)
    call("create if none", lambda: blob.upload_blob(b"", metadata={"ownerid": "a"}, if_none_match="*"))
    call("create if none again", lambda: blob.upload_blob(b"", overwrite=True, if_none_match="*"))
    call("overwrite without permission to", lambda: blob.upload_blob(b""))
    call("set metadata", lambda: blob.set_blob_metadata({"ownerid": "b", "OffSet": "12"}))
    call("set metadata with a wrong etag", lambda: blob.set_blob_metadata({}, etag="0x1", match_condition=_match()))
    call("delete with a wrong etag", lambda: blob.delete_blob(etag="0x1", match_condition=_match()))
    call(
        "overwrite with a wrong etag",
        lambda: blob.upload_blob(b"", overwrite=True, etag="0x1", match_condition=_match()),
    )
    call("read with a wrong etag", lambda: blob.download_blob(etag="0x1", match_condition=_match()).readall())
    call("read what has not changed", lambda: _read_unchanged(blob))
    call("lease with a wrong etag", lambda: blob.acquire_lease(15, etag="0x1", match_condition=_match()))
    call("bad metadata", lambda: blob.set_blob_metadata({"not-valid": "x"}))
    call("properties", blob.get_blob_properties)
    call("list", lambda: _listed(box, "ns/", ["metadata"]))
    call("list a missing prefix", lambda: _listed(box, "none/", []))
    call("list page", lambda: [len(list(page)) for page in box.list_blobs(results_per_page=1).by_page()])
    call("upload", lambda: other.upload_blob(b"0123456789" * 5000, content_type="text/plain"))
    call("download", lambda: other.download_blob().readall())
    call("download range", lambda: other.download_blob(offset=5, length=10).readall())
    call("download behind the end", lambda: other.download_blob(offset=60_000, length=10).readall())
    call("download empty", lambda: blob.download_blob().readall())
    call("hierarchy", lambda: sorted(item.name for item in box.walk_blobs()))
    _run_leases(storage, call)
    _run_blocks(storage, call)
    call("delete blob", other.delete_blob)
    call("delete blob again", other.delete_blob)
    call("delete container", box.delete_container)
    call("delete container again", box.delete_container)


def _run_without_container(storage: Storage, call: Callable[[str, Callable[[], Any]], None]) -> None:
    """Every call of a checkpoint store before anybody has created the container."""
    box = storage.container
    blob = box.get_blob_client("ns/hub/$default/checkpoint/0")
    call("upload without a container", lambda: blob.upload_blob(b"", if_none_match="*"))
    call("set metadata without a container", lambda: blob.set_blob_metadata({"offset": "1"}))
    call("properties without a container", blob.get_blob_properties)
    call("container properties without a container", box.get_container_properties)
    call("lease without a container", lambda: blob.acquire_lease(15))
    call("delete blob without a container", blob.delete_blob)
    call("delete container without a container", box.delete_container)


def _read_unchanged(blob: Any) -> Any:
    """A read on the condition that the blob has changed since its current version."""
    from azure.core import MatchConditions

    etag = blob.get_blob_properties().etag
    return blob.get_blob_properties(etag=etag, match_condition=MatchConditions.IfModified)


def _run_leases(storage: Storage, call: Callable[[str, Callable[[], Any]], None]) -> None:
    blob = storage.container.get_blob_client("leased")
    first, second, third = _IDS
    blob.upload_blob(b"x")
    call("acquire", lambda: blob.acquire_lease(15, lease_id=first).id)
    call("acquire again", lambda: blob.acquire_lease(30, lease_id=first).id)
    call("acquire another", lambda: blob.acquire_lease(15, lease_id=second))
    call("short lease", lambda: storage.container.get_blob_client("body").acquire_lease(5))
    call("leased properties", blob.get_blob_properties)
    call("write without the lease", lambda: blob.upload_blob(b"y", overwrite=True))
    call("write with another lease", lambda: blob.upload_blob(b"y", overwrite=True, lease=second))
    call("write with the lease", lambda: blob.upload_blob(b"y", overwrite=True, lease=first))
    call("delete without the lease", blob.delete_blob)
    call("renew", _lease(blob, first).renew)
    call("renew another", _lease(blob, second).renew)
    call("change", lambda: _lease(blob, first).change(third))
    call("release with the old id", _lease(blob, first).release)
    call("break", lambda: _lease(blob, third).break_lease(lease_break_period=10))
    call("acquire while breaking", lambda: blob.acquire_lease(15, lease_id=third))
    call("change while breaking", lambda: _lease(blob, third).change(first))
    call("break at once", lambda: _lease(blob, third).break_lease(lease_break_period=0))
    call("renew broken", _lease(blob, third).renew)
    call("write with a lost lease", lambda: blob.upload_blob(b"y", overwrite=True, lease=third))
    call("acquire broken", lambda: blob.acquire_lease(-1, lease_id=second).id)
    call("infinite properties", blob.get_blob_properties)
    call("release", _lease(blob, second).release)
    call("release again", _lease(blob, second).release)
    call("break without a lease", _lease(blob, second).break_lease)
    call("lease container", lambda: storage.container.acquire_lease(15, lease_id=first).id)
    call("delete leased container", storage.container.delete_container)
    call("release container", _lease(storage.container, first).release)


def _run_blocks(storage: Storage, call: Callable[[str, Callable[[], Any]], None]) -> None:
    from azure.storage.blob import BlobBlock

    blob = storage.container.get_blob_client("blocks")
    call("stage", lambda: blob.stage_block("1", b"aaa"))
    call("stage another", lambda: blob.stage_block("2", b"bb"))
    call("uncommitted list", lambda: [block.id for block in blob.get_block_list("all")[1]])
    call("read before commit", lambda: blob.download_blob().readall())
    call("commit unknown", lambda: blob.commit_block_list([BlobBlock("9")]))
    call("commit", lambda: blob.commit_block_list([BlobBlock("2"), BlobBlock("1")], metadata={"a": "b"}))
    call("committed body", lambda: blob.download_blob().readall())
    call("committed list", lambda: [block.id for block in blob.get_block_list("all")[0]])


def _lease(client: Any, lease_id: str) -> Any:
    from azure.storage.blob import BlobLeaseClient

    return BlobLeaseClient(client, lease_id=lease_id)


def _match() -> Any:
    from azure.core import MatchConditions

    return MatchConditions.IfNotModified


def _listed(box: ContainerClient, prefix: str, include: list[str]) -> list[Any]:
    return [
        (item.name, dict(item.metadata or {}), item.size, str(item.lease.state))
        for item in box.list_blobs(name_starts_with=prefix, include=include)
    ]


def test_every_call_has_the_same_answer_as_azurite(conformance_node: ConformanceNode, azurite: str) -> None:
    """A processor that works with Azurite works with the node, also when it is refused."""
    node, other = Storage(conformance_node.node.blob_connection_string), Storage(azurite)
    _run(node)
    _run(other)

    differences = []
    for name, answers in other.answers.items():
        mine = node.answers[name]
        for ours, theirs in zip(mine, answers, strict=True):
            differences += [
                f"{name}: {field} is {ours[field]!r}, Azurite's {theirs[field]!r}"
                for field in theirs
                if ours[field] != theirs[field] and (name, field) not in _DIFFERENT
            ]
        if node.results[name] != other.results[name] and (name, "x-ms-error-code") not in _DIFFERENT:
            differences.append(f"{name}: {node.results[name]!r}, Azurite's {other.results[name]!r}")
    assert differences == [], "\n".join(differences)


_UNSIGNED = "an unsigned request"
_REFUSED: dict[str, tuple[str, str, dict[str, str]]] = {
    _UNSIGNED: ("GET", "?comp=list", {}),
    "a wrong signature": ("GET", "?comp=list", {"Authorization": "SharedKey {account}:d3Jvbmc="}),
    "a signature of another account": ("GET", "?comp=list", {"Authorization": "SharedKey nobody:d3Jvbmc="}),
    "a wrong signature on a blob": ("PUT", "/box/c?comp=metadata", {"Authorization": "SharedKey {account}:d3Jvbmc="}),
    "a scheme that does not exist": ("GET", "?comp=list", {"Authorization": "Digest x"}),
    "an expired SAS": ("GET", "/box/blob?sv=2021-08-06&se=2020-01-01T00%3A00%3A00Z&sr=b&sp=r&sig=d3Jvbmc%3D", {}),
    "a SAS with a wrong signature": (
        "GET", "/box/blob?sv=2021-08-06&se=2100-01-01T00%3A00%3A00Z&sr=b&sp=r&sig=d3Jvbmc%3D", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", _REFUSED)
def test_request_that_is_not_authenticated_is_refused_by_both(
    conformance_node: ConformanceNode, azurite: str, what: str
) -> None:
    """The node has the codes of the service; Azurite says AuthorizationFailure to every such request."""
    method, path, headers = _REFUSED[what]
    found = []
    for connection_string in (conformance_node.node.blob_connection_string, azurite):
        storage = Storage(connection_string)
        filled = {name: value.format(account=storage.account) for name, value in headers.items()}
        sent = {"x-ms-version": "2021-08-06", "x-ms-date": "Tue, 17 Nov 2026 21:00:00 GMT", **filled}
        answer = httpx.request(method, f"{storage.service.url.rstrip('/')}{path}", headers=sent, timeout=240)
        found.append((answer.status_code, answer.headers.get("x-ms-error-code")))
        assert "d3Jvbmc" not in answer.text

    service = (401, "NoAuthenticationInformation") if what == _UNSIGNED else (403, "AuthenticationFailed")
    assert found == [service, (403, "AuthorizationFailure")]


def test_operation_that_is_not_offered_gets_an_error_code_of_the_service(conformance_node: ConformanceNode) -> None:
    """It is not an object store: nothing is half written, and the client sees why."""
    storage = Storage(conformance_node.node.blob_connection_string)
    storage.container.create_container()
    blob = storage.container.get_blob_client("a")
    blob.upload_blob(b"x")
    append, page = (storage.container.get_blob_client(name) for name in ("append", "page"))
    calls: dict[str, Callable[[], Any]] = {
        "snapshot": blob.create_snapshot,
        "tags": lambda: blob.set_blob_tags({"a": "b"}),
        "tier": lambda: blob.set_standard_blob_tier("Cool"),
        "append blob": append.create_append_blob,
        "page blob": lambda: page.create_page_blob(512),
        "copy": lambda: append.start_copy_from_url(blob.url),
        "undelete": blob.undelete_blob,
    }
    for name, action in calls.items():
        storage.call(name, action)

    codes = {name: storage.answers[name][0]["x-ms-error-code"] for name in calls}
    assert codes == {
        "snapshot": "UnsupportedQueryParameter",
        "tags": "UnsupportedQueryParameter",
        "tier": "UnsupportedQueryParameter",
        "append blob": "InvalidBlobType",
        "page blob": "InvalidBlobType",
        "copy": "UnsupportedHeader",
        "undelete": "UnsupportedQueryParameter",
    }
    assert {storage.answers[name][0]["status"] for name in calls} <= {400, 409}
    assert [item.name for item in storage.container.list_blobs()] == ["a"]


def test_documents_have_the_elements_of_azurite(conformance_node: ConformanceNode, azurite: str) -> None:
    """Clients in other languages parse lists differently."""
    documents = []
    for connection_string in (conformance_node.node.blob_connection_string, azurite):
        storage = Storage(connection_string)
        storage.container.create_container()
        storage.container.upload_blob("b", b"12", metadata={"k": "v"})
        found: list[bytes] = []
        pages = storage.container.list_blobs(
            include=["metadata"],
            raw_response_hook=lambda response, found=found: found.append(response.http_response.body()),
        )
        list(pages)
        root = ElementTree.fromstring(found[0])
        documents.append({element.tag for element in root.iter() if not _VOLATILE.fullmatch(element.tag)})

    ours, theirs = documents
    assert theirs <= ours, json.dumps(sorted(theirs - ours))


def _sas(storage: Storage, hours: float, permissions: str) -> str:
    sas: str = generate_account_sas(
        storage.account,
        storage.key,
        ResourceTypes(container=True, object=True),
        AccountSasPermissions.from_string(permissions),
        datetime.now(UTC) + timedelta(hours=hours),
    )
    return sas


@pytest.mark.parametrize(
    ("hours", "permissions", "expected"),
    [(1, "rl", None), (-1, "rl", "AuthenticationFailed"), (1, "r", "AuthorizationPermissionMismatch")],
)
def test_shared_access_signature_is_limited_to_its_permissions_and_time(
    conformance_node: ConformanceNode, hours: float, permissions: str, expected: str | None
) -> None:
    """Expired signatures and missing permissions are refused with the service's codes."""
    storage = Storage(conformance_node.node.blob_connection_string)
    storage.container.create_container()
    client = ContainerClient.from_container_url(f"{storage.container.url}?{_sas(storage, hours, permissions)}")

    found = None
    try:
        list(client.list_blobs())
    except HttpResponseError as error:
        found = str(error.error_code).removeprefix("StorageErrorCode.")
    client.close()

    assert _folded(found) == _folded(expected)


def test_signature_for_one_blob_is_refused_for_another(conformance_node: ConformanceNode) -> None:
    """The scope of a service signature is its resource."""
    storage = Storage(conformance_node.node.blob_connection_string)
    storage.container.create_container()
    for name in ("mine", "other"):
        storage.container.upload_blob(name, b"x")
    sas = generate_blob_sas(
        storage.account,
        storage.container.container_name,
        "mine",
        account_key=storage.key,
        permission=BlobSasPermissions(read=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )

    with BlobServiceClient(f"{storage.service.url}?{sas}", retry_total=0) as service:
        box = service.get_container_client(storage.container.container_name)
        assert box.download_blob("mine").readall() == b"x"
        with pytest.raises(HttpResponseError) as refusal:
            box.download_blob("other").readall()
    assert refusal.value.status_code == 403


def test_pages_of_a_hierarchy_contain_each_folder_once(conformance_node: ConformanceNode) -> None:
    """A tool that shows folders would otherwise list them again with every page."""
    storage = Storage(conformance_node.node.blob_connection_string)
    storage.container.create_container()
    for name in ("folder/1", "folder/2", "x", "y", "z"):
        storage.container.upload_blob(name, b"")

    pages = storage.container.walk_blobs(results_per_page=1).by_page()
    found = [item.name for page in pages for item in page]

    assert sorted(found) == ["folder/", "x", "y", "z"]


def test_a_wrong_key_is_refused(conformance_node: ConformanceNode) -> None:
    """The answer does not contain the key."""
    wrong = re.sub("AccountKey=[^;]*", "AccountKey=c2VjcmV0", conformance_node.node.blob_connection_string)

    with (
        BlobServiceClient.from_connection_string(wrong, retry_total=0) as service,
        pytest.raises(HttpResponseError) as refusal,
    ):
        list(service.list_containers())
    assert refusal.value.status_code == 403
    assert "c2VjcmV0" not in str(refusal.value)


def _folded(text: str | None) -> str | None:
    return None if text is None else text.replace("_", "").lower()
