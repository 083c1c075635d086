"""Where the captured files of a hub are: told by the node, or given as an option of the query."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hubmere.client.connection import Client
from hubmere.client.facts import capture_of
from hubmere.model.capture.targets import normalize_url
from hubmere.model.entity import CaptureEncoding
from hubmere.model.errors import InvalidArgument
from hubmere.pipeline.capture.files.names import DELTA_FORMAT, NameFormat

AUTO: Final = "auto"
# The options of a location: credentials, by the names of a capture target's keys.
LOCATION_OPTIONS: Final = (
    "connection_string", "account_key", "sas_token", "access_key_id", "secret_access_key", "session_token", "region",
    "endpoint", "ca_file",
)  # fmt: skip
_EXTENSIONS: Final = ("avro", "parquet")


class NoCapturedFiles(ValueError):
    """The node does not know where captured files of the hub are."""

    def __init__(self, hub: str) -> None:
        super().__init__(hub)
        self.hub = hub

    def __str__(self) -> str:
        return (
            f"the node has no capture destination for the hub '{self.hub}'; enable Capture, or name the location "
            "of the files in eventhubs.capture"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The files of one hub. `options` may hold secrets and are not part of `repr`."""

    url: str
    namespace: str
    hub: str
    name_format: str
    capture_id: str  # of the present capture: in files that do not name the id of the hub
    is_table: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def formats(self) -> list[NameFormat]:
        """The names that files may have, whichever encoding was set when they were written."""
        return [*(self._format(self.name_format, each) for each in _EXTENSIONS), self.table_format()]

    def table_format(self) -> NameFormat:
        """The names of the files of a Delta table."""
        return self._format(DELTA_FORMAT, "parquet")

    def _format(self, text: str, extension: str) -> NameFormat:
        return NameFormat(text=text, namespace=self.namespace, hub=self.hub, extension=extension)


def read_location(text: str) -> str:
    """Parse the option: `auto`, a URL or an absolute path."""
    if text.strip().lower() == AUTO:
        return AUTO
    try:
        return normalize_url(text.strip())
    except InvalidArgument as refusal:
        raise ValueError(refusal.text()) from None


def find_location(client: Client, hub: str, wanted: str, options: Mapping[str, str]) -> Location:
    """The location of a hub's files: the node knows the names in any case."""
    told = capture_of(client, hub)
    url = told["url"] if told and wanted == AUTO else wanted
    if not told or not url or url == AUTO:
        raise NoCapturedFiles(hub)
    return _location(told, url, options)


def _location(told: Mapping[str, Any], url: str, options: Mapping[str, str]) -> Location:
    return Location(
        url=url,
        namespace=str(told["namespace"]),
        hub=str(told["hub"]),
        name_format=str(told["nameFormat"]),
        capture_id=str(told["captureId"]),
        is_table=told["encoding"] == CaptureEncoding.DELTA.value,
        options=dict(options),
    )
