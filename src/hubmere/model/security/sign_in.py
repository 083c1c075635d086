"""Signing in to the portal at an OpenID Connect provider: what the portal asks of a provider, and how it fails."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hubmere.model.errors import Unauthorized


class SignInFailed(Unauthorized):
    """A person could not be signed in; the text says why and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInTokens:
    """What a provider gives for an authorization code or a refresh token; it need not give a refresh token."""

    access_token: str = field(repr=False)
    id_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)


class SignInProvider(Protocol):
    """An OpenID Connect provider at which people may sign in (authorization code with PKCE, RFC 6749 and RFC 7636).

    Its methods ask the provider over the network; SignInFailed if it does not answer, or refuses.
    """

    @property
    def name(self) -> str:
        """The name on the sign-in page."""

    @property
    def issuer(self) -> str:
        """The issuer in its tokens."""

    @property
    def client_id(self) -> str:
        """The id of the portal at the provider."""

    async def authorization_url(self, parameters: Mapping[str, str]) -> str:
        """The address of the provider's sign-in page; the client and its scopes are added to the parameters."""

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> SignInTokens:
        """Exchange an authorization code for tokens."""

    async def refresh(self, refresh_token: str) -> SignInTokens:
        """Exchange a refresh token for another access token."""
