"""The storage accounts of a node: found by name, each with its key."""

from collections.abc import Mapping

from hubmere.broker.blobs.access import BlobGrant, verify_signature
from hubmere.broker.blobs.processors import ProcessorPartition, processor_partitions
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.broker.blobs.service import BlobAccount
from hubmere.store.blob_files import BodyStore
from hubmere.store.engine import Catalog


class BlobAccounts:
    """All storage accounts. Thread rule: the owner's thread only."""

    def __init__(self, catalog: Catalog, bodies: BodyStore, keys: Mapping[str, bytes]) -> None:
        self._catalog = catalog
        self._keys = dict(keys)
        self._accounts = {name: BlobAccount(name, catalog, bodies) for name in keys}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the accounts."""
        return tuple(self._accounts)

    def account(self, name: str) -> BlobAccount:
        """An account; refused as a failed authentication if there is none, so that names cannot be guessed."""
        account = self._accounts.get(name)
        if account is None:
            raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
        return account

    def verify(self, account: str, string_to_sign: str, signature: str, grant: BlobGrant) -> BlobGrant:
        """The grant of a request that an account's key has signed."""
        key = self._keys.get(account)
        if key is None:
            raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
        verify_signature(key, string_to_sign, signature)
        return grant

    def processor_partitions(self) -> list[ProcessorPartition]:
        """Checkpoints and owners that event processors have stored."""
        return processor_partitions(self._catalog.view.all_blobs())

    def drop_old_blocks(self, now_ms: int) -> None:
        """Delete blocks that were staged long ago and never committed."""
        for account in self._accounts.values():
            account.drop_old_blocks(now_ms)
