"""Checkpoints and partition ownership that event processors store in blobs.

The checkpoint stores of the Azure SDKs use blobs named `{host}/{hub}/{group}/checkpoint|ownership/{partition}` in lower
case, with metadata `sequencenumber`, `offset` and `ownerid`. Other blobs are ignored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from hubmere.broker.blobs.records import decode_metadata
from hubmere.store.catalog.blob_records import BlobRecord

_SEGMENTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorPartition:
    """One partition as an event processor sees it. None where nothing was stored."""

    host: str
    hub: str
    group: str
    partition: str
    container: str
    account: str
    owner: str | None = None
    owned_ms: int | None = None
    sequence: int | None = None
    offset: str | None = None
    checkpoint_ms: int | None = None

    @property
    def ownership_name(self) -> str:
        """The name of the blob that has the owner."""
        return f"{self.host}/{self.hub}/{self.group}/ownership/{self.partition}"

    def checkpoint_name(self, partition: int) -> str:
        """The name of the blob with the checkpoint of a partition of the same processor."""
        return f"{self.host}/{self.hub}/{self.group}/checkpoint/{partition}"


def processor_partitions(blobs: Iterable[BlobRecord]) -> list[ProcessorPartition]:
    """The partitions of all event processors, in the order of their names."""
    found: dict[tuple[str, ...], ProcessorPartition] = {}
    for blob, host, hub, group, kind, partition in _processor_blobs(blobs):
        key = (blob.account, blob.container, host, hub, group, partition.zfill(8))
        known = found.get(key) or ProcessorPartition(
            host=host, hub=hub, group=group, partition=partition, container=blob.container, account=blob.account
        )
        metadata = {name.lower(): value for name, value in decode_metadata(blob).items()}
        if kind == "ownership":
            known = replace(known, owner=metadata.get("ownerid") or None, owned_ms=blob.modified_ms)
        else:
            known = replace(
                known,
                sequence=_number(metadata.get("sequencenumber")),
                offset=metadata.get("offset"),
                checkpoint_ms=blob.modified_ms,
            )
        found[key] = known
    return [found[key] for key in sorted(found)]


def _processor_blobs(blobs: Iterable[BlobRecord]) -> Iterator[tuple[BlobRecord, str, str, str, str, str]]:
    for blob in blobs:
        # A hub from the emulator's configuration may have slashes in its name.
        parts = blob.name.split("/")
        if len(parts) >= _SEGMENTS and parts[-2] in ("checkpoint", "ownership") and parts[-1].isdigit():
            yield blob, parts[0], "/".join(parts[1:-3]), parts[-3], parts[-2], parts[-1]


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
