"""Names of captured files: built from a format with nine tokens, and parsed; and the span of events in a file.

Times are UTC, of whole seconds, numbers padded with zeros (reference: service 6). A name says where a window began, a
`Span` says what is in the file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from hubmere.model.entity import CaptureEncoding

EXTENSIONS: Final = {
    CaptureEncoding.AVRO: "avro",
    CaptureEncoding.AVRO_DEFLATE: "avro",
    CaptureEncoding.PARQUET: "parquet",
    CaptureEncoding.DELTA: "parquet",
}
# The files of a Delta table are in one folder; readers find them by the table's log, so their names do not matter.
DELTA_FORMAT: Final = "{Namespace}/{EventHub}/PartitionId={PartitionId}/{Year}{Month}{Day}-{Hour}{Minute}{Second}"
# Token, and the part of a time that it stands for.
_TIMES: Final = {
    "{Year}": "%Y", "{Month}": "%m", "{Day}": "%d", "{Hour}": "%H", "{Minute}": "%M", "{Second}": "%S",
}  # fmt: skip
_TIME: Final = " ".join(_TIMES.values())
_TOKEN: Final = re.compile(r"\{[A-Za-z]+\}")
_PARTITION: Final = "{PartitionId}"
_YEAR: Final = "{Year}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFormat:
    """The name format of one hub's files."""

    text: str
    namespace: str
    hub: str
    extension: str

    def name_of(self, partition: int, second: int) -> str:
        """The name of the file of a partition whose window began at a second."""
        at = datetime.fromtimestamp(second, UTC)
        values = {"{Namespace}": self.namespace, "{EventHub}": self.hub, _PARTITION: str(partition)}
        values |= {token: _pad(at.strftime(part), token) for token, part in _TIMES.items()}
        return f"{_TOKEN.sub(lambda found: values.get(found[0], found[0]), self.text)}.{self.extension}"

    def read(self, name: str) -> "NamedWindow | None":
        """Parse a name; None if it does not match the format."""
        found = self._pattern().fullmatch(name)
        if found is None:
            return None
        try:
            at = datetime.strptime(" ".join(found[token.strip("{}")] for token in _TIMES), _TIME).replace(tzinfo=UTC)
        except ValueError:
            return None
        return NamedWindow(int(found[_PARTITION.strip("{}")]), int(at.timestamp()))

    def matcher(self) -> Callable[[str], bool]:
        """A check of many names: whether one matches the format."""
        pattern = self._pattern()
        return lambda name: pattern.fullmatch(name) is not None

    def prefix(self) -> str:
        """The common prefix of all names."""
        known = self.text.replace("{Namespace}", self.namespace).replace("{EventHub}", self.hub)
        return known[: found.start()] if (found := _TOKEN.search(known)) else known

    def _pattern(self) -> re.Pattern[str]:
        seen: set[str] = set()
        known = {"{Namespace}": re.escape(self.namespace), "{EventHub}": re.escape(self.hub)}
        parts: list[str] = []
        at = 0
        for found in _TOKEN.finditer(self.text):
            token = found[0]
            parts += (re.escape(self.text[at : found.start()]), known.get(token) or _group(token, seen))
            at = found.end()
        return re.compile("".join((*parts, re.escape(f"{self.text[at:]}.{self.extension}"))))


def _group(token: str, seen: set[str]) -> str:
    name = token.strip("{}")
    if token in seen:
        return f"(?P={name})"
    seen.add(token)
    digits = "0|[1-9][0-9]*" if token == _PARTITION else f"[0-9]{{{4 if token == _YEAR else 2}}}"
    return f"(?P<{name}>{digits})" if token in _TIMES or token == _PARTITION else re.escape(token)


def _pad(text: str, token: str) -> str:
    return text.rjust(4, "0") if token == _YEAR else text


def table_root(namespace: str, hub: str) -> str:
    """The path of the Delta table of a hub below its destination."""
    return f"{namespace}/{hub}/"


class NamedWindow(NamedTuple):
    """The parts of a parsed name."""

    partition: int
    second: int


class Span(NamedTuple):
    """The events that a file holds: those from `first` up to, and not including, `end` that readers see."""

    hub_id: str
    partition: int
    first: int
    end: int

    def text(self) -> str:
        """The text form in files and in the metadata of objects."""
        return f"{self.hub_id}/{self.partition}/{self.first}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> "Span | None":
        """Parse the text form; None if it is not a span."""
        found = re.fullmatch(r"([^/]+)/([0-9]+)/([0-9]+)-([0-9]+)", text)
        return None if found is None else cls(found[1], *(int(found[group]) for group in (2, 3, 4)))
