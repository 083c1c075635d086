"""SAS tokens, keys and connection strings: which principal they give, and the order of the refusals."""

import base64
import hashlib
import hmac
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.broker.access.authentication import Access, Principal, host_names
from hubmere.broker.access.resources import Resource
from hubmere.model.entity import (
    ApplicationGroup,
    GeoAlias,
    Hub,
    KeyKind,
    Namespace,
    Rights,
)
from hubmere.model.errors import (
    ApplicationGroupDisabled,
    ClaimMissing,
    ExpiredToken,
    InvalidAudience,
    InvalidSignature,
    LocalAuthDisabled,
    MalformedToken,
    MissingToken,
    Unauthorized,
)
from hubmere.model.names import (
    alias_name,
    application_group_name,
    emulator_hub_name,
    namespace_name,
)
from hubmere.model.security.sas import Token, make_token, split_audience
from hubmere.model.spec import root_rule, with_new_key
from hubmere.store.catalog.view import CatalogView, Create, Replace, Step
from model.builders import NOW_MS, NOW_S, a_hub, a_rule

KEY = "c2VsZi1ob3N0ZWQtdGVzdC1rZXktMzItYnl0ZXMtbG9uZyE="
HOST = "ns1.servicebus.windows.net"
# The vectors of the reference (service 2.1): rule `send`, se=1893456000.
VECTORS = [
    "sr=sb%3A%2F%2Fns1.servicebus.windows.net%2Feh1&sig=1kjL%2FmchoGLqrBRSbT6fgd1OX%2BtR2B4MWibiqixkgj0%3D",
    "sr=sb%3a%2f%2fns1.servicebus.windows.net%2feh1&sig=A7y5d%2BDMnzDWosxOxpWEfsTowWYgAPMotkvO%2BR6o%2B3o%3D",
    "sr=https%3A%2F%2Fns1.servicebus.windows.net%2Feh1%2Fpublishers%2Fdev-01"
    "&sig=yl9V51exP9hUqL7mPeh6lldFbJfMVDQG06RJz4Obw%2Bc%3D",
]
EXPIRY = 1_893_456_000

NAMESPACE = Namespace(name=namespace_name("ns1234"))


class AccessHarness:
    """A namespace with the hubs `eh1`, `eh10` and `eh2`; the rule `send` on `eh1` has the key of the test vectors."""

    def __init__(self, *, takes_emulator_key: bool = False, skew_s: int = 0) -> None:
        self.view = CatalogView()
        self.namespace = replace(NAMESPACE)
        self.hub: Hub = a_hub("eh1", namespace=self.namespace)
        self.root = root_rule(self.namespace, now_ms=NOW_MS)
        self.change(Create(self.namespace), Create(self.root), Create(self.hub))
        for name in ("eh10", "eh2"):
            self.change(Create(a_hub(name, namespace=self.namespace)))
        self.rule = a_rule(self.hub, "send", Rights.SEND, primary_key=KEY)
        self.change(Create(self.rule))
        self.access = Access(
            lambda: self.view,
            host_names([HOST, "localhost", "127.0.0.1", "::1"], lambda: self.view),
            skew_s=skew_s,
            takes_emulator_key=takes_emulator_key,
        )

    def change(self, *steps: Step) -> None:
        self.view.plan(steps)

    def enter(self, token: str | None, *, now_s: float = NOW_S) -> Principal:
        return self.access.by_token(self.namespace, token, now_s)

    def hub_resource(self, hub: str = "eh1", *below: str) -> Resource:
        return Resource.of_hub(self.namespace.name, hub, *below)

    def publisher_resource(self, publisher: str) -> Resource:
        return Resource.of_hub(self.namespace.name, "eh1", "publishers", publisher, is_messages=True)


@pytest.fixture
def harness() -> AccessHarness:
    return AccessHarness()


def a_token(path: str = "/eh1", rule: str = "send", key: str = KEY, expires_at_s: int = EXPIRY) -> str:
    return make_token(f"sb://{HOST}{path}", rule, key, expires_at_s=expires_at_s)


# --- the token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS)
def test_vector_of_the_reference_is_accepted(harness: AccessHarness, vector: str) -> None:
    """Conformance: SAS 13. The signature covers the encoded resource, with upper or lower case hex digits."""
    principal = harness.enter(f"SharedAccessSignature {vector}&se={EXPIRY}&skn=send")

    assert principal.rule == "send"
    assert principal.expires_at_s == EXPIRY
    assert principal.may(Rights.SEND, harness.publisher_resource("dev-01"))


@pytest.mark.parametrize("vector", VECTORS)
def test_vector_with_one_character_flipped_is_refused(harness: AccessHarness, vector: str) -> None:
    """Conformance: SAS 13. A flipped character in the resource, signature, expiry or rule is detected."""
    text = f"SharedAccessSignature {vector}&se={EXPIRY}&skn=send"
    begin = len("SharedAccessSignature ")

    for at in range(begin, len(text)):
        # The hex digits of a percent escape may be in either case.
        flipped = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
        with pytest.raises(Unauthorized):
            harness.enter(flipped)


def test_fields_come_in_any_order_and_extra_ones_are_ignored(harness: AccessHarness) -> None:
    """Clients differ in the order of the fields; the case of the scheme does not matter."""
    fields = a_token().partition(" ")[2].split("&")

    principal = harness.enter("sharedaccesssignature " + "&".join(["x=1", *reversed(fields)]))

    assert principal.rule == "send"


def test_unencoded_resource_and_signature_are_accepted(harness: AccessHarness) -> None:
    """Samples in the documentation do not encode the host, and some scripts do not encode the signature."""
    signed = f"{HOST}\n{EXPIRY}".encode()
    key = harness.root.primary_key
    signature = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest()).decode()

    principal = harness.enter(f"SharedAccessSignature sr={HOST}&sig={signature}&se={EXPIRY}&skn={harness.root.name}")

    assert principal.rights is Rights.ALL


@pytest.mark.parametrize("scheme", ["sb://", "amqp://", "amqps://", "http://", "https://", ""])
def test_scheme_of_the_resource_does_not_matter(harness: AccessHarness, scheme: str) -> None:
    """Conformance: SAS 14."""
    token = make_token(f"{scheme}{HOST}/eh1", "send", KEY, expires_at_s=EXPIRY)

    assert harness.enter(token).may(Rights.SEND, harness.hub_resource())


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("sb%3A%2F%2FNs1.Example%2FEh1", "ns1.example", "eh1"),
        ("sb%3a%2f%2fns1.example%3a5671%2feh1%2f", "ns1.example", "eh1"),
        ("https://ns1.example:443//eh1///publishers/P/", "ns1.example", "eh1/publishers/p"),
        ("ns1.example", "ns1.example", ""),
        ("amqps%3A%2F%2F%5B%3A%3A1%5D%3A5671%2Feh1", "::1", "eh1"),
        ("sb%3A%2F%2Fh%2Feh1%2Fpublishers%2Fdev%252001", "h", "eh1/publishers/dev 01"),
        ("sb%3A%2F%2Fh%2Feh1%2Fpublishers%2Fdev+01", "h", "eh1/publishers/dev 01"),
        ("", "", ""),
    ],
)
def test_resource_is_normalized(text: str, host: str, path: str) -> None:
    """Decode, drop scheme and port, lowercase, collapse slashes (reference: service 2.2)."""
    assert split_audience(text) == (host, path)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "Bearer abc",
        "SharedAccessSignature",
        "SharedAccessSignature sr=a&sig=b&se=1",
        "SharedAccessSignature sr=a&sig=b&skn=c",
        "SharedAccessSignature sr=a&se=1&skn=c",
        "SharedAccessSignature sig=b&se=1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=soon&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=-1&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1.5&skn=c",
        "SharedAccessSignature sr=a&sig=b&se=1&skn=c&sr=d",
        f"SharedAccessSignature sr=a&sig=b&se={'9' * 19}&skn=c",
        f"SharedAccessSignature sr={'a' * 9000}&sig=b&se=1&skn=c",
    ],
)
def test_unreadable_token_is_refused_as_malformed(harness: AccessHarness, token: str) -> None:
    """The text of the refusal names the defect."""
    with pytest.raises(MalformedToken):
        harness.enter(token)


@pytest.mark.parametrize("token", [None, ""])
def test_no_token_is_a_missing_token(harness: AccessHarness, token: str | None) -> None:
    """A missing token and a wrong token are different refusals."""
    with pytest.raises(MissingToken):
        harness.enter(token)


@given(st.text())
def test_any_text_as_token_is_refused_and_nothing_else_happens(text: str) -> None:
    """An unauthenticated client may send any text; it is refused and causes no other error."""
    harness = AccessHarness()

    with pytest.raises(Unauthorized):
        harness.enter(f"SharedAccessSignature sr={text}&sig={text}&se=1893456000&skn=send")


@given(path=st.text(max_size=50), rule=st.text(min_size=1, max_size=20), key=st.text(st.characters(codec="utf-8")))
def test_generated_token_is_verified_by_its_own_key_only(path: str, rule: str, key: str) -> None:
    """The generator and the verifier of tokens agree for any text."""
    text = make_token(
        f"sb://{HOST}/{quote(path, errors='replace')}", rule.encode(errors="replace").decode(), key, expires_at_s=1
    )

    token = Token.parse(text)

    assert token.is_signed_with(key)
    assert not token.is_signed_with(key + "x")


# --- refusals in their order -----------------------------------------------------------------------------------------


def test_unknown_rule_and_wrong_key_get_the_same_error(harness: AccessHarness) -> None:
    """A client that guesses must not find out which rules exist."""
    with pytest.raises(InvalidSignature) as unknown:
        harness.enter(a_token(rule="absent"))
    with pytest.raises(InvalidSignature) as wrong:
        harness.enter(a_token(key="wrong"))

    assert unknown.value.text() == wrong.value.text()


def test_signature_is_checked_before_audience_and_expiry(harness: AccessHarness) -> None:
    """Only a holder of the key gets details about the token."""
    with pytest.raises(InvalidSignature):
        harness.enter(make_token("sb://elsewhere/eh1", "send", "wrong", expires_at_s=1))
    with pytest.raises(InvalidAudience):
        harness.enter(make_token("sb://elsewhere/eh1", "send", KEY, expires_at_s=1))
    with pytest.raises(ExpiredToken):
        harness.enter(a_token(expires_at_s=1))


def test_refusal_of_an_expired_token_names_its_expiry(harness: AccessHarness) -> None:
    """Conformance: SAS 18."""
    with pytest.raises(ExpiredToken) as refusal:
        harness.enter(a_token(), now_s=EXPIRY)

    assert "2030-01-01T00:00:00Z" in refusal.value.text()
    assert not harness.enter(a_token(), now_s=EXPIRY - 1).is_expired(EXPIRY - 1)
    assert harness.enter(a_token(), now_s=EXPIRY - 1).is_expired(EXPIRY)


def test_clock_skew_is_tolerated_if_configured() -> None:
    """The default tolerance is 0 s."""
    harness = AccessHarness(skew_s=300)

    assert harness.enter(a_token(), now_s=EXPIRY + 299).expires_at_s == EXPIRY + 300
    with pytest.raises(ExpiredToken):
        harness.enter(a_token(), now_s=EXPIRY + 300)


def test_namespace_without_local_auth_refuses_every_kind_of_key(harness: AccessHarness) -> None:
    """Conformance: SAS 21."""
    harness.namespace = replace(harness.namespace, disable_local_auth=True)
    text = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=send;SharedAccessKey={KEY}"

    with pytest.raises(LocalAuthDisabled):
        harness.enter(a_token())
    with pytest.raises(LocalAuthDisabled):
        harness.access.by_key(harness.namespace, "send", KEY)
    with pytest.raises(LocalAuthDisabled):
        harness.access.by_connection_string(harness.namespace, text, NOW_S)


# --- scope -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hub", ["eh10", "eh2"])
def test_token_of_a_hub_is_refused_for_other_hubs(harness: AccessHarness, hub: str) -> None:
    """Conformance: SAS 15. A token for `eh1` must not open `eh10`."""
    namespace_rule = a_token(rule=harness.root.name, key=harness.root.primary_key)

    for principal in (harness.enter(a_token()), harness.enter(namespace_rule)):
        with pytest.raises(InvalidAudience):
            principal.require(Rights.SEND, harness.hub_resource(hub))


def test_token_of_the_namespace_opens_every_hub(harness: AccessHarness) -> None:
    """Conformance: SAS 16. This includes hubs that do not exist yet."""
    principal = harness.enter(a_token("", harness.root.name, harness.root.primary_key))

    for hub in ("eh1", "eh10", "new"):
        principal.require(Rights.MANAGE, harness.hub_resource(hub))
    principal.require(Rights.MANAGE, Resource.of_namespace("NS1234"))


def test_rule_of_a_hub_cannot_sign_a_token_for_the_namespace(harness: AccessHarness) -> None:
    """A rule is valid for its own entity and everything below it."""
    with pytest.raises(InvalidSignature):
        harness.enter(a_token(""))
    with pytest.raises(InvalidSignature):
        harness.enter(a_token("/eh2"))


def test_token_of_a_hub_opens_everything_below_the_hub(harness: AccessHarness) -> None:
    """Rules have no scope for single consumer groups: they apply to all groups of the hub."""
    harness.change(Create(a_rule(harness.hub, "listen", Rights.LISTEN, primary_key=KEY)))

    principal = harness.enter(a_token(rule="listen"))

    principal.require(Rights.LISTEN, harness.hub_resource("EH1", "ConsumerGroups", "cg1", "Partitions", "0"))


def test_token_of_a_consumer_group_opens_its_partitions_but_not_the_hub(harness: AccessHarness) -> None:
    """The Python client authorizes the group and attaches to a partition below it."""
    harness.change(Create(a_rule(harness.hub, "listen", Rights.LISTEN, primary_key=KEY)))

    principal = harness.enter(a_token("/eh1/consumergroups/cg1", "listen"))

    principal.require(Rights.LISTEN, harness.hub_resource("eh1", "ConsumerGroups", "cg1", "Partitions", "0"))
    with pytest.raises(InvalidAudience):
        principal.require(Rights.LISTEN, harness.hub_resource("eh1", "ConsumerGroups", "cg2", "Partitions", "0"))


def test_token_of_a_publisher_opens_only_its_own_path(harness: AccessHarness) -> None:
    """Conformance: SAS 17."""
    principal = harness.enter(a_token("/eh1/publishers/a"))

    principal.require(Rights.SEND, harness.publisher_resource("A"))
    with pytest.raises(InvalidAudience):
        principal.require(Rights.SEND, harness.publisher_resource("b"))
    with pytest.raises(InvalidAudience):
        principal.require(Rights.SEND, harness.hub_resource())


def test_token_of_another_namespace_is_refused(harness: AccessHarness) -> None:
    """Even a rule with the same name and key gives no access to another namespace."""
    principal = harness.enter(a_token())

    assert not principal.covers(Resource.of_hub("another", "eh1"))


def test_rule_of_a_hub_does_not_open_a_hub_whose_name_begins_with_the_same_segment(harness: AccessHarness) -> None:
    """The emulator's file may contain hub names with a slash: the rule of `eh1` must not open `eh1/below`."""
    below = replace(a_hub("x", namespace=harness.namespace), name=emulator_hub_name("eh1/below"))
    harness.change(Create(below), Create(a_rule(below, "send", Rights.SEND, primary_key="other")))

    principal = harness.enter(a_token("/eh1/below", key="other"))

    principal.require(Rights.SEND, Resource.of_hub("ns1234", "eh1/below"))
    with pytest.raises(InvalidAudience):
        harness.enter(a_token()).require(Rights.SEND, Resource.of_hub("ns1234", "eh1/below"))


@pytest.mark.parametrize("host", [HOST, "LOCALHOST", "localhost:5671", "[::1]:5671", "ns1234.example", "shop.example"])
def test_token_is_valid_for_every_host_name_of_the_listener(harness: AccessHarness, host: str) -> None:
    """These are the name of the namespace, a paired alias, and all host names of the settings."""
    harness.change(Create(GeoAlias(namespace=harness.namespace.name, name=alias_name("shop"))))

    token = make_token(f"sb://{host}/eh1", "send", KEY, expires_at_s=EXPIRY)

    assert harness.enter(token).rule == "send"


# --- rights ----------------------------------------------------------------------------------------------------------


def test_refusal_names_the_missing_right(harness: AccessHarness) -> None:
    """Conformance: SAS 20. Runtime information needs any of the rights."""
    principal = harness.enter(a_token())

    with pytest.raises(ClaimMissing) as refusal:
        principal.require(Rights.LISTEN, harness.hub_resource())

    assert refusal.value.right == "Listen"
    principal.require(Rights.SEND | Rights.LISTEN, harness.hub_resource())


def test_listen_rule_cannot_send(harness: AccessHarness) -> None:
    """Conformance: SAS 20, for the opposite direction."""
    harness.change(Create(a_rule(harness.hub, "listen", Rights.LISTEN, primary_key=KEY)))
    principal = harness.enter(a_token(rule="listen"))

    assert not principal.may(Rights.SEND, harness.hub_resource())
    assert principal.may(Rights.SEND | Rights.LISTEN, harness.hub_resource())


def test_administrator_has_every_right() -> None:
    """The holder of the administrator's token manages all namespaces."""
    Principal.admin().require(Rights.MANAGE, Resource.of_hub("any", "hub"))

    assert not Principal.admin().is_expired(2**40)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_secondary_key_is_valid_until_it_is_regenerated(harness: AccessHarness) -> None:
    """Conformance: SAS 19. A principal that was accepted before stays valid until its token expires."""
    token = a_token(key=harness.rule.secondary_key)
    before = harness.enter(token)

    harness.change(Replace(with_new_key(harness.rule, KeyKind.SECONDARY, now_ms=NOW_MS)))

    with pytest.raises(InvalidSignature):
        harness.enter(token)
    assert harness.enter(a_token()).rule == "send"
    assert not before.is_expired(EXPIRY - 1)


def test_plain_key_gives_the_rights_of_its_rule_on_its_scope(harness: AccessHarness) -> None:
    """SASL PLAIN: the user is the name of the rule, the password is the text of the key."""
    principal = harness.access.by_key(harness.namespace, "SEND", KEY)

    assert principal.expires_at_s is None
    assert principal.may(Rights.SEND, harness.hub_resource("eh1"))
    assert not principal.may(Rights.SEND, harness.hub_resource("eh2"))


def test_rules_of_one_name_are_distinguished_by_key(harness: AccessHarness) -> None:
    """Two hubs may both have a rule `send`."""
    other = harness.view.hub("ns1234", "eh2")
    harness.change(Create(a_rule(other, "send", Rights.SEND, primary_key="second")))

    principal = harness.access.by_key(harness.namespace, "send", "second")

    assert principal.hub == "eh2"


@pytest.mark.parametrize(("rule", "key"), [("send", "wrong"), ("absent", KEY), ("send", ""), ("send", "\ud800")])
def test_wrong_plain_key_is_refused(harness: AccessHarness, rule: str, key: str) -> None:
    """The refusal is the same as for a wrong signature."""
    with pytest.raises(InvalidSignature):
        harness.access.by_key(harness.namespace, rule, key)


def test_connection_string_of_a_hub_opens_that_hub(harness: AccessHarness) -> None:
    """Kafka clients send the whole connection string as password."""
    text = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=EH1"

    principal = harness.access.by_connection_string(harness.namespace, text, NOW_S)

    assert principal.may(Rights.SEND, harness.hub_resource("eh1"))
    assert not principal.may(Rights.SEND, harness.hub_resource("eh2"))


def test_connection_string_of_the_namespace_opens_every_hub(harness: AccessHarness) -> None:
    """A rule of the namespace is found with and without an EntityPath."""
    key = harness.root.secondary_key
    text = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={harness.root.name};SharedAccessKey={key}"

    for string in (text, f"{text};EntityPath=eh1"):
        principal = harness.access.by_connection_string(harness.namespace, string, NOW_S)
        assert principal.may(Rights.LISTEN, harness.hub_resource("eh2"))


def test_connection_string_with_a_signature_is_a_token(harness: AccessHarness) -> None:
    """The service does not document this form for Kafka; Hubmere accepts it."""
    text = f"Endpoint=sb://{HOST}/;SharedAccessSignature={a_token()}"

    principal = harness.access.by_connection_string(harness.namespace, text, NOW_S)

    assert principal.expires_at_s == EXPIRY


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("nonsense", MalformedToken),
        (f"Endpoint=sb://{HOST}/", MissingToken),
        (f"Endpoint=sb://{HOST}/;SharedAccessKeyName=send;SharedAccessKey=wrong;EntityPath=eh1", InvalidSignature),
        (f"Endpoint=sb://{HOST}/;SharedAccessKeyName=send;SharedAccessKey={KEY}", InvalidSignature),
        (f"Endpoint=sb://other/;SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=eh1", InvalidAudience),
    ],
)
def test_connection_string_without_valid_proof_is_refused(
    harness: AccessHarness, text: str, refusal: type[Exception]
) -> None:
    """The refusal is the one that a token would get, and never contains the key."""
    with pytest.raises(refusal) as raised:
        harness.access.by_connection_string(harness.namespace, text, NOW_S)

    assert KEY not in str(raised.value)


EMULATOR_STRING = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
)


def test_emulator_key_is_accepted_only_in_emulator_mode() -> None:
    """The emulator's key is public."""
    emulator, node = AccessHarness(takes_emulator_key=True), AccessHarness()
    token = make_token("sb://localhost/eh1", "RootManageSharedAccessKey", "SAS_KEY_VALUE", expires_at_s=EXPIRY)

    assert emulator.enter(token).rights is Rights.ALL
    assert emulator.access.by_connection_string(emulator.namespace, EMULATOR_STRING, NOW_S).rights is Rights.ALL
    assert emulator.access.by_key(emulator.namespace, "RootManageSharedAccessKey", "SAS_KEY_VALUE").hub == ""
    with pytest.raises(InvalidSignature):
        node.enter(token)
    with pytest.raises(InvalidSignature):
        emulator.access.by_key(emulator.namespace, "send", "SAS_KEY_VALUE")


# --- publishers and application groups -------------------------------------------------------------------------------


def test_disabled_application_group_refuses_its_rule(harness: AccessHarness) -> None:
    """`isEnabled=false` refuses new connections with that rule."""
    group = ApplicationGroup(
        namespace=harness.namespace.name,
        name=application_group_name("app"),
        client_id="SASKeyName=send",
    )
    harness.change(Create(group))
    assert harness.enter(a_token()).rule == "send"

    harness.change(Replace(replace(group, is_enabled=False)))

    with pytest.raises(ApplicationGroupDisabled):
        harness.enter(a_token())
