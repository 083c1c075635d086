"""Identities: from the text of a token to its holder, for one namespace or for its management."""

from collections.abc import Callable, Collection
from hashlib import sha256
from urllib.parse import urlsplit

from hubmere.broker.identity.grants import Identity
from hubmere.broker.identity.keys import ALGORITHMS
from hubmere.broker.identity.tokens import TokenVerifier, TrustedIssuer, VerifiedToken, unverified_audiences
from hubmere.model.names import fold

# Audiences of tokens for the service (reference: service 2); a path of the namespace is allowed as well.
DATA_AUDIENCE = "https://eventhubs.azure.net"
MANAGEMENT_AUDIENCES = ("https://management.azure.com", "https://management.core.windows.net")
# Storage libraries ask for tokens for this audience, whatever the name of the account is.
STORAGE_AUDIENCES = ("https://storage.azure.com",)
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
        token = self._verified(text, now_s)

        def is_accepted(audience: str) -> bool:
            plain = fold(audience.rstrip("/"))
            if plain == DATA_AUDIENCE or plain in audiences:
                return True
            return answers_to(_host(audience))

        token.require_audience(is_accepted, namespace)
        token.require_times(now_s, self._skew_s)
        return token.identity, token.expires_at_s + self._skew_s

    def _verified(self, text: str, now_s: float) -> VerifiedToken:
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
