"""Authentication and origin checks of the portal's ASGI application."""

from urllib.parse import urlencode

import pytest

from broker.builders import ADMIN_TOKEN
from hubmere.model.entity import KeyKind
from hubmere.model.names import ROOT_RULE
from hubmere.portal.app import Portal
from portal.builders import ORIGIN, Answer, PortalHarness, ask


def sign_in(portal: Portal, credential: str, origin: str = ORIGIN, scheme: str = "http", next_page: str = "") -> Answer:
    """What the sign-in form sends."""
    form = urlencode({"credential": credential, "next": next_page}).encode()
    return ask(portal, "/sign-in", method="POST", body=form, origin=origin, scheme=scheme)


def cookie_of(answer: Answer) -> str:
    """The cookie as a browser sends it back."""
    text = answer.header("set-cookie")
    assert text is not None
    return text.partition(";")[0]


def test_request_without_cookie_is_redirected_to_the_sign_in_page(harness: PortalHarness) -> None:
    """Nothing else is served without a login."""
    portal = harness.portal()

    answers = [ask(portal, path) for path in ("/", "/n/hubmere", "/_nicegui/anything.js")]

    assert [answer.status for answer in answers] == [303] * 3
    assert [answer.header("location") for answer in answers] == [
        "/portal/sign-in",
        "/portal/sign-in?next=%2Fn%2Fhubmere",
        "/portal/sign-in",
    ]


def test_sign_in_redirects_to_the_requested_page(harness: PortalHarness) -> None:
    """A link in a ticket or a chat must open the page that it names."""
    portal = harness.portal()
    page = "/n/hubmere/hub?hub=a%20b"

    asked = ask(portal, "/n/hubmere/hub", query="hub=a%20b").header("location")
    form = ask(portal, "/sign-in", query=(asked or "").partition("?")[2])
    signed_in = sign_in(portal, ADMIN_TOKEN, next_page=page)
    refused = sign_in(portal, "wrong", next_page=page)

    assert f'name="next" value="{page}"' in form.body
    assert f'name="next" value="{page}"' in refused.body
    assert signed_in.header("location") == f"/portal{page}"


@pytest.mark.parametrize(
    "page", ["https://evil.example/", "//evil.example", "/\\evil", "/n/\\evil", "/n/é", "/n/\r\nx"]
)
def test_sign_in_redirects_to_no_other_site(harness: PortalHarness, page: str) -> None:
    """The address of the next page comes from the link, which an attacker may have written."""
    assert sign_in(harness.portal(), ADMIN_TOKEN, next_page=page).header("location") == "/portal/"


def test_sign_in_page_needs_no_other_site_and_no_script(harness: PortalHarness) -> None:
    """It is served to everyone, and it must work without internet access."""
    answer = ask(harness.portal(), "/sign-in")

    assert answer.status == 200
    assert "<script" not in answer.body
    assert "http://" not in answer.body
    assert "https://" not in answer.body
    assert "frame-ancestors 'none'" in (answer.header("content-security-policy") or "")


def test_connection_string_signs_in(harness: PortalHarness) -> None:
    """The cookie is limited to this portal and unreadable by scripts."""
    portal = harness.portal()
    credential = harness.a_rule("watcher", "Listen")

    signed_in = sign_in(portal, credential)
    seen = ask(portal, "/n/hubmere", cookie=cookie_of(signed_in))

    assert (signed_in.status, signed_in.header("location")) == (303, "/portal/")
    attributes = (signed_in.header("set-cookie") or "").split("; ")[1:]
    assert attributes == ["Path=/portal", "HttpOnly", "SameSite=Lax"]
    assert (seen.status, seen.body) == (200, "watcher")


def test_cookie_over_tls_stays_on_tls(harness: PortalHarness) -> None:
    """A cookie that was set over TLS must not be sent in the clear later."""
    signed_in = sign_in(harness.portal(), ADMIN_TOKEN, origin="https://localhost:8080", scheme="https")

    assert (signed_in.header("set-cookie") or "").endswith("; Secure")


def test_administrator_token_signs_in(harness: PortalHarness) -> None:
    """The portal accepts the token of the management API."""
    portal = harness.portal()

    seen = ask(portal, "/n/hubmere", cookie=cookie_of(sign_in(portal, f" {ADMIN_TOKEN}\n")))

    assert seen.body == "(admin)"


@pytest.mark.parametrize(
    "credential",
    [
        "not-the-token",
        "",
        "Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong",
        "Endpoint=sb://localhost/",
        "Endpoint=;SharedAccessKeyName=<script>",
        "é" * 100,
    ],
)
def test_wrong_credential_is_refused_without_being_repeated(harness: PortalHarness, credential: str) -> None:
    """A mistyped credential may contain most of a secret."""
    answer = sign_in(harness.portal(), credential)

    assert answer.status == 401
    assert answer.header("set-cookie") is None
    assert not credential or credential not in answer.body


@pytest.mark.parametrize(
    ("credential", "message"),
    [
        ("nonsense", "neither a connection string nor the administrator token"),
        (
            "Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong",
            "does not accept this connection string",
        ),
    ],
)
def test_refused_sign_in_says_what_is_expected(harness: PortalHarness, credential: str, message: str) -> None:
    """A person who pasted the wrong text must see what is expected."""
    assert message in sign_in(harness.portal(), credential).body


def test_form_that_is_too_large_is_refused(harness: PortalHarness) -> None:
    """An unauthenticated client must not fill the memory of the node."""
    answer = sign_in(harness.portal(), "x" * 100_000)

    assert answer.status == 413


def test_first_link_signs_in_once(harness: PortalHarness) -> None:
    """A used link in a browser history or a log must not sign in again."""
    portal = harness.portal()
    path, _, query = portal.first_link.removeprefix("/portal").partition("?")

    first, second = ask(portal, path, query=query), ask(portal, path, query=query)

    assert (first.status, first.header("location")) == (303, "/portal/")
    assert ask(portal, "/n/hubmere", cookie=cookie_of(first)).body == "(admin)"
    assert second.status == 401
    assert second.header("set-cookie") is None


@pytest.mark.parametrize("code", ["", "x", "é"])
def test_invalid_link_does_not_sign_in(harness: PortalHarness, code: str) -> None:
    """Not even the empty code signs in after the link was used."""
    portal = harness.portal()
    ask(portal, "/", query=portal.first_link.partition("?")[2])

    answer = ask(portal, "/", query=urlencode({"token": code}))

    assert answer.status == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "https://localhost:8080", "null"])
def test_form_of_another_origin_is_refused(harness: PortalHarness, origin: str) -> None:
    """A page of another site or port must not sign a person in or out."""
    answer = sign_in(harness.portal(), ADMIN_TOKEN, origin=origin)

    assert answer.status == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "https://localhost:8080", "null"])
def test_page_is_not_served_to_another_origin(harness: PortalHarness, origin: str) -> None:
    """A script of another site that sends the person's cookie gets no content."""
    portal = harness.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    answers = [ask(portal, path, cookie=cookie, origin=origin) for path in ("/", "/_nicegui_ws/socket.io/")]

    assert [answer.status for answer in answers] == [403, 403]
    assert all(answer.header("access-control-allow-origin") is None for answer in answers)


@pytest.mark.parametrize(
    ("origin", "status"), [(ORIGIN, 101), ("http://evil.example", 1008), ("http://localhost:3000", 1008), (None, 1008)]
)
def test_websocket_opens_for_pages_of_this_origin_only(harness: PortalHarness, origin: str | None, status: int) -> None:
    """Browsers send cookies with WebSockets of any page, so only the origin identifies the page."""
    portal = harness.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    answer = ask(portal, "/_nicegui_ws/socket.io", kind="websocket", scheme="ws", cookie=cookie, origin=origin)

    assert answer.status == status


def test_websocket_without_a_login_is_refused(harness: PortalHarness) -> None:
    """The right origin is not a credential."""
    answer = ask(harness.portal(), "/_nicegui_ws/socket.io", kind="websocket", scheme="ws", origin=ORIGIN)

    assert answer.status == 1008


def test_rotated_key_ends_the_login(harness: PortalHarness) -> None:
    """A rotated key must not stay signed in."""
    portal = harness.portal()
    cookie = cookie_of(sign_in(portal, harness.connection_string()))
    kind = KeyKind.PRIMARY

    harness.do(
        lambda done: harness.manager.regenerate_key("hubmere", None, ROOT_RULE, kind, None, harness.actor(), done)
    )

    assert ask(portal, "/n/hubmere", cookie=cookie).header("location") == "/portal/sign-in?next=%2Fn%2Fhubmere"
    assert "its key was regenerated" in ask(portal, "/sign-in", cookie=cookie).body
    assert "signed out" not in ask(portal, "/sign-in").body


def test_cookies_of_other_programs_do_not_hide_ours(harness: PortalHarness) -> None:
    """A developer's localhost is full of cookies, some of them malformed."""
    portal = harness.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    seen = ask(portal, "/n/hubmere", cookie=f'odd; {{"json": 1}}=x; a=b=c; {cookie}; =')

    assert seen.status == 200


def test_assets_are_cached_and_pages_are_not(harness: PortalHarness) -> None:
    """The path of an asset contains its version; a page shows the current state."""
    portal = harness.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    asset, page = (ask(portal, path, cookie=cookie) for path in ("/_nicegui/1/static/x.js", "/n/hubmere"))

    assert asset.header("cache-control") == "private, max-age=31536000, immutable"
    assert page.header("cache-control") == "no-store"


def test_new_link_is_for_the_administrator_token_and_signs_in_once(harness: PortalHarness) -> None:
    """`hubmere portal` requests it; the previous link, which was not used, is then invalid."""
    portal = harness.portal()
    before = portal.first_link.removeprefix("/portal")

    refused = [ask(portal, "/sign-in-link", method="POST", authorization=each) for each in (None, "Bearer wrong")]
    given = ask(portal, "/sign-in-link", method="POST", authorization=f"Bearer {ADMIN_TOKEN}")
    link = given.body.removeprefix("/portal")

    assert [answer.status for answer in (*refused, given)] == [401, 401, 200]
    assert [follow(portal, each).status for each in (before, link, link)] == [401, 303, 401]


def follow(portal: Portal, link: str) -> Answer:
    path, _, query = link.partition("?")
    return ask(portal, path, query=query)
