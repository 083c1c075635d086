"""The client's side of SCRAM (RFC 5802, RFC 7677), as Kafka uses it: without channel binding."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

_HASHES: Final[dict[str, Callable[[], "hashlib._Hash"]]] = {
    "SCRAM-SHA-256": hashlib.sha256,
    "SCRAM-SHA-512": hashlib.sha512,
}
MECHANISMS: Final = tuple(_HASHES)
# RFC 7677 asks for at least 4096; a hostile server must not make the gateway compute for minutes.
_MAX_ITERATIONS: Final = 1_000_000
_NO_BINDING: Final = "n,,"


class ScramFailed(Exception):
    """The server refused the password, or did not prove that it knows it."""


class ScramClient:
    """One exchange: `first`, then `final` with the server's first message, then `verify` with its last."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        self._hash = _HASHES[mechanism]().name
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return (_NO_BINDING + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The answer to the server's first message; raises ScramFailed if that is not valid."""
        fields = _parse(challenge)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError) as error:
            raise ScramFailed(f"not a SCRAM challenge: {challenge!r}") from error
        if not nonce.startswith(self._nonce) or not 0 < iterations <= _MAX_ITERATIONS:
            raise ScramFailed("the server's nonce or its number of iterations is not valid")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        signed = ",".join((self._bare, challenge.decode(), without_proof)).encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, last: bytes) -> None:
        """Check the server's last message: raises ScramFailed unless it knows the password too."""
        fields = _parse(last)
        if "e" in fields:
            raise ScramFailed(fields["e"])
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise ScramFailed("the server did not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _parse(message: bytes) -> dict[str, str]:
    parts = (part.partition("=") for part in message.decode("utf-8", "replace").split(","))
    return {name: value for name, _, value in parts}
