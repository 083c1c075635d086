"""A token covers its resource and everything below it, by path segments, in any spelling."""

import base64
import hmac
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.test_access import HOST, AccessHarness
from hubmere.broker.access.authentication import Access, Principal
from hubmere.broker.access.resources import Resource
from hubmere.model.errors import MalformedToken, Refusal
from hubmere.model.security.sas import make_token
from model.builders import NOW_S

EXPIRY = NOW_S + 60
WORLD = AccessHarness()
ACCESS: Access = WORLD.access
NAMESPACE = WORLD.namespace.name

# Names that are prefixes of each other, differ in case, or contain characters that must be encoded.
SEGMENTS = st.sampled_from(
    [
        "eh1",
        "EH1",
        "eh10",
        "publishers",
        "a",
        "A",
        "ab",
        "a b",
        "a+b",
        "a%62",
        "%2e%2e",
        "messages",
        "\u00fc",
        "x?y",
        ".",
    ]
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=5)


def encoded(text: str, draw: st.DataObject) -> str:
    """A percent-encoded segment as clients write it: the required characters, and sometimes more, in any case."""
    out = []
    for byte in text.encode():
        character = chr(byte)
        must = not (character.isascii() and (character.isalnum() or character in "-._~"))
        if must or draw.draw(st.booleans()):
            code = f"%{byte:02X}"
            out.append(code if draw.draw(st.booleans()) else code.lower())
        else:
            out.append(character)
    return "".join(out)


def a_uri(path: list[str], draw: st.DataObject) -> str:
    scheme = draw.draw(st.sampled_from(["sb://", "amqps://", "amqp://", "https://", "HTTPS://"]))
    port = draw.draw(st.sampled_from(["", ":443", ":5671"]))
    slash = draw.draw(st.sampled_from(["/", "//"]))
    tail = draw.draw(st.sampled_from(["", "/", "?timeout=60&api-version=2014-01", "/?x=/eh2"]))
    host = draw.draw(st.sampled_from([HOST, HOST.upper()]))
    return f"{scheme}{host}{port}{slash}" + slash.join(encoded(segment, draw) for segment in path) + tail


def holder_of(uri: str, *, is_encoded: bool = True) -> Principal:
    """The principal of a token for a URI, signed with the root key."""
    token = make_token(uri, WORLD.root.name, WORLD.root.primary_key, expires_at_s=EXPIRY)
    if not is_encoded:
        digest = hmac.new(WORLD.root.primary_key.encode(), f"{uri}\n{EXPIRY}".encode(), "sha256").digest()
        signature = quote_plus(base64.b64encode(digest).decode())
        token = f"SharedAccessSignature sr={uri}&sig={signature}&se={EXPIRY}&skn={WORLD.root.name}"
    return ACCESS.by_token(WORLD.namespace, token, NOW_S)


@given(scope=PATHS, asked=PATHS, draw=st.data())
def test_token_opens_exactly_the_resources_below_its_path(
    scope: list[str], asked: list[str], draw: st.DataObject
) -> None:
    """Scheme, port, case, encoding, slashes and query do not matter."""
    principal = holder_of(a_uri(scope, draw), is_encoded=True)
    folded, wanted = ([segment.lower() for segment in path] for path in (scope, asked))

    opens = principal.covers(Resource.of_hub(NAMESPACE, asked[0], *asked[1:]))

    assert opens is (wanted[: len(folded)] == folded)


@given(path=PATHS, draw=st.data())
def test_token_for_the_url_of_a_post_request_opens_that_url(path: list[str], draw: st.DataObject) -> None:
    """`/messages` is part of the path; the token is valid for the messages of this path, not for the path itself."""
    principal = holder_of(a_uri([*path, "messages"], draw))

    posted = Resource.of_hub(NAMESPACE, path[0], *path[1:], is_messages=True)
    whole = Resource.of_hub(NAMESPACE, path[0], *path[1:])
    longer = Resource.of_hub(NAMESPACE, path[0], *path[1:-1], path[-1] + "0", is_messages=True)

    assert principal.covers(posted)
    assert not principal.covers(whole)
    assert not principal.covers(longer)


@pytest.mark.parametrize(
    ("resource", "asked"),
    [
        ("eh1", "eh10"),
        ("eh1/publishers/a", "eh1/publishers/ab"),
        ("eh1/publishers/a", "eh1/publishers"),
        ("eh1/publishers/a", "eh1"),
        ("eh1/publishers/a/..", "eh1/publishers"),
        ("eh1/publishers/%2e%2e", "eh1"),
        ("eh1/./publishers/a", "eh1/publishers/a"),
        ("eh1%2Fpublishers%2Fa", "eh1/publishers/a"),
        ("eh1%252Fpublishers", "eh1/publishers/a"),
        ("eh1/publishers/%2561", "eh1/publishers/a"),
        ("eh1/publishers/a;b", "eh1/publishers/a"),
        ("eh1/publishers/a#b", "eh1/publishers/a"),
        ("eh1/publishers/a%3Fb", "eh1/publishers/a"),
        ("eh1/messages", "eh1/consumergroups/g"),
    ],
)
def test_token_for_another_resource_is_refused(resource: str, asked: str) -> None:
    """Longer names, dot segments, encoded slashes and double encoding do not circumvent the check."""
    hub, *below = asked.split("/")
    for is_encoded in (True, False):
        principal = holder_of(f"https://{HOST}/{resource}", is_encoded=is_encoded)

        assert not principal.covers(Resource.of_hub(NAMESPACE, hub, *below, is_messages=True))


@pytest.mark.parametrize("path", ["eh1/publisher/a/messages", "EH1/Publisher/A"])
def test_singular_form_of_publishers_is_accepted(path: str) -> None:
    """One page of the service's API uses the singular, and both forms are accepted."""
    principal = holder_of(f"https://{HOST}/{path}")

    assert principal.covers(Resource.of_hub(NAMESPACE, "eh1", "publishers", "a", is_messages=True))
    assert not principal.covers(Resource.of_hub(NAMESPACE, "eh1", "publishers", "b", is_messages=True))


@pytest.mark.parametrize("path", ["missing/publisher/a", "eh1/x/publisher/a"])
def test_word_publisher_in_another_position_is_a_name(path: str) -> None:
    """It means publishers only directly after a hub."""
    assert holder_of(f"https://{HOST}/{path}").scope == path


def test_resource_that_is_not_utf_8_is_refused_as_malformed() -> None:
    """Two different broken names must not become the same one."""
    with pytest.raises(MalformedToken):
        holder_of(f"https://{HOST}/eh1/publishers/%FF")


@given(text=st.text(max_size=60))
def test_any_text_is_either_a_resource_or_a_refusal(text: str) -> None:
    """No text causes another error."""
    token = f"SharedAccessSignature sr={text}&sig=x&se={EXPIRY}&skn=send"

    with pytest.raises(Refusal):
        ACCESS.by_token(WORLD.namespace, token, NOW_S)
