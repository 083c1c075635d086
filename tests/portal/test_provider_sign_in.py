"""Sign-in at an identity provider: the answer must belong to this sign-in and this browser, and be recent."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.issuers import ISSUER, OWNER_ID, a_trusted_issuer, claims, forged, token
from hubmere.model.errors import Refusal
from hubmere.model.security.roles import READER, PrincipalType, RoleAssignment
from hubmere.model.security.sign_in import SignInFailed, SignInTokens
from hubmere.portal.sign_in.logins import NotSignedIn, SignedOut
from hubmere.portal.sign_in.provider_sign_in import LIFETIME_S, MAX_PENDING, Person, ProviderSignIns
from hubmere.portal.sign_in.renewals import Renewals
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
        self.refresh_token = ""
        self.refreshed: list[str] = []
        self.refresh_changes: dict[str, Any] = {}
        self.is_refusing = False
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
        return SignInTokens(
            access_token=token(claims(**times)),
            id_token=token(claims(**id_claims)),
            refresh_token=self.refresh_token,
        )

    async def refresh(self, refresh_token: str) -> SignInTokens:
        self.refreshed.append(refresh_token)
        if self.is_refusing:
            raise SignInFailed("the refresh token was revoked")
        now_s = self._harness.clock.now_ms() // 1000
        fresh = {"iat": now_s, "nbf": now_s, "exp": now_s + 3600, **self.refresh_changes}
        return SignInTokens(access_token=token(claims(**fresh)), id_token="", refresh_token=f"{refresh_token}+")


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
    """The verifier is that of the challenge (RFC 7636, 4.6), and the requested page is kept."""
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
    """The answer of another browser neither signs in nor ends the sign-in of the right browser."""
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
    """The sign-in page says which of them it was."""
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


# --- renewal ---------------------------------------------------------------------------------------------------------


class RenewalHarness:
    """A person with a role who has signed in, and the renewals of the portal."""

    def __init__(self, given: SignInHarness, refresh_token: str = "refresh") -> None:
        self.harness, self.provider = given.harness, given.provider
        self.provider.refresh_token = refresh_token
        self.renewals = Renewals(self.harness.broker, self.harness.clock)
        self.person = given.finish(given.begin())
        role = RoleAssignment(
            namespace=self.harness.catalog.view.namespace("hubmere").name,
            name="0d4f4e0a-7f0e-4d43-8c2a-52c6d1c9a9d7",
            role_id=READER.id,
            principal_id=OWNER_ID,
            principal_type=PrincipalType.USER,
        )
        self.harness.do(lambda done: self.harness.manager.assign_role(role, self.harness.actor(), done))
        cookie = self.harness.logins.sign_in_person(self.person.access_token, "anna", "127.0.0.1", *self.times)
        found = self.harness.logins.find(cookie, self.harness.clock.monotonic())
        assert found is not None
        self.login = found
        self.renewals.follow(found, self.person.provider, self.person.refresh_token, "127.0.0.1")

    @property
    def times(self) -> tuple[float, float]:
        return self.harness.clock.monotonic(), self.harness.clock.now_ms() / 1000

    def request(self) -> None:
        """A request of the browser; raises SignedOut."""
        asyncio.run(self.renewals.ensure(self.login))
        self.login.caller(*self.times)


def test_login_is_renewed_before_its_token_expires(provider_sign_in: SignInHarness) -> None:
    """The person notices nothing, for as long as the provider agrees; a new refresh token replaces the old one."""
    given = RenewalHarness(provider_sign_in)
    given.request()
    assert given.provider.refreshed == []

    for _ in range(3):
        given.harness.clock.advance(3600 - 30)
        given.request()

    assert given.provider.refreshed == ["refresh", "refresh+", "refresh++"]


def test_expired_login_is_renewed_by_the_next_request(provider_sign_in: SignInHarness) -> None:
    """The browser was closed meanwhile."""
    given = RenewalHarness(provider_sign_in)
    given.harness.clock.advance(3700)

    given.request()

    assert given.login.is_open


def test_open_page_starts_the_renewal(provider_sign_in: SignInHarness) -> None:
    """It sends no requests, but asks its login every second."""
    given = RenewalHarness(provider_sign_in)
    given.harness.clock.advance(3600 - 30)

    async def refresh_page() -> None:
        given.login.caller(*given.times)
        given.login.caller(*given.times)
        await asyncio.sleep(0)
        await given.renewals.stop()

    asyncio.run(refresh_page())
    given.harness.clock.advance(60)

    given.login.caller(*given.times)
    assert given.provider.refreshed == ["refresh"]


@pytest.mark.parametrize("what", ["no refresh token", "refused", "another person", "signed out"])
def test_login_that_cannot_be_renewed_ends_with_its_token(provider_sign_in: SignInHarness, what: str) -> None:
    """The sign-in page says why, and its link leads back to the same page."""
    given = RenewalHarness(provider_sign_in, "" if what == "no refresh token" else "refresh")
    given.provider.is_refusing = what == "refused"
    given.provider.refresh_changes = {"oid": "2" * 36} if what == "another person" else {}
    if what == "signed out":
        given.login.sign_out()
    given.harness.clock.advance(3700)

    with pytest.raises(SignedOut):
        given.request()

    assert ("has signed out" if what == "signed out" else "has expired") in given.login.end_reason.replace(
        "have", "has"
    )
    assert len(given.provider.refreshed) == (what in ("refused", "another person"))


def test_login_is_not_renewed_without_a_role(provider_sign_in: SignInHarness) -> None:
    """A renewal must not undo a deleted role assignment."""
    given = RenewalHarness(provider_sign_in)
    [made] = given.harness.catalog.view.role_assignments("hubmere")
    given.harness.do(lambda done: given.harness.manager.delete_role_assignment(made, given.harness.actor(), done))
    given.harness.clock.advance(3600 - 30)

    with pytest.raises(SignedOut):
        given.request()

    assert "no role" in given.login.end_reason


def test_forged_access_tokens_sign_nobody_in(provider_sign_in: SignInHarness) -> None:
    """A provider, or somebody in between, might answer with any of them."""
    harness = provider_sign_in.harness
    RenewalHarness(provider_sign_in)
    times = harness.clock.monotonic(), harness.clock.now_ms() / 1000
    for text in forged(int(times[1])).values():
        with pytest.raises(Refusal):
            harness.logins.sign_in_person(text, "anna", "127.0.0.1", *times)
