"""The keys of storage accounts: two each, so that clients can change from one to the other while one is renewed.

The first keys come from the node's secrets; a renewed key is in the catalog and takes the place of the first one.
Thread rule: the owner's thread only.
"""

import base64
import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from hubmere.broker.management.auditing import Actor, AuditedChange, OnDone
from hubmere.model.errors import Conflict, NotFound, Refusal
from hubmere.store.audit import AuditLog
from hubmere.store.catalog.runtime_state import Meta
from hubmere.store.catalog.view import Put, Step
from hubmere.store.engine import Catalog

# As long as the keys of the Azure service.
_KEY_BYTES: Final = 64


class StorageKeyName(StrEnum):
    """The keys of an account, by Azure's names."""

    KEY1 = "key1"
    KEY2 = "key2"


class StorageKeys:
    """The keys of all accounts. An account with one first key keeps it: its key is publicly known."""

    def __init__(self, catalog: Catalog, first_keys: Mapping[str, Sequence[bytes]], audit: AuditLog) -> None:
        self._catalog = catalog
        self._audit = audit
        self._keys = {
            account: {
                name: self._renewed_key(account, name) or key for name, key in zip(StorageKeyName, keys, strict=False)
            }
            for account, keys in first_keys.items()
        }

    @property
    def accounts(self) -> tuple[str, ...]:
        """The names of the accounts."""
        return tuple(self._keys)

    def of(self, account: str) -> Mapping[StorageKeyName, bytes]:
        """The keys of an account; raises NotFound."""
        if account not in self._keys:
            raise NotFound(f"storageAccounts/{account}")
        return self._keys[account]

    def renew(self, account: str, name: StorageKeyName, actor: Actor, on_done: OnDone) -> None:
        """Replace a key by a random one. The old key is refused as soon as the new one is durable."""
        key = secrets.token_bytes(_KEY_BYTES)

        def submit(steps: Sequence[Step], _actor: Actor, on_done: OnDone) -> None:
            def on_durable(refusal: Refusal | None) -> None:
                if refusal is None:
                    self._keys[account] = {**self._keys[account], name: key}
                on_done(refusal)

            self._catalog.submit(*steps, callback=on_durable)

        with AuditedChange(
            self._audit, submit, action="renew storage key", target=f"{account}/{name}", actor=actor, on_done=on_done
        ) as change:
            if len(self.of(account)) == 1:
                raise Conflict(f"The key of the account '{account}' is publicly known and cannot be renewed.")
            change.submit([Put(Meta(name=_meta_name(account, name), text=base64.b64encode(key).decode()))])

    def _renewed_key(self, account: str, name: StorageKeyName) -> bytes | None:
        text = self._catalog.view.meta(_meta_name(account, name))
        return None if text is None else base64.b64decode(text)


def _meta_name(account: str, name: StorageKeyName) -> str:
    return f"storage-key/{account}/{name}"
