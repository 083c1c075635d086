"""The log of a Delta table: captured Parquet files become rows of the table, each micro-batch in one commit, once.

The data files are published like any other; readers of the table see them once its log names them. A commit carries the
hub's id and the micro-batch's number as an application transaction, by which a repeat is recognized. A version of the
log is written only if there is none: by a link in a folder, by `If-None-Match` in Azure and S3.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from hubmere.pipeline.capture.destinations.base import DestinationFailed
from hubmere.pipeline.capture.files.content import PARQUET_SCHEMA

PARTITION_COLUMN: Final = "PartitionId"
_AZURE_ENDPOINT: Final = "azure_storage_endpoint"
# Our options, with their names in the Delta library.
_STORAGE: Final = {
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_key",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
}
# Parts of a connection string of a storage account, with their names in the Delta library; names ignore case.
_CONNECTION: Final = {
    "accountname": "azure_storage_account_name",
    "accountkey": "azure_storage_account_key",
    "sharedaccesssignature": "azure_storage_sas_key",
    "blobendpoint": _AZURE_ENDPOINT,
}
_PUBLIC_SUFFIX: Final = "core.windows.net"
# The library raises OSError for an unreachable store; its texts contain no signed URL.
_FAILURES: Final = (DeltaError, OSError)
# The library formats its error causes as a coloured tree.
_DRAWING: Final = re.compile(r"\x1b\[[0-9;]*m|↳|\s+")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A published file of the table, by its name inside it."""

    name: str
    partition: int
    size_bytes: int
    events: int
    modified_ms: int


def commit_files(url: str, options: Mapping[str, str], hub_id: str, batch: int, files: Sequence[DataFile]) -> None:
    """Add files to the table at a URL, unless this micro-batch was already committed."""
    place, storage = _place(url), storage_options(url, options)
    added = [_action(file) for file in files if file.events]
    properties = CommitProperties(app_transactions=[Transaction(hub_id, batch)])
    try:
        table = _table(place, storage)
        if table is None:
            create_table_with_add_actions(
                place, _schema(), added, mode="error", partition_by=[PARTITION_COLUMN],
                storage_options=storage, commit_properties=properties,
            )  # fmt: skip
        elif not _has_taken(table, hub_id, batch):
            actions: list[AddAction | RemoveAction] = list(added)
            table.create_write_transaction(
                actions, mode="append", schema=_schema(), partition_by=[PARTITION_COLUMN], commit_properties=properties
            )
    except _FAILURES as error:
        raise _to_failure(url, error) from None


def _has_taken(table: DeltaTable, hub_id: str, batch: int) -> bool:
    known = table.transaction_version(hub_id)
    return known is not None and known >= batch


def table_files(url: str, options: Mapping[str, str]) -> set[str]:
    """The files in the log of the table, by their names inside it."""
    try:
        table = _table(_place(url), storage_options(url, options))
    except _FAILURES as error:
        raise _to_failure(url, error) from None
    return set() if table is None else set(pa.table(table.get_add_actions()).column("path").to_pylist())


def _to_failure(url: str, error: Exception) -> DestinationFailed:
    text = " ".join(_DRAWING.sub(" ", str(error)).split())
    return DestinationFailed(f"{url}: {type(error).__name__}: {text}")


def _place(url: str) -> str:
    """A URL for the Delta library, which needs the account as an option."""
    parts = urlsplit(url)
    return f"az:/{parts.path}" if parts.scheme == "az" else url


def storage_options(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """Credentials as options of the Delta library."""
    found = {_STORAGE[name]: text for name, text in options.items() if name in _STORAGE}
    parts = urlsplit(url)
    is_azure = parts.scheme == "az"
    endpoint_name, http_name = (
        (_AZURE_ENDPOINT, "azure_allow_http") if is_azure else ("aws_endpoint_url", "aws_allow_http")
    )
    if is_azure:
        found["azure_storage_account_name"] = parts.netloc
    if endpoint := options.get("endpoint"):
        found[endpoint_name] = endpoint
    if text := options.get("connection_string"):
        found |= _connection_options(text)
    if found.get(endpoint_name, "").startswith("http:"):
        found[http_name] = "true"
    return found


def _connection_options(text: str) -> dict[str, str]:
    """The parts of a connection string, which the Delta library does not parse."""
    given = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in text.split(";"))}
    found = {_CONNECTION[name]: value for name, value in given.items() if name in _CONNECTION and value}
    suffix = given.get("endpointsuffix")
    if suffix and suffix != _PUBLIC_SUFFIX and _AZURE_ENDPOINT not in found:
        protocol = given.get("defaultendpointsprotocol", "https")
        found[_AZURE_ENDPOINT] = f"{protocol}://{given['accountname']}.blob.{suffix}"
    return found


def _table(url: str, storage: dict[str, str]) -> DeltaTable | None:
    try:
        return DeltaTable(url, storage_options=storage)
    except TableNotFoundError:
        return None


def _schema() -> Schema:
    captured = Schema.from_arrow(pa.schema(PARQUET_SCHEMA))
    return Schema([*captured.fields, Field(PARTITION_COLUMN, PrimitiveType("string"))])


def _action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.name,
        size=file.size_bytes,
        partition_values={PARTITION_COLUMN: str(file.partition)},
        modification_time=file.modified_ms,
        data_change=True,
        stats=f'{{"numRecords":{file.events}}}',
    )
