"""The signing keys of one issuer: when they are fetched, how long they are used, and which sign-ins wait for them.

Fetching needs the network, so it is done elsewhere: `fetch` is set by the node. Algorithm:

1. `find` returns the keys that fit a token. Without a fitting key it starts a fetch, unless one is running or the
   pause after the last one is not over, and raises `KeysPending`.
2. The endpoint catches it, calls `wait`, and tries again when it is called back. All sign-ins wait for the same fetch.
3. `on_fetched` stores the new keys, or the failure, and calls back all waiting sign-ins, in slices.
4. After an unknown key id (rotation) the keys are fetched again, at most once in `MIN_REFRESH_S`. Failures are repeated
   after a pause that doubles up to `MAX_PAUSE_S`. Keys older than `REFRESH_S` are fetched again in the background and
   stay in use meanwhile, at most for `MAX_AGE_S`.

Time is an argument, in seconds since 1970.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubmere.model.errors import InvalidSignature, KeysUnavailable

if TYPE_CHECKING:
    from joserfc.jwk import Key

REFRESH_S = 3600.0
MAX_AGE_S = 86_400.0
MIN_REFRESH_S = 30.0
MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
# More than the connections of a node; each waits with a few requests at most.
MAX_WAITING = 100_000
# Callbacks in one turn of the loop: each verifies a signature, which takes some 60 µs.
SLICE_WAITING = 50
# Issuers have two or three keys, large ones a dozen.
MAX_KEYS = 100
MIN_RSA_BITS = 2048

# The kind of key, and for elliptic curves the curve, of each algorithm (RFC 7518, 3.1; RFC 9864).
ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "Ed25519": ("OKP", "Ed25519"),
}


class MalformedKeys(ValueError):
    """A key set that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key of an issuer; `id` is None for a pinned key that fits every key id."""

    key: "Key"
    id: str | None
    kind: str
    curve: str | None
    algorithm: str | None

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Whether the key may verify a token with this header."""
        if key_id is not None and self.id is not None and key_id != self.id:
            return False
        if self.algorithm is not None and self.algorithm != algorithm:
            return False
        return (self.kind, self.curve) == ALGORITHMS[algorithm]


def read_key_set(text: str | bytes) -> tuple[TrustedKey, ...]:
    """The public keys for signatures in a JWK set (RFC 7517); other keys in it are ignored."""
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedKeys("a JWK set is a JSON object with a list 'keys'") from None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise MalformedKeys(f"a JWK set has at most {MAX_KEYS} keys")
    found = [key for entry in entries if isinstance(entry, dict) and (key := _read_key(entry)) is not None]
    if not found:
        raise MalformedKeys("the JWK set has no public key for signatures")
    return tuple(found)


def read_pem(text: bytes) -> tuple[TrustedKey, ...]:
    """The public key of a PEM file, or of a certificate in one; it fits every key id."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    try:
        is_certificate = b"BEGIN CERTIFICATE" in text
        public = load_pem_x509_certificate(text).public_key() if is_certificate else load_pem_public_key(text)
        named = type(public).__name__
        kind = RSAKey if "RSA" in named else ECKey if "EllipticCurve" in named else OKPKey
        entry = kind.import_key(_to_pem(public)).as_dict(private=False)
    except (JoseError, ValueError, TypeError, UnsupportedAlgorithm):
        raise MalformedKeys("the file has no public key or certificate in PEM form") from None
    key = _read_key({name: value for name, value in entry.items() if name != "kid"})
    if key is None:
        raise MalformedKeys(f"the key is not RSA with {MIN_RSA_BITS} bits or more, nor an elliptic curve")
    return (key,)


def _to_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _read_key(entry: dict[str, Any]) -> TrustedKey | None:
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    classes: dict[object, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    kind, key_id, curve = entry.get("kty"), entry.get("kid"), entry.get("crv")
    if kind not in classes or entry.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
        return None
    names = ("kty", "n", "e", "crv", "x", "y")
    try:
        # Only the public members are kept, also of a set with private keys.
        key = classes[kind].import_key({name: entry[name] for name in names if name in entry})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and _rsa_bits(entry) < MIN_RSA_BITS:
        return None
    algorithm = entry.get("alg")
    if algorithm is not None and algorithm not in ALGORITHMS:
        return None
    return TrustedKey(key, key_id, str(kind), curve if isinstance(curve, str) else None, algorithm)


def _rsa_bits(entry: dict[str, Any]) -> int:
    return len(entry["n"]) * 6


# Starts fetching the keys of an issuer; `IssuerKeys.on_fetched` is called with the result.
Fetch = Callable[["IssuerKeys"], None]


class KeysPending(KeysUnavailable):
    """The keys of the issuer are being fetched. `wait`, then try again; clients that cannot wait get the refusal."""

    def __init__(self, keys: "IssuerKeys") -> None:
        super().__init__(keys.issuer)
        self._keys = keys

    def wait(self, on_ready: Callable[[], None]) -> "KeyWait | None":
        """Call back once the fetch has ended, successfully or not; returns None if it has ended already."""
        return self._keys.wait(on_ready)


class KeyWait:
    """One sign-in that waits for keys."""

    __slots__ = ("_on_ready",)

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready: Callable[[], None] | None = on_ready

    def cancel(self) -> None:
        """Wait no longer: the client is gone."""
        self._on_ready = None

    def end(self) -> None:
        """The fetch has ended: call back, once."""
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()


def _at_once(work: Callable[[], None]) -> None:
    work()


class IssuerKeys:
    """The keys of one issuer. Thread rule: the owner's thread only.

    `pinned` keys never change and are never fetched.
    """

    __slots__ = (
        "_fetched_at", "_is_fetching", "_keys", "_pause_s", "_pinned", "_retry_at", "_waiting", "defer", "fetch",
        "generation", "issuer",
    )  # fmt: skip

    def __init__(self, issuer: str, pinned: Sequence[TrustedKey] | None = None) -> None:
        self.issuer = issuer
        self._pinned = pinned is not None
        self._keys: tuple[TrustedKey, ...] = tuple(pinned or ())
        self._fetched_at = 0.0
        self._retry_at = 0.0
        self._pause_s = MIN_PAUSE_S
        self._is_fetching = False
        self._waiting: list[KeyWait] = []
        # Grows with every change of the keys: tokens must then be verified again.
        self.generation = 0
        self.fetch: Fetch | None = None
        self.defer: Callable[[Callable[[], None]], object] = _at_once

    def find(self, key_id: str | None, algorithm: str, now_s: float) -> list[TrustedKey]:
        """The keys that may verify a token with this header; raises KeysPending or the refusal."""
        self.refresh(now_s)
        found = [key for key in self._keys if key.fits(key_id, algorithm)]
        if found:
            return found
        if not self._pinned and (self._is_fetching or self._start(now_s)):
            raise KeysPending(self)
        raise InvalidSignature if self._keys else KeysUnavailable(self.issuer)

    def refresh(self, now_s: float) -> None:
        """Fetch keys again after a time; drop keys that could not be fetched for too long."""
        if self._pinned or not self._keys:
            return
        age_s = now_s - self._fetched_at
        if age_s >= MAX_AGE_S:
            self._keys = ()
            self.generation += 1
        elif age_s >= REFRESH_S and not self._is_fetching:
            self._start(now_s)

    def _start(self, now_s: float) -> bool:
        """Start a fetch if the pause after the last one is over; a clock that was set back ends the pause, too."""
        if self.fetch is None or self._retry_at - MAX_PAUSE_S <= now_s < self._retry_at:
            return False
        self._is_fetching = True
        self.fetch(self)
        return True

    def wait(self, on_ready: Callable[[], None]) -> KeyWait | None:
        """Call back when the running fetch has ended; at once if none is running or too many wait."""
        waiting = KeyWait(on_ready)
        if self._is_fetching and len(self._waiting) < MAX_WAITING:
            self._waiting.append(waiting)
            return waiting
        waiting.end()
        return None

    def on_fetched(self, keys: tuple[TrustedKey, ...] | None, now_s: float) -> None:
        """The fetch has ended: with keys, or with None after a failure."""
        self._is_fetching = False
        if keys is None:
            self._retry_at = now_s + self._pause_s
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
        else:
            self._keys, self._fetched_at = keys, now_s
            self._retry_at, self._pause_s = now_s + MIN_REFRESH_S, MIN_PAUSE_S
            self.generation += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.defer(lambda: self._release(waiting, 0))

    def _release(self, waiting: list[KeyWait], start: int) -> None:
        end = start + SLICE_WAITING
        for each in waiting[start:end]:
            each.end()
        if end < len(waiting):
            self.defer(lambda: self._release(waiting, end))
