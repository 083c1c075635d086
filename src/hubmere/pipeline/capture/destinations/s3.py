"""Captured files in S3, or in a store with the same protocol: `s3://bucket[/prefix]`.

A task uploads the parts of a multipart upload, which is not visible; the driver completes it, which creates the whole
object unless one exists. Uploads of a hub that no task uses are aborted when its query starts.
"""

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, BinaryIO, Final, cast
from urllib.parse import quote, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hubmere.pipeline.capture.destinations.base import (
    DestinationFailed,
    InvalidDestination,
    NameTaken,
    Stored,
    Token,
    span_from_metadata,
)
from hubmere.pipeline.capture.destinations.parts import Parts
from hubmere.pipeline.capture.files.names import NameFormat, Span

_SPAN: Final = "hubmere-span"
# S3 requires parts of at least 5 MiB, except for the last one.
_PART_BYTES: Final = 8 * 1024 * 1024
_NOT_FOUND: Final = ("404", "NoSuchKey", "NotFound")
# Error codes: the object exists, another upload of it is being completed, or this one was completed.
_TAKEN: Final = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchUpload")
_FAILURES: Final = (ClientError, BotoCoreError)


def open_destination(url: str, options: Mapping[str, str]) -> "Bucket":
    """The bucket of a URL."""
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if not parts.netloc:
        raise InvalidDestination(url, "is not of the form s3://bucket[/prefix]")
    return Bucket(parts.netloc, _client(options), f"{prefix}/" if prefix else "")


def _client(options: Mapping[str, str]) -> Any:
    """Credentials of the options, or those of the machine (variables, profile, role)."""
    return boto3.client(
        "s3",
        region_name=options.get("region"),
        endpoint_url=options.get("endpoint"),
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=options.get("session_token"),
        config=Config(retries={"mode": "standard", "max_attempts": 5}),
    )


class Bucket:
    """See `base.Destination`."""

    def __init__(self, bucket: str, client: Any, prefix: str) -> None:
        self._bucket = bucket
        self._client = client
        self._prefix = prefix

    def url_of(self, name: str) -> str:
        """The URL of an object."""
        return f"s3://{self._bucket}/{quote(self._prefix + name)}"

    def upload(self, name: str, span: Span, attempt: str) -> "BucketUpload":
        """Start a multipart upload; every attempt has its own."""
        try:
            begun = self._client.create_multipart_upload(**self._at(name), Metadata={_SPAN: span.text()})
        except _FAILURES as error:
            raise _to_failure(self.url_of(name), error) from None
        return BucketUpload(self._client, self._at(name), str(begun["UploadId"]))

    def publish(self, name: str, span: Span, token: Token) -> None:
        """Complete the upload."""
        parts = cast("list[str]", token["parts"])
        listed = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(parts, 1)]
        try:
            self._client.complete_multipart_upload(
                **self._at(name), UploadId=token["upload"], MultipartUpload={"Parts": listed}, IfNoneMatch="*"
            )
        except ClientError as error:
            if _code(error) not in _TAKEN:
                raise _to_failure(self.url_of(name), error) from None
            if self.span_of(name) != span:
                raise NameTaken(self.url_of(name)) from None
            BucketUpload(self._client, self._at(name), str(token["upload"])).abandon()
        except BotoCoreError as error:
            raise _to_failure(self.url_of(name), error) from None

    def has(self, name: str) -> bool:
        """Whether any object has the name."""
        return self._metadata(name) is not None

    def span_of(self, name: str) -> Span | None:
        """The span of the published object of a name."""
        return span_from_metadata(self._metadata(name), _SPAN, self.url_of(name))

    def _metadata(self, name: str) -> Mapping[str, str] | None:
        try:
            found: Mapping[str, str] = self._client.head_object(**self._at(name))["Metadata"]
        except _FAILURES as error:
            if isinstance(error, ClientError) and _code(error) in _NOT_FOUND:
                return None
            raise _to_failure(self.url_of(name), error) from None
        return found

    def sweep(self, hub_id: str, names: NameFormat) -> None:
        """Abort uploads under the hub's names only; others in the bucket may be in progress."""
        try:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix + names.prefix()
            )
            left = [each for page in pages for each in page.get("Uploads", ())]
        except _FAILURES as error:
            raise _to_failure(self.url_of(names.prefix()), error) from None
        for each in left:
            if names.read(str(each["Key"]).removeprefix(self._prefix)) is not None:
                BucketUpload(self._client, {"Bucket": self._bucket, "Key": each["Key"]}, each["UploadId"]).abandon()

    def files(self, prefix: str) -> Iterator[Stored]:
        """The published objects whose names have the prefix."""
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    yield Stored(str(each["Key"]).removeprefix(self._prefix), int(each["Size"]))
        except _FAILURES as error:
            raise _to_failure(self.url_of(prefix), error) from None

    def open(self, name: str) -> BinaryIO:
        """Open a published object for reading."""
        try:
            return BytesIO(self._client.get_object(**self._at(name))["Body"].read())
        except _FAILURES as error:
            raise _to_failure(self.url_of(name), error) from None

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}


class BucketUpload:
    """See `base.Upload`."""

    def __init__(self, client: Any, at: Mapping[str, str], upload: str) -> None:
        self._client = client
        self._at = at
        self._upload = upload
        self._tags: list[str] = []
        self._parts = Parts(_PART_BYTES, self._send)

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes."""
        return self._parts.write(data)

    def finish(self) -> Token:
        """Upload the rest."""
        self._parts.close()
        return {"upload": self._upload, "parts": self._tags}

    def abandon(self) -> None:
        """Abort the upload; a missing one is ignored."""
        try:
            self._client.abort_multipart_upload(**self._at, UploadId=self._upload)
        except ClientError as error:
            if _code(error) not in _TAKEN:
                raise _to_failure(self._at["Key"], error) from None

    def _send(self, data: bytes) -> None:
        try:
            sent = self._client.upload_part(
                **self._at, UploadId=self._upload, PartNumber=len(self._tags) + 1, Body=data
            )
        except _FAILURES as error:
            raise _to_failure(self._at["Key"], error) from None
        self._tags.append(str(sent["ETag"]))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _to_failure(place: str, error: ClientError | BotoCoreError) -> DestinationFailed:
    return DestinationFailed(f"{place}: {error}")
