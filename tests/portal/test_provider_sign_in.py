"""Signing in at an identity provider: what comes back must belong to this sign-in, to this browser, and to now."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.issuers import ISSUER, OWNER_ID, a_trusted_issuer, claims, token
from hubmere.model.roles import READER, PrincipalType, RoleAssignment
from hubmere.model.sign_in import SignInFailed, SignInTokens
from hubmere.portal.logins import NotSignedIn, SignedOut
from hubmere.portal.provider_sign_in import LIFETIME_S, MAX_PENDING, Person, ProviderSignIns
from portal.builders import PortalHarness

CLIENT = "the-portal"


class FakeProvider:
    """A provider that signs tokens that the test describes."""

    name, issuer, client_id = "company", ISSUER, CLIENT

    def __init__(self, harness: PortalHarness) -> None:
        self._harness = harness
        self.asked: Mapping[str, str] = {}
        self.verifiers: list[str] = []
        self.changes: dict[str, Any] = {}
        harness.broker.access.identities.trust(a_trusted_issuer())

    async def authorization_url(self, parameters: Mapping[str, str]) -> str:
        self.asked = parameters
        return f"https://login.example.org/authorize?state={parameters['state']}"

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> SignInTokens:
        assert (code, redirect_uri) == ("code", "https://portal/callback")
        self.verifiers.append(verifier)
        now_s = self._harness.clock.now_ms() // 1000
        times = {"iat": now_s, "nbf": now_s, "exp": now_s + 3600}
        id_claims = {"aud": CLIENT, "nonce": self.asked["nonce"], "preferred_username": "anna", **times, **self.changes}
        return SignInTokens(access_token=token(claims(**times)), id_token=token(claims(**id_claims)))


class SignInHarness:
    """A portal with one provider."""

    def __init__(self, harness: PortalHarness) -> None:
        self.harness = harness
        self.provider = FakeProvider(harness)
        self.sign_ins = ProviderSignIns(harness.broker, harness.clock, [self.provider])

    def begin(self) -> str:
        _, browser = asyncio.run(self.sign_ins.begin("company", "https://portal/callback", "/n/hubmere"))
        return browser

    def finish(self, browser: str, **answer: str) -> Person:
        given = {"state": self.provider.asked["state"], "code": "code", **answer}
        return asyncio.run(self.sign_ins.finish(given, browser))


@pytest.fixture
def provider_sign_in(harness: PortalHarness) -> SignInHarness:
    return SignInHarness(harness)


def test_person_is_named_by_the_id_token(provider_sign_in: SignInHarness) -> None:
    """The verifier is the one of the challenge (RFC 7636, 4.6), and the wanted page is kept."""
    person = provider_sign_in.finish(provider_sign_in.begin())

    assert (person.name, person.next_page) == ("anna", "/n/hubmere")
    assert provider_sign_in.provider.asked["code_challenge_method"] == "S256"
    assert len(provider_sign_in.provider.verifiers[0]) >= 43


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another-client"}, "is not valid"),
        ({"iss": "https://evil.example.org"}, "is not valid"),
        ({"exp": 1_000_000_000}, "is not valid"),
    ],
)
def test_id_token_of_another_sign_in_is_refused(
    provider_sign_in: SignInHarness, changes: dict[str, Any], reason: str
) -> None:
    """OpenID Connect Core 1.0, 3.1.3.7."""
    browser = provider_sign_in.begin()
    provider_sign_in.provider.changes = changes

    with pytest.raises(SignInFailed, match=reason):
        provider_sign_in.finish(browser)


def test_state_is_accepted_once_in_time_and_from_the_browser_that_began(provider_sign_in: SignInHarness) -> None:
    """Somebody else's answer neither signs in nor ends the sign-in of the right browser."""
    browser = provider_sign_in.begin()
    with pytest.raises(SignInFailed, match="another browser"):
        provider_sign_in.finish("somebody else")
    with pytest.raises(SignInFailed, match="expired"):
        provider_sign_in.finish(browser, state="unknown")
    provider_sign_in.finish(browser)
    with pytest.raises(SignInFailed, match="used before"):
        provider_sign_in.finish(browser)

    late = provider_sign_in.begin()
    provider_sign_in.harness.clock.advance(LIFETIME_S + 1)
    with pytest.raises(SignInFailed, match="expired"):
        provider_sign_in.finish(late)


def test_number_of_sign_ins_is_bounded(provider_sign_in: SignInHarness) -> None:
    """Anybody may open the sign-in page."""
    for _ in range(MAX_PENDING + 10):
        provider_sign_in.begin()

    assert len(provider_sign_in.sign_ins._pending) <= MAX_PENDING


def test_login_of_a_person_ends_with_the_token_and_with_the_last_role(provider_sign_in: SignInHarness) -> None:
    """And says which of them it was."""
    harness = provider_sign_in.harness
    access_token = provider_sign_in.finish(provider_sign_in.begin()).access_token

    def sign_in() -> str:
        times = harness.clock.monotonic(), harness.clock.now_ms() / 1000
        return harness.logins.sign_in_person(access_token, "anna", "127.0.0.1", *times)

    with pytest.raises(NotSignedIn, match=f"no role is assigned to you here.*{OWNER_ID}"):
        sign_in()
    namespace = harness.catalog.view.namespace("hubmere").name
    role = RoleAssignment(
        namespace=namespace,
        name="0d4f4e0a-7f0e-4d43-8c2a-52c6d1c9a9d7",
        role_id=READER.id,
        principal_id=OWNER_ID,
        principal_type=PrincipalType.USER,
    )
    harness.do(lambda done: harness.manager.assign_role(role, harness.actor(), done))
    first = harness.logins.find(sign_in(), harness.clock.monotonic())
    assert first is not None
    [made] = harness.catalog.view.role_assignments("hubmere")
    harness.do(lambda done: harness.manager.delete_role_assignment(made, harness.actor(), done))
    with pytest.raises(SignedOut):
        first.caller(harness.clock.monotonic(), harness.clock.now_ms() / 1000)
    assert "no role" in first.end_reason

    harness.do(lambda done: harness.manager.assign_role(role, harness.actor(), done))
    second = harness.logins.find(sign_in(), harness.clock.monotonic())
    assert second is not None
    harness.clock.advance(3700)
    with pytest.raises(SignedOut):
        second.caller(harness.clock.monotonic(), harness.clock.now_ms() / 1000)
    assert "has expired" in second.end_reason
