"""Identities: from the text of a token to its holder, for one namespace or for its management."""

import hmac
from collections.abc import Callable, Collection
from hashlib import sha256
from urllib.parse import urlsplit

from hubmere.broker.identity.grants import Identity
from hubmere.broker.identity.keys import ALGORITHMS
from hubmere.broker.identity.tokens import (
    TokenVerifier,
    TrustedIssuer,
    VerifiedToken,
    unverified_audiences,
    unverified_claims,
)
from hubmere.model.errors import InvalidAudience, InvalidIssuer, MalformedToken
from hubmere.model.names import fold

# Audiences of tokens for the service (reference: service 2); a path of the namespace is allowed as well.
DATA_AUDIENCE = "https://eventhubs.azure.net"
MANAGEMENT_AUDIENCES = ("https://management.azure.com", "https://management.core.windows.net")
# Storage libraries ask for tokens for this audience, whatever the name of the account is.
STORAGE_AUDIENCES = ("https://storage.azure.com",)
# Claims with the name of a person, for display.
_NAME_CLAIMS = ("preferred_username", "upn", "email", "name")
_MAX_NAME_CHARACTERS = 128
_SCHEMES = ("https", "http", "sb", "amqps")
# Verified tokens that are kept: one per client that is sending now; each entry is about 1 KB.
_MAX_KNOWN_TOKENS = 4096


class Identities:
    """The issuers that a node trusts. Thread rule: the owner's thread only.

    `skew_s` is how far the clocks of issuers may be off.
    """

    __slots__ = ("_known", "_skew_s", "_verifier")

    def __init__(
        self,
        issuers: Collection[TrustedIssuer] = (),
        *,
        algorithms: Collection[str] = tuple(ALGORITHMS),
        skew_s: int = 0,
    ) -> None:
        self._verifier = TokenVerifier(issuers, algorithms)
        self._skew_s = skew_s
        # By digest, so that no token stays in memory.
        self._known: dict[bytes, VerifiedToken] = {}

    @property
    def issuers(self) -> Collection[TrustedIssuer]:
        """The issuers whose tokens are accepted."""
        return self._verifier.issuers

    def trust(self, issuer: TrustedIssuer) -> None:
        """Accept the tokens of one more issuer."""
        self._verifier.trust(issuer)

    def verify(
        self,
        text: str,
        namespace: str,
        answers_to: Callable[[str], bool],
        now_s: float,
        audiences: Collection[str] = (),
    ) -> tuple[Identity, int]:
        """The holder of a token, and when the token expires with the skew.

        `answers_to` says which hosts are ours; `audiences` are accepted beside them and the service's own.
        """
        token = self._verify(text, now_s)

        def is_accepted(audience: str) -> bool:
            plain = fold(audience.rstrip("/"))
            if plain == DATA_AUDIENCE or plain in audiences:
                return True
            return answers_to(_host(audience))

        token.require_audience(is_accepted, namespace)
        token.require_times(now_s, self._skew_s)
        return token.identity, token.expires_at_s + self._skew_s

    def verify_id_token(self, text: str, issuer: str, client_id: str, nonce: str, now_s: float) -> str:
        """The name of the person in an ID token (OpenID Connect Core 1.0, 3.1.3.7); raises what is wrong with it."""
        token = self._verifier.verify(text, now_s)
        if token.issuer.issuer != issuer:
            raise InvalidIssuer
        if client_id not in token.audiences:
            raise InvalidAudience("another client", client_id)
        token.require_times(now_s, self._skew_s)
        claims = unverified_claims(text)
        given = claims.get("nonce")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(errors="replace"), nonce.encode()):
            raise MalformedToken("The ID token belongs to another sign-in: its nonce is not the one that was sent.")
        names = (claims.get(name) for name in _NAME_CLAIMS)
        found = next((name for name in names if isinstance(name, str) and name), token.identity.id)
        return found[:_MAX_NAME_CHARACTERS]

    def id_of(self, text: str) -> str:
        """The id of the holder of a token that was verified before; empty for any other."""
        known = self._known.get(sha256(text.encode(errors="replace")).digest())
        return "" if known is None else known.identity.id

    def _verify(self, text: str, now_s: float) -> VerifiedToken:
        digest = sha256(text.encode(errors="replace")).digest()
        known = self._known.get(digest)
        if known is not None:
            known.issuer.keys.refresh(now_s)
            if known.is_current:
                return known
        token = self._verifier.verify(text, now_s)
        if len(self._known) >= _MAX_KNOWN_TOKENS:
            self._known.pop(next(iter(self._known)))
        self._known[digest] = token
        return token

    def audience_host(self, text: str) -> str | None:
        """The host that a token names as its audience, before anything is verified; None if it names none."""
        if not self._verifier.issuers:
            return None
        return next((host for audience in unverified_audiences(text) if (host := _host(audience))), None)


def _host(audience: str) -> str:
    """The host of an audience that is an address of a namespace; empty for any other."""
    try:
        parts = urlsplit(audience)
        return (parts.hostname or "") if parts.scheme in _SCHEMES else ""
    except ValueError:
        return ""
