"""The interface of a destination, and its errors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from hubmere.pipeline.capture.files.names import NameFormat, Span

# What the driver needs to publish a staged file: texts and numbers only.
Token = Mapping[str, object]


class DestinationFailed(Exception):
    """A destination has failed; the text contains no credential."""


class InvalidDestination(DestinationFailed):
    """A URL or an option is not valid."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why

    def __str__(self) -> str:
        return f"destination '{self.url}' {self.why}"


class NameTaken(DestinationFailed):
    """Another file exists under the name of the file to publish."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} already exists with other content and is not overwritten; move it away to continue"


@dataclass(frozen=True, slots=True)
class Stored:
    """A published file."""

    name: str
    size_bytes: int


class Upload(Protocol):
    """A staged file. Thread rule: one owner."""

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes; returns their number."""

    def finish(self) -> Token:
        """Make the bytes durable but not visible; returns the token that the driver needs to publish them."""

    def abandon(self) -> None:
        """Discard the file."""


class Destination(Protocol):
    """A store for captured files."""

    def url_of(self, name: str) -> str:
        """The URL of a file."""

    def upload(self, name: str, span: Span, attempt: str) -> Upload:
        """Start to stage a file; attempts do not interfere with each other."""

    def publish(self, name: str, span: Span, token: Token) -> None:
        """Make a file visible under its name; repeating it has no effect. NameTaken if another file has the name."""

    def has(self, name: str) -> bool:
        """Whether any file has the name."""

    def span_of(self, name: str) -> Span | None:
        """The span of the published file of a name; None if there is none. NameTaken if it is not a captured file."""

    def sweep(self, hub_id: str, names: NameFormat) -> None:
        """Delete staged files of a hub that failed attempts have left; they are found by the hub's id or its names."""

    def files(self, prefix: str) -> Iterator[Stored]:
        """The published files whose names have the prefix."""

    def open(self, name: str) -> BinaryIO:
        """Open a published file for reading."""


def span_from_metadata(metadata: Mapping[str, str] | None, key: str, url: str) -> Span | None:
    """The span in the metadata of an object; None without an object, NameTaken if it is not a captured file."""
    if metadata is None:
        return None
    span = Span.parse(metadata.get(key, ""))
    if span is None:
        raise NameTaken(url)
    return span
