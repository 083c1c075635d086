"""Who may use the Blob endpoint: storage accounts with a key, shared access signatures, and the permissions of each.

The endpoint builds the string that a client has signed, because that depends on HTTP; the signature is verified here.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Flag, auto

from hubmere.broker.blobs.refusals import BlobErrorCode, BlobRefused


class BlobPermission(Flag):
    """What a request may do; a shared access signature names these by letters."""

    NONE = 0
    READ = auto()
    WRITE = auto()
    CREATE = auto()
    ADD = auto()
    DELETE = auto()
    LIST = auto()
    ALL = READ | WRITE | CREATE | ADD | DELETE | LIST


_LETTERS = {
    "r": BlobPermission.READ,
    "w": BlobPermission.WRITE,
    "c": BlobPermission.CREATE,
    "a": BlobPermission.ADD,
    "d": BlobPermission.DELETE,
    "l": BlobPermission.LIST,
}


def parse_permissions(letters: str) -> BlobPermission:
    """The permissions of a shared access signature; letters for features that are not offered are ignored."""
    found = BlobPermission.NONE
    for letter in letters:
        found |= _LETTERS.get(letter, BlobPermission.NONE)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobGrant:
    """What a credential allows. `container` and `blob` limit a signature for one of them; empty means all."""

    permissions: BlobPermission = BlobPermission.ALL
    container: str = ""
    blob: str = ""

    def require(self, needed: BlobPermission, container: str = "", blob: str = "") -> None:
        """Refuse what the credential does not allow; any one of several needed permissions is enough."""
        if self.container and self.container != container:
            raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
        if self.blob and self.blob != blob:
            raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
        if not self.permissions & needed:
            raise BlobRefused(BlobErrorCode.PERMISSION_MISMATCH)


def verify_signature(keys: Iterable[bytes], string_to_sign: str, signature: str) -> None:
    """Refuse a signature that none of the account's keys made."""
    text, given = string_to_sign.encode(), signature.encode()
    for key in keys:
        if hmac.compare_digest(base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()), given):
            return
    raise BlobRefused(BlobErrorCode.AUTHENTICATION_FAILED)
