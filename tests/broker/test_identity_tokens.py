"""Tokens of OAuth issuers: which are accepted, which are refused, and when keys are fetched."""

from collections.abc import Callable, Collection

import pytest

from broker.issuers import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    OWNER_ID,
    a_trusted_issuer,
    claims,
    ec_key,
    ed_key,
    forged,
    jwks,
    rsa_key,
    token,
)
from hubmere.broker.identity.identities import MANAGEMENT_AUDIENCES, Identities
from hubmere.broker.identity.keys import (
    MAX_AGE_S,
    MIN_REFRESH_S,
    REFRESH_S,
    IssuerKeys,
    KeysPending,
    MalformedKeys,
    read_key_set,
    read_pem,
)
from hubmere.broker.identity.tokens import TrustedIssuer
from hubmere.model.errors import (
    ExpiredToken,
    InvalidAudience,
    InvalidIssuer,
    InvalidSignature,
    KeysUnavailable,
    MalformedToken,
    Refusal,
    TokenNotYetValid,
    UnsupportedToken,
)


def identities(*issuers: TrustedIssuer, **more: object) -> Identities:
    return Identities(issuers or (a_trusted_issuer(),), **more)  # type: ignore[arg-type]


def verify(
    text: str, known: Identities | None = None, now_s: float = NOW_S, **more: Collection[str]
) -> tuple[str, int]:
    """The id of the identity, and the expiry of the token."""
    is_ours: Callable[[str], bool] = "hubmere.example.org".__eq__
    identity, expiry = (known or identities()).verify(text, "hubmere", is_ours, now_s, **more)
    return identity.id, expiry


@pytest.mark.parametrize(
    "audience", [AUDIENCE, AUDIENCE + "/", "https://hubmere.example.org", "sb://hubmere.example.org/"]
)
def test_token_for_the_audience_of_the_service_or_of_the_namespace_is_accepted(audience: str) -> None:
    """Libraries request the scope of the service, Kafka clients that of the namespace."""
    assert verify(token(claims(aud=[audience, "something-else"]))) == (OWNER_ID, NOW_S + 3600)


@pytest.mark.parametrize("what", forged())
def test_forged_token_is_refused(what: str) -> None:
    """These are known attacks on token validators."""
    text = forged()[what]

    with pytest.raises(Refusal) as refusal:
        verify(text)

    assert text[:40] not in refusal.value.text()
    assert text[-40:] not in refusal.value.text()


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("another key under a known id", InvalidSignature),
        ("an unknown key", InvalidSignature),
        ("an HMAC with the public key", MalformedToken),
        ("another audience", InvalidAudience),
        ("another issuer", InvalidIssuer),
        ("expired", ExpiredToken),
        ("not valid yet", TokenNotYetValid),
        ("huge", MalformedToken),
        ("nested", MalformedToken),
        ("duplicate claims", MalformedToken),
    ],
)
def test_refusal_of_a_token_names_the_reason(what: str, kind: type[Refusal]) -> None:
    """The owner of the client can act on the reason."""
    with pytest.raises(kind):
        verify(forged()[what])


def test_clock_skew_is_tolerated_in_both_directions() -> None:
    """Clocks of issuers and nodes differ."""
    known = identities(skew_s=60)

    assert verify(token(claims(exp=NOW_S - 59)), known) == (OWNER_ID, NOW_S + 1)
    assert verify(token(claims(nbf=NOW_S + 59)), known)[0] == OWNER_ID
    with pytest.raises(ExpiredToken):
        verify(token(claims(exp=NOW_S - 60)), known)
    with pytest.raises(TokenNotYetValid):
        verify(token(claims(nbf=NOW_S + 61)), known)


def test_cached_token_still_expires() -> None:
    """The signature of a verified token is not checked again, but its times are."""
    known, text = identities(), token()
    verify(text, known)

    with pytest.raises(ExpiredToken):
        verify(text, known, now_s=NOW_S + 3600)


def test_refusal_of_a_node_without_issuers_names_the_setting() -> None:
    """The reason is a missing setting, not the token."""
    with pytest.raises(UnsupportedToken):
        verify(token(), Identities())


def test_audience_of_an_issuer_applies_only_to_its_tokens() -> None:
    """A Keycloak realm has its own audience for the service."""
    known = identities(a_trusted_issuer(audiences=frozenset({"event-hubs"})))

    assert verify(token(claims(aud="event-hubs")), known)[0] == OWNER_ID
    with pytest.raises(InvalidAudience):
        verify(token(claims(aud="event-hubs")))


def test_token_for_management_cannot_be_used_for_events() -> None:
    """As in Azure, a token for ARM gives no access to events."""
    text = token(claims(aud="https://management.azure.com/"))

    assert verify(text, audiences=MANAGEMENT_AUDIENCES)[0] == OWNER_ID
    with pytest.raises(InvalidAudience):
        verify(text)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_rsa_algorithms_are_accepted(algorithm: str) -> None:
    """Every algorithm of the default list works."""
    assert verify(token(algorithm=algorithm))[0] == OWNER_ID


@pytest.mark.parametrize(("curve", "algorithm"), [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")])
def test_elliptic_curves_are_accepted_with_their_algorithm(curve: str, algorithm: str) -> None:
    """The curve belongs to the algorithm (RFC 7518, 3.4)."""
    key = ec_key(curve)
    issuer = TrustedIssuer(keys=IssuerKeys(ISSUER, read_key_set(jwks(key))))

    assert verify(token(key=key, algorithm=algorithm), identities(issuer))[0] == OWNER_ID


def test_edwards_curves_are_accepted() -> None:
    """Newer issuers sign with Ed25519, under its name in RFC 9864."""
    issuer = TrustedIssuer(keys=IssuerKeys(ISSUER, read_key_set(jwks(ed_key()))))

    assert verify(token(key=ed_key(), algorithm="Ed25519"), identities(issuer))[0] == OWNER_ID


def test_algorithm_outside_the_setting_is_refused() -> None:
    """An operator may allow fewer algorithms."""
    with pytest.raises(MalformedToken):
        verify(token(algorithm="RS256"), identities(algorithms=["ES256"]))


def test_symmetric_algorithms_are_refused() -> None:
    """Not even a setting can allow them: no key of an issuer is a shared secret."""
    with pytest.raises(MalformedToken):
        verify(forged()["an HMAC with the public key"], identities(algorithms=["HS256", "none"]))


def test_pinned_pem_key_is_used_for_every_key_id() -> None:
    """An air-gapped site has the public key of its issuer as a file."""
    issuer = TrustedIssuer(keys=IssuerKeys(ISSUER, read_pem(rsa_key().as_pem(private=False))))

    assert verify(token(header={"kid": "whatever"}), identities(issuer))[0] == OWNER_ID


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "[" * 5000, '{"keys": [{"kty": "RSA"}]}'],
)
def test_key_set_without_a_usable_key_is_refused(text: str) -> None:
    """A symmetric key in a key set is not a public key."""
    with pytest.raises(MalformedKeys):
        read_key_set(text)


# --- fetching ---------------------------------------------------------------------------------------------------------


class Fetches:
    """Counts fetches of one issuer's keys; the test completes them."""

    def __init__(self) -> None:
        self.count = 0
        self.keys = IssuerKeys(ISSUER)
        self.keys.fetch = self._start
        self.identities = Identities([TrustedIssuer(keys=self.keys)])
        self.accepted: list[str] = []
        self.refused: list[Refusal] = []

    def _start(self, _keys: IssuerKeys) -> None:
        self.count += 1

    def end(self, text: str | None, now_s: float = NOW_S) -> None:
        self.keys.on_fetched(None if text is None else read_key_set(text), now_s)

    def sign_in(self, text: str, now_s: float = NOW_S) -> None:
        """Verify a token as an endpoint does: if keys are missing, wait for them and verify again."""
        try:
            self.accepted.append(verify(text, self.identities, now_s)[0])
        except KeysPending as pending:
            pending.wait(lambda: self._again(text, now_s))
        except Refusal as refusal:
            self.refused.append(refusal)

    def _again(self, text: str, now_s: float) -> None:
        try:
            self.accepted.append(verify(text, self.identities, now_s)[0])
        except Refusal as refusal:
            self.refused.append(refusal)


def test_ten_thousand_sign_ins_with_a_cold_cache_make_one_request() -> None:
    """Many clients that connect at once cause one request to the issuer, and none of them is refused."""
    fetches = Fetches()
    deferred: list[Callable[[], None]] = []
    fetches.keys.defer = deferred.append
    text = token()

    for _ in range(10_000):
        fetches.sign_in(text)
    fetches.end(jwks())
    turns = 0
    while deferred:
        deferred.pop(0)()
        turns += 1

    assert fetches.count == 1
    assert len(fetches.accepted) == 10_000
    assert turns == 200


def test_failed_fetch_is_repeated_after_an_increasing_pause() -> None:
    """While an issuer is down, sign-ins do not send it requests."""
    fetches = Fetches()
    fetches.sign_in(token())
    fetches.end(None)

    for second in range(8):
        fetches.sign_in(token(), NOW_S + second + 0.5)
        if fetches.count > len(fetches.refused):
            fetches.end(None, NOW_S + second + 0.5)

    assert all(type(refusal) in (KeysUnavailable, KeysPending) for refusal in fetches.refused)
    assert fetches.count <= 4


def test_rotated_key_is_fetched_once_and_random_key_ids_cause_no_requests() -> None:
    """A new key id means a rotation; an attacker must not cause requests with random ids."""
    fetches = Fetches()
    fetches.sign_in(token())
    fetches.end(jwks())

    later = NOW_S + MIN_REFRESH_S + 1
    fetches.sign_in(token(key=rsa_key("second")), later)
    fetches.end(jwks(rsa_key(), rsa_key("second")), later)
    for number in range(100):
        fetches.sign_in(token(header={"kid": f"random-{number}"}), later + 1)

    assert fetches.accepted == [OWNER_ID, OWNER_ID]
    assert fetches.count == 2
    assert {type(refusal) for refusal in fetches.refused} == {InvalidSignature}


def test_removed_key_invalidates_cached_tokens() -> None:
    """An issuer removes a stolen key from its key set."""
    fetches = Fetches()
    fetches.sign_in(token())
    fetches.end(jwks())

    later = NOW_S + REFRESH_S
    lasting = token(claims(exp=NOW_S + 10 * REFRESH_S))
    fetches.sign_in(lasting, later)
    fetches.end(jwks(rsa_key("second")), later)
    fetches.sign_in(lasting, later)

    assert len(fetches.accepted) == 2
    assert [type(refusal) for refusal in fetches.refused] == [InvalidSignature]


def test_old_keys_are_used_while_the_issuer_is_down_but_not_for_ever() -> None:
    """A short outage of the issuer has no effect; after a day tokens are refused."""
    fetches = Fetches()
    fetches.sign_in(token())
    fetches.end(jwks())
    lasting = token(claims(exp=NOW_S + 10 * MAX_AGE_S))

    fetches.sign_in(lasting, NOW_S + REFRESH_S)
    fetches.end(None, NOW_S + REFRESH_S)
    fetches.sign_in(lasting, NOW_S + MAX_AGE_S - 1)
    fetches.end(None, NOW_S + MAX_AGE_S - 1)
    fetches.sign_in(lasting, NOW_S + MAX_AGE_S + 60)
    fetches.end(None, NOW_S + MAX_AGE_S + 60)

    assert len(fetches.accepted) == 3
    assert [type(refusal) for refusal in fetches.refused] == [KeysUnavailable]
