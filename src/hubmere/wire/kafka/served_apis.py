"""How each version of an API is read and written, for the APIs that a server is given.

`endpoints.kafka.endpoint` chooses the APIs, and `messages` declares their versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from hubmere.wire.kafka.codegen import holds_records, reader_of, writer_of
from hubmere.wire.kafka.errors import LocalProtocolError
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.reader_source import Reader
from hubmere.wire.kafka.schema import Api, VersionRange
from hubmere.wire.kafka.writer_source import Writer

# Frame length and correlation id.
RESPONSE_HEADER: Final = Struct(">ii")
NO_TAGS: Final = b"\x00"
_NO_VERSIONS: Final = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class VersionPath:
    """How to serve one API in one version; looked up once per request."""

    api: Api
    version: int
    is_flexible: bool
    keeps_views: bool
    read_request: Reader
    write_response: Writer
    # Placeholder for frame length and header, with an empty tag section if the version has one.
    response_head: bytes


class ServedApis:
    """The APIs and versions that a server supports. Created once and shared by all its connections."""

    def __init__(self, ranges: Mapping[int, VersionRange]) -> None:
        for key, wanted in ranges.items():
            declared = APIS[key].versions if key in APIS else _NO_VERSIONS
            if wanted.low not in declared or wanted.high not in declared:
                raise LocalProtocolError(f"versions {wanted.low} to {wanted.high} of API {key} are not all declared")
        self._ranges = dict(ranges)
        # A cache, bounded by the number of declared versions.
        self._paths: dict[tuple[int, int], VersionPath] = {}
        # The latest small Fetch requests of all connections, by their bytes behind the correlation id: their path, the
        # client id and the body. Readers of one tail ask alike; each request is parsed once.
        self.fetches: dict[bytes, tuple[VersionPath, str | None, Any]] = {}

    def range_of(self, key: int) -> VersionRange | None:
        """The supported versions of an API."""
        return self._ranges.get(key)

    def path(self, key: int, version: int) -> VersionPath | None:
        """How to serve one version of an API; None if it is not supported."""
        found = self._paths.get((key, version))
        if found is None and version in self._ranges.get(key, _NO_VERSIONS):
            found = self._paths[key, version] = derive_path(APIS[key], version)
        return found


def derive_path(api: Api, version: int) -> VersionPath:
    """How to serve one version of an API."""
    flexible = api.is_flexible(version)
    tags = NO_TAGS if api.response_header_version(version) else b""
    return VersionPath(
        api=api,
        version=version,
        is_flexible=flexible,
        keeps_views=holds_records(api.request),
        read_request=reader_of(api.request, version, flexible),
        write_response=writer_of(api.response, version, flexible),
        response_head=bytes(RESPONSE_HEADER.size) + tags,
    )


EVERYTHING: Final = ServedApis({key: api.versions for key, api in APIS.items()})
