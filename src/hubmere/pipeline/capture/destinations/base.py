"""What a destination offers, and how it says no."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from hubmere.pipeline.capture.files.names import NameFormat, Span

# What a task hands to the driver so that it can publish: texts and numbers only.
Token = Mapping[str, object]


class DestinationFailed(Exception):
    """A destination does not do what it was asked; its text holds no credential."""


class InvalidDestination(DestinationFailed):
    """A URL or an option that cannot be honoured."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url = url
        self.why = why

    def __str__(self) -> str:
        return f"destination '{self.url}' {self.why}"


class NameTaken(DestinationFailed):
    """There is a file under the name which is not the one that was to be published."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} is there already and holds something else; it stays as it is: move it away to go on"


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that is visible."""

    name: str
    size_bytes: int


class Upload(Protocol):
    """A file that is being written aside. Thread rule: one owner."""

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes; gives how many."""

    def finish(self) -> Token:
        """All bytes are there, durably, and nobody sees them; gives what the driver needs to publish them."""

    def abandon(self) -> None:
        """The file will not be published."""


class Destination(Protocol):
    """A place for files."""

    def url_of(self, name: str) -> str:
        """The address of a file."""

    def upload(self, name: str, span: Span, attempt: str) -> Upload:
        """Begin to write a file aside; no two attempts disturb each other."""

    def publish(self, name: str, span: Span, token: Token) -> None:
        """Make a file visible under its name; once more is no different. NameTaken when another is there."""

    def has(self, name: str) -> bool:
        """Whether a file is visible under a name, whatever it is."""

    def span_of(self, name: str) -> Span | None:
        """What the visible file of a name holds; None when there is none. NameTaken when it does not say so."""

    def sweep(self, hub_id: str, names: NameFormat) -> None:
        """Take away what attempts that nobody waits for have left of a hub, which is known by its id or its names."""

    def files(self, prefix: str) -> Iterator[Stored]:
        """The visible files whose names begin so."""

    def open(self, name: str) -> BinaryIO:
        """A visible file, to be read from its beginning."""


def span_noted(metadata: Mapping[str, str] | None, key: str, url: str) -> Span | None:
    """The span in the metadata of an object; None without an object, NameTaken for one of somebody else."""
    if metadata is None:
        return None
    span = Span.parse(metadata.get(key, ""))
    if span is None:
        raise NameTaken(url)
    return span
