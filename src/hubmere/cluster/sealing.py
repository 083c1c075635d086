"""Seals values for the control log with the cluster secret: a reader of the topic sees names, never keys.

AES-256-GCM with a random nonce; the key is derived from the secret by HKDF-SHA256. The label (the row's key) is
authenticated, so a sealed value cannot be moved to another row.
"""

import base64
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32
_PURPOSE: Final = b"hubmere control log 1"


class WrongSecret(Exception):
    """A value was sealed with another cluster secret."""


class Sealer:
    """Seals and opens texts with one secret."""

    def __init__(self, secret: bytes) -> None:
        key = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE).derive(secret)
        self._cipher = AESGCM(key)

    def seal(self, text: str, label: str) -> str:
        """The sealed form of a text."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), label.encode())).decode()

    def open(self, sealed: str, label: str) -> str:
        """The text of a sealed form; raises WrongSecret."""
        try:
            data = base64.b64decode(sealed, validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], label.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise WrongSecret(f"{label} was sealed with another cluster secret") from error
