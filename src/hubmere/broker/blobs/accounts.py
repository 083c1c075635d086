"""The storage accounts of a node: found by name, each with its keys.

They belong to the node's own namespace: its network rules and its `disableLocalAuth` hold for them, too.
"""

from collections.abc import Callable, Mapping, Sequence

from hubmere.broker.access.network import is_allowed
from hubmere.broker.blobs.access import BlobGrant, verify_signature
from hubmere.broker.blobs.keys import StorageKeys
from hubmere.broker.blobs.owner_moves import OwnerMoves
from hubmere.broker.blobs.processors import ProcessorPartition, processor_partitions
from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused
from hubmere.broker.blobs.service import BlobAccount
from hubmere.broker.management.auditing import OnDone
from hubmere.model.entity import Namespace
from hubmere.model.errors import Refusal
from hubmere.store.audit import AuditLog
from hubmere.store.blob_files import BodyStore
from hubmere.store.engine import Catalog


class BlobAccounts:
    """All storage accounts. Thread rule: the owner's thread only."""

    def __init__(
        self,
        catalog: Catalog,
        bodies: BodyStore,
        first_keys: Mapping[str, Sequence[bytes]],
        namespace: Callable[[], Namespace],
        audit: AuditLog,
    ) -> None:
        self._catalog = catalog
        self._namespace = namespace
        self.keys = StorageKeys(catalog, first_keys, audit)
        self.owner_moves = OwnerMoves()
        self._accounts = {name: BlobAccount(name, catalog, bodies, self.owner_moves) for name in first_keys}

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

    def ensure_container(self, account: str, name: str, now_ms: int, on_done: OnDone) -> None:
        """Create a container unless it exists; `on_done` is called when it is durable."""
        owner = self.account(account)
        try:
            owner.create_container(
                name, {}, now_ms, lambda result: on_done(result if isinstance(result, Refusal) else None)
            )
        except BlobRefused as refusal:
            if refusal.code is not BlobErrorCode.CONTAINER_ALREADY_EXISTS:
                raise
            on_done(None)

    def verify(self, account: str, string_to_sign: str, signature: str, grant: BlobGrant) -> BlobGrant:
        """The grant of a request that one of an account's keys has signed."""
        if self._namespace().disable_local_auth:
            raise BlobRefused(BlobErrorCode.KEYS_NOT_PERMITTED)
        if account not in self._accounts:
            raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
        verify_signature(self.keys.of(account).values(), string_to_sign, signature)
        return grant

    def require_address(self, address: str) -> None:
        """Refuse an address that the network rules of the namespace do not allow."""
        if not is_allowed(self._namespace(), address):
            raise BlobRefused(BlobErrorCode.AUTHORIZATION_FAILURE)

    def processor_partitions(self) -> list[ProcessorPartition]:
        """Checkpoints and owners that event processors have stored."""
        return processor_partitions(self._catalog.view.all_blobs())

    def drop_old_blocks(self, now_ms: int) -> None:
        """Delete blocks that were staged long ago and never committed."""
        for account in self._accounts.values():
            account.drop_old_blocks(now_ms)
