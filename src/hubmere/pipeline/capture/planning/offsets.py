"""The offset of a captured hub, which is in its write-ahead log before any file is written. It has, for each
partition, the open window and the files that were closed before it. The format and the encoding of names are part of
it, so that a repeated micro-batch writes the same files under the same names even if the hub's settings, or the log's
batches, have changed meanwhile.

    {"format": "...", "encoding": "Avro", "partitions": {"0": [at, start, [[first, end, second], ...]]}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.planning.windows import FilePlan, Planned, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOffset:
    """The position of a hub, and the files of the micro-batch that ends here."""

    format: str
    encoding: CaptureEncoding
    partitions: Mapping[int, Planned]

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the log."""
        return {
            "format": self.format,
            "encoding": str(self.encoding),
            "partitions": {
                str(partition): [*planned.window, [list(file) for file in planned.files]]
                for partition, planned in sorted(self.partitions.items())
            },
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "CaptureOffset":
        """Parse the JSON form of the log."""
        return cls(
            format=given["format"],
            encoding=CaptureEncoding(given["encoding"]),
            partitions={
                int(partition): Planned(tuple(FilePlan(*file) for file in files), Window(at, start_s))
                for partition, (at, start_s, files) in given["partitions"].items()
            },
        )

    def without_files(self) -> "CaptureOffset":
        """Where the next micro-batch begins."""
        return replace(self, partitions={index: Planned((), each.window) for index, each in self.partitions.items()})
