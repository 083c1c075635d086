"""JSON Web Tokens: strict parsing and the checks of header, signature and claims (RFC 7519, RFC 8725).

`joserfc` verifies the signature. Everything before that is checked here, because a token is hostile until then: its
size, its form, duplicate members, the algorithm, and that the header does not name a source of keys. Texts of
refusals never contain a part of the token.
"""

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hubmere.broker.identity.grants import Identity
from hubmere.broker.identity.keys import ALGORITHMS, IssuerKeys
from hubmere.model.errors import (
    ExpiredToken,
    InvalidAudience,
    InvalidIssuer,
    InvalidSignature,
    MalformedToken,
    TokenNotYetValid,
    UnsupportedToken,
)
from hubmere.model.names import fold

# A token with 200 groups, the most that Entra ID puts into one, has about 11 KB.
MAX_TOKEN_BYTES = 16 * 1024
MAX_KEY_ID_CHARACTERS = 256
MAX_GROUPS = 1000
MAX_AUDIENCES = 32
_MAX_ID_CHARACTERS = 256
# Far enough in the future for every honest issuer, and well inside what clocks and timers can represent.
_LAST_TIME_S = 253_402_300_799
_FORM = re.compile(r"[A-Za-z0-9_-]{1,16384}\.[A-Za-z0-9_-]{1,16384}\.[A-Za-z0-9_-]{1,4096}")
_TYPES = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")
# Members of a header that bring or name keys, or change what is signed.
_REFUSED_HEADERS = ("crit", "b64", "jku", "jwk", "x5u", "cty", "enc", "zip")

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """An issuer whose tokens are accepted; `audiences` are accepted beside those of the service.

    `id_claims` are the claims of which the first present one is the id of the holder.
    """

    keys: IssuerKeys
    audiences: frozenset[str] = frozenset()
    id_claims: tuple[str, ...] = ("oid", "sub")
    groups_claim: str = "groups"

    @property
    def issuer(self) -> str:
        """The issuer's identifier, exactly as in its tokens."""
        return self.keys.issuer


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """A token whose signature is valid. Its audience and its times are checked at each use."""

    identity: Identity
    audiences: tuple[str, ...]
    issuer: TrustedIssuer
    not_before_s: float
    expires_at_s: int
    generation: int

    @property
    def is_current(self) -> bool:
        """Whether the issuer's keys have not changed since."""
        return self.generation == self.issuer.keys.generation

    def require_times(self, now_s: float, skew_s: int) -> None:
        """Refuse an expired token, or one that is not valid yet."""
        if now_s >= self.expires_at_s + skew_s:
            raise ExpiredToken(self.expires_at_s)
        if now_s < self.not_before_s - skew_s:
            raise TokenNotYetValid(int(self.not_before_s))

    def require_audience(self, is_accepted: Callable[[str], bool], resource: str) -> None:
        """Refuse a token that is for another audience."""
        if not any(one in self.issuer.audiences or is_accepted(one) for one in self.audiences):
            raise InvalidAudience("another audience", resource)


class TokenVerifier:
    """Verifies tokens of some issuers. Thread rule: the owner's thread only."""

    __slots__ = ("_algorithms", "_issuers")

    def __init__(self, issuers: Collection[TrustedIssuer], algorithms: Collection[str]) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        self._algorithms = frozenset(algorithms) & ALGORITHMS.keys()

    @property
    def issuers(self) -> Collection[TrustedIssuer]:
        """The issuers whose tokens are accepted."""
        return self._issuers.values()

    def trust(self, issuer: TrustedIssuer) -> None:
        """Accept the tokens of one more issuer."""
        self._issuers[issuer.issuer] = issuer

    def verify(self, text: str, now_s: float) -> VerifiedToken:
        """Verify form, algorithm, issuer and signature; the caller checks audience and times."""
        if not self._issuers:
            raise UnsupportedToken("Bearer")
        header, claims = _parse(text)
        algorithm, key_id = self._check_header(header)
        named = claims.get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise InvalidIssuer
        _verify_signature(text, issuer.keys, key_id, algorithm, now_s)
        return VerifiedToken(
            identity=_identity(issuer, claims),
            audiences=_audiences(claims),
            issuer=issuer,
            not_before_s=_time(claims, "nbf", default=0.0),
            expires_at_s=int(_time(claims, "exp")),
            generation=issuer.keys.generation,
        )

    def _check_header(self, header: Claims) -> tuple[str, str | None]:
        algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise MalformedToken(f"The algorithm of the token is not one of {', '.join(sorted(self._algorithms))}.")
        if any(name in header for name in _REFUSED_HEADERS):
            raise MalformedToken(f"The header of the token must not have {', '.join(_REFUSED_HEADERS)}.")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise MalformedToken("The type of the token is not JWT.")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID_CHARACTERS):
            raise MalformedToken(f"The key id of the token is a text of at most {MAX_KEY_ID_CHARACTERS} characters.")
        return algorithm, key_id


def unverified_audiences(text: str) -> tuple[str, ...]:
    """The audiences that a token claims to have; raises MalformedToken."""
    return _audiences(_parse(text)[1])


def unverified_claims(text: str) -> Claims:
    """The claims of a token, whose signature the caller verifies; raises MalformedToken."""
    return _parse(text)[1]


def _parse(text: str) -> tuple[Claims, Claims]:
    if len(text) > MAX_TOKEN_BYTES:
        raise MalformedToken(f"A token has at most {MAX_TOKEN_BYTES} bytes.")
    if _FORM.fullmatch(text) is None:
        raise MalformedToken("A token has three parts in base64url, separated by dots.")
    header, claims, _ = text.split(".")
    return _read_object(header), _read_object(claims)


def _read_object(part: str) -> Claims:
    try:
        found = json.loads(
            urlsafe_b64decode(part + "=" * (-len(part) % 4)),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise MalformedToken(
            "The header and the claims of a token are JSON objects without duplicate members."
        ) from None
    if not isinstance(found, dict):
        raise MalformedToken("The header and the claims of a token are JSON objects without duplicate members.")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate members")
    return found


def _refuse_constant(_name: str) -> Any:
    raise ValueError("not a number")


def _verify_signature(text: str, keys: IssuerKeys, key_id: str | None, algorithm: str, now_s: float) -> None:
    from joserfc import jws
    from joserfc.errors import JoseError

    for trusted in keys.find(key_id, algorithm, now_s):
        try:
            jws.deserialize_compact(text, trusted.key, algorithms=[algorithm])
        except (JoseError, ValueError, TypeError):
            continue
        return
    raise InvalidSignature


def _time(claims: Claims, name: str, default: float | None = None) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise MalformedToken(f"The claim '{name}' is a time in seconds since 1970.")
    return min(max(float(value), 0.0), float(_LAST_TIME_S))


def _audiences(claims: Claims) -> tuple[str, ...]:
    given = claims.get("aud")
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_AUDIENCES or not _are_texts(listed):
        raise MalformedToken("The claim 'aud' is a text or a list of texts.")
    return tuple(listed)


def _identity(issuer: TrustedIssuer, claims: Claims) -> Identity:
    own = next((claims[name] for name in issuer.id_claims if name in claims), None)
    if not isinstance(own, str) or not 1 <= len(own) <= _MAX_ID_CHARACTERS:
        raise MalformedToken(f"The token has no claim {' or '.join(issuer.id_claims)} with the id of its holder.")
    groups = claims.get(issuer.groups_claim, [])
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or not _are_texts(groups):
        raise MalformedToken(f"The claim '{issuer.groups_claim}' is a list of at most {MAX_GROUPS} texts.")
    application = next((claims[name] for name in ("appid", "azp", "client_id") if name in claims), "")
    if not isinstance(application, str):
        application = ""
    ids = {fold(own), *map(fold, groups)}
    if application and _is_application_itself(claims, application):
        ids.add(fold(application))
    return Identity(issuer=issuer.issuer, id=own, ids=frozenset(ids), application=application)


def _is_application_itself(claims: Claims, application: str) -> bool:
    """Whether an application signed in as itself; a user who signs in through it does not get its roles."""
    subject = claims.get("sub")
    return (
        claims.get("idtyp") == "app" or subject == application or (subject is not None and subject == claims.get("oid"))
    )


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
