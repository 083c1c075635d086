"""What EventProcessorClient and EventProcessorHost for .NET send to Blob storage, sent to the node and to Azurite."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from conformance.blobs.dotnet import CURRENT, LEGACY, Answer, DotnetClient, Library, listed
from conformance.conformance_node import ConformanceNode

pytestmark = pytest.mark.foreign

_PREFIX = "ns.example.org/orders/$default"
_FIRST, _SECOND = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def event_processor_client(client: DotnetClient) -> Iterator[tuple[str, int, str | None]]:
    """Azure.Messaging.EventHubs.Processor 5; yields the expected status and error code of each request."""
    box = client.box
    ownership, checkpoint = f"{box}/{_PREFIX}/ownership/0", f"{box}/{_PREFIX}/checkpoint/0"
    prefix = "ns.example.org%2Forders%2F%24default%2Fownership%2F"
    listing = f"restype=container&comp=list&prefix={prefix}&include=metadata"
    empty: dict[str, Any] = {"x_ms_blob_type": "BlockBlob", "Content_Type": "application/octet-stream"}
    client.send("list without a container", "GET", box, listing)
    yield "list without a container", 404, "ContainerNotFound"
    client.send("claim without a container", "PUT", ownership, x_ms_meta_ownerid=_FIRST, If_None_Match="*", **empty)
    yield "claim without a container", 404, "ContainerNotFound"
    client.send("create if not exists", "PUT", box, "restype=container")
    yield "create if not exists", 201, None
    client.send("create if not exists again", "PUT", box, "restype=container")
    yield "create if not exists again", 409, "ContainerAlreadyExists"
    client.send("list nothing", "GET", box, listing)
    yield "list nothing", 200, None
    claimed = client.send("claim", "PUT", ownership, x_ms_meta_ownerid=_FIRST, If_None_Match="*", **empty)
    yield "claim", 201, None
    client.send("claim too late", "PUT", ownership, x_ms_meta_ownerid=_SECOND, If_None_Match="*", **empty)
    yield "claim too late", 409, "BlobAlreadyExists"
    client.send("renew", "PUT", ownership, "comp=metadata", x_ms_meta_ownerid=_FIRST, If_Match=claimed.etag)
    yield "renew", 200, None
    client.send("steal with an old etag", "PUT", ownership, "comp=metadata", x_ms_meta_ownerid=_SECOND,
                If_Match=claimed.etag)  # fmt: skip
    yield "steal with an old etag", 412, "ConditionNotMet"
    found = client.send("list owners", "GET", box, listing)
    yield "list owners", 200, None
    assert listed(found) == {f"{_PREFIX}/ownership/0": {"ownerid": _FIRST}}
    client.send("read no checkpoint", "HEAD", checkpoint)
    yield "read no checkpoint", 404, "BlobNotFound"
    values: dict[str, Any] = {
        "x_ms_meta_offset": "",
        "x_ms_meta_sequencenumber": "7",
        "x_ms_meta_clientidentifier": _FIRST,
    }
    client.send("checkpoint", "PUT", checkpoint, "comp=metadata", **values)
    yield "checkpoint", 404, "BlobNotFound"
    client.send("first checkpoint", "PUT", checkpoint, **values, **empty)
    yield "first checkpoint", 201, None
    client.send("next checkpoint", "PUT", checkpoint, "comp=metadata", **(values | {"x_ms_meta_sequencenumber": "8"}))
    yield "next checkpoint", 200, None
    read = client.send("read checkpoint", "HEAD", checkpoint)
    yield "read checkpoint", 200, None
    assert (read.metadata["sequencenumber"], read.metadata["clientidentifier"]) == ("8", _FIRST)
    current = client.send("read owner", "HEAD", ownership)
    yield "read owner", 200, None
    client.send("give up", "PUT", ownership, "comp=metadata", x_ms_meta_ownerid="", If_Match=current.etag)
    yield "give up", 200, None
    gone = f"{box}/{_PREFIX}/ownership/1"
    client.send("renew a deleted blob", "PUT", gone, "comp=metadata", x_ms_meta_ownerid=_FIRST, If_Match='"0x8D"')
    yield "renew a deleted blob", 404, "BlobNotFound"


def event_processor_host(client: DotnetClient) -> Iterator[tuple[str, int, str | None]]:
    """Microsoft.Azure.EventHubs.Processor 4: a lease and a JSON text in the blob of each partition."""
    box = client.box
    blob = f"{box}/$Default/0"
    body = b'{"Offset":null,"SequenceNumber":0,"PartitionId":"0","Owner":"","Token":"","Epoch":0}'
    text: dict[str, Any] = {"x_ms_blob_type": "BlockBlob", "Content_Type": "text/plain; charset=utf-8"}
    client.send("container exists", "HEAD", box, "restype=container")
    yield "container exists", 404, "ContainerNotFound"
    client.send("create", "PUT", box, "restype=container")
    yield "create", 201, None
    client.send("create lease blob", "PUT", blob, body=body, If_None_Match="*", **text)
    yield "create lease blob", 201, None
    client.send("create lease blob again", "PUT", blob, body=body, If_None_Match="*", **text)
    yield "create lease blob again", 409, "BlobAlreadyExists"
    client.send("attributes", "HEAD", blob)
    yield "attributes", 200, None
    client.send("acquire", "PUT", blob, "comp=lease", x_ms_lease_action="acquire", x_ms_lease_duration="30",
                x_ms_proposed_lease_id=_FIRST)  # fmt: skip
    yield "acquire", 201, None
    client.send("acquire of another", "PUT", blob, "comp=lease", x_ms_lease_action="acquire", x_ms_lease_duration="30",
                x_ms_proposed_lease_id=_SECOND)  # fmt: skip
    yield "acquire of another", 409, "LeaseAlreadyPresent"
    client.send("owner", "PUT", blob, "comp=metadata", x_ms_lease_id=_FIRST, x_ms_meta_OWNINGHOST="host-1")
    yield "owner", 200, None
    client.send("owner without the lease", "PUT", blob, "comp=metadata", x_ms_meta_OWNINGHOST="host-2")
    yield "owner without the lease", 412, "LeaseIdMissing"
    client.send("checkpoint", "PUT", blob, body=body.replace(b"null", b'"120"'), x_ms_lease_id=_FIRST,
                x_ms_meta_OWNINGHOST="host-1", **text)  # fmt: skip
    yield "checkpoint", 201, None
    client.send("steal", "PUT", blob, "comp=lease", x_ms_lease_action="change", x_ms_lease_id=_FIRST,
                x_ms_proposed_lease_id=_SECOND)  # fmt: skip
    yield "steal", 200, None
    client.send("renew stolen", "PUT", blob, "comp=lease", x_ms_lease_action="renew", x_ms_lease_id=_FIRST)
    yield "renew stolen", 409, "LeaseIdMismatchWithLeaseOperation"
    client.send("checkpoint of a stolen lease", "PUT", blob, body=body, x_ms_lease_id=_FIRST, **text)
    yield "checkpoint of a stolen lease", 412, "LeaseIdMismatchWithBlobOperation"
    client.send("renew", "PUT", blob, "comp=lease", x_ms_lease_action="renew", x_ms_lease_id=_SECOND)
    yield "renew", 200, None
    listing = "restype=container&comp=list&prefix=%24Default%2F&include=metadata"
    found = client.send("all leases", "GET", box, listing)
    yield "all leases", 200, None
    assert {name: {key.upper(): value for key, value in metadata.items()}
            for name, metadata in listed(found).items()} == {"$Default/0": {"OWNINGHOST": "host-1"}}  # fmt: skip
    read = client.send("download", "GET", blob)
    yield "download", 200, None
    assert read.body == body.replace(b"null", b'"120"')
    client.send("release", "PUT", blob, "comp=lease", x_ms_lease_action="release", x_ms_lease_id=_SECOND)
    yield "release", 200, None
    client.send("delete", "DELETE", blob)
    yield "delete", 202, None
    client.send("delete again", "DELETE", blob)
    yield "delete again", 404, "BlobNotFound"


# Azurite answers 412; the service says BlobNotFound, for which .NET creates the blob again.
_DIFFERENT = ("renew a deleted blob",)

Conversation = Callable[[DotnetClient], Iterator[tuple[str, int, str | None]]]
BOTH = [(event_processor_client, CURRENT), (event_processor_host, LEGACY)]


def run(connection_string: str, library: Library, conversation: Conversation) -> tuple[list[Any], list[Any]]:
    """The expected and the actual answers."""
    with closing(DotnetClient(connection_string, library)) as client:
        expected = list(conversation(client))
        return expected, client.answers


@pytest.mark.parametrize(("conversation", "library"), BOTH)
def test_requests_of_dotnet_get_the_answers_that_it_expects(
    conformance_node: ConformanceNode, conversation: Conversation, library: Library
) -> None:
    """Its processors decide by these statuses and error codes."""
    expected, answers = run(conformance_node.node.blob_connection_string, library, conversation)

    assert [(name, answer.status, answer.code) for name, answer in answers] == expected
    assert all("x-ms-client-request-id" in answer.headers for _, answer in answers)


@pytest.mark.parametrize(("conversation", "library"), BOTH)
def test_requests_of_dotnet_get_the_answers_of_azurite(
    conformance_node: ConformanceNode, azurite: str, conversation: Conversation, library: Library
) -> None:
    """Call by call: status, code, headers and metadata."""
    _, ours = run(conformance_node.node.blob_connection_string, library, conversation)
    _, theirs = run(azurite, library, conversation)

    def compared(answers: list[tuple[str, Answer]]) -> list[tuple[str, dict[str, Any]]]:
        return [(name, answer.comparable) for name, answer in answers if name not in _DIFFERENT]

    assert compared(ours) == compared(theirs)


def test_checkpoints_of_dotnet_are_shown_as_processors(conformance_node: ConformanceNode) -> None:
    """An empty offset is usual since version 5.12."""
    from hubmere.broker.blobs.processors import processor_partitions
    from hubmere.store.catalog.blob_records import BlobRecord

    blob = BlobRecord(
        account="a", container="c", name=f"{_PREFIX}/checkpoint/3", etag="0x1", modified_ms=1, created_ms=1,
        size_bytes=0,
        metadata='{"offset": "", "sequencenumber": "8", "clientidentifier": "x"}',
    )  # fmt: skip

    [found] = processor_partitions([blob])

    assert (found.hub, found.group, found.partition, found.sequence) == ("orders", "$default", "3", 8)
