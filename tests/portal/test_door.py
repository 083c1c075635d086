"""Who gets into the portal, with what, and from where."""

from urllib.parse import urlencode

import pytest

from broker.builders import ADMIN_TOKEN
from hubmere.model.entity import KeyKind
from hubmere.model.names import ROOT_RULE
from hubmere.portal.app import Portal
from portal.builders import ORIGIN, Answer, Desktop, ask


def sign_in(portal: Portal, credential: str, origin: str = ORIGIN, scheme: str = "http") -> Answer:
    """What the sign-in form sends."""
    form = urlencode({"credential": credential}).encode()
    return ask(portal, "/sign-in", method="POST", body=form, origin=origin, scheme=scheme)


def cookie_of(answer: Answer) -> str:
    """The cookie as a browser sends it back."""
    text = answer.header("set-cookie")
    assert text is not None
    return text.partition(";")[0]


def test_stranger_is_led_to_the_sign_in_page(desktop: Desktop) -> None:
    """Nothing but the way in is shown to somebody unknown."""
    portal = desktop.portal()

    answers = [ask(portal, path) for path in ("/", "/n/hubmere", "/_nicegui/anything.js")]

    assert [(answer.status, answer.header("location")) for answer in answers] == [(303, "/portal/sign-in")] * 3


def test_sign_in_page_needs_nothing_from_elsewhere_and_no_script(desktop: Desktop) -> None:
    """It is the only page for strangers, and it must work on a closed network."""
    answer = ask(desktop.portal(), "/sign-in")

    assert answer.status == 200
    assert "<script" not in answer.body
    assert "http://" not in answer.body
    assert "https://" not in answer.body
    assert "frame-ancestors 'none'" in (answer.header("content-security-policy") or "")


def test_holder_of_a_connection_string_gets_in(desktop: Desktop) -> None:
    """The cookie that opens the rest is for this portal alone and unreadable for scripts."""
    portal = desktop.portal()
    credential = desktop.a_rule("watcher", "Listen")

    welcomed = sign_in(portal, credential)
    seen = ask(portal, "/n/hubmere", cookie=cookie_of(welcomed))

    assert (welcomed.status, welcomed.header("location")) == (303, "/portal/")
    attributes = (welcomed.header("set-cookie") or "").split("; ")[1:]
    assert attributes == ["Path=/portal", "HttpOnly", "SameSite=Lax"]
    assert (seen.status, seen.body) == (200, "watcher")


def test_cookie_over_tls_stays_on_tls(desktop: Desktop) -> None:
    """A cookie that was given over TLS is not to be read off a wire later."""
    welcomed = sign_in(desktop.portal(), ADMIN_TOKEN, origin="https://localhost:8080", scheme="https")

    assert (welcomed.header("set-cookie") or "").endswith("; Secure")


def test_administrators_token_gets_in(desktop: Desktop) -> None:
    """The token of the management planes is good here too."""
    portal = desktop.portal()

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
def test_wrong_credential_is_refused_without_being_repeated(desktop: Desktop, credential: str) -> None:
    """What somebody mistyped may be most of a secret."""
    answer = sign_in(desktop.portal(), credential)

    assert answer.status == 401
    assert answer.header("set-cookie") is None
    assert not credential or credential not in answer.body


def test_form_that_is_too_large_is_refused(desktop: Desktop) -> None:
    """A stranger decides how much is sent, not how much is kept."""
    answer = sign_in(desktop.portal(), "x" * 100_000)

    assert answer.status == 413


def test_first_link_signs_in_once(desktop: Desktop) -> None:
    """A link that stays in a history or a log opens nothing."""
    portal = desktop.portal()
    path, _, query = portal.first_link.removeprefix("/portal").partition("?")

    first, second = ask(portal, path, query=query), ask(portal, path, query=query)

    assert (first.status, first.header("location")) == (303, "/portal/")
    assert ask(portal, "/n/hubmere", cookie=cookie_of(first)).body == "(admin)"
    assert second.status == 401
    assert second.header("set-cookie") is None


@pytest.mark.parametrize("code", ["", "x", "é"])
def test_made_up_link_signs_nobody_in(desktop: Desktop, code: str) -> None:
    """The code is as hard to guess as a key, and none is taken after it was used."""
    portal = desktop.portal()
    ask(portal, "/", query=portal.first_link.partition("?")[2])

    answer = ask(portal, "/", query=urlencode({"token": code}))

    assert answer.status == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "https://localhost:8080", "null"])
def test_form_of_another_origin_is_refused(desktop: Desktop, origin: str) -> None:
    """Another page, on another port of this host too, must not sign anybody in or out."""
    answer = sign_in(desktop.portal(), ADMIN_TOKEN, origin=origin)

    assert answer.status == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "https://localhost:8080", "null"])
def test_page_is_not_given_to_another_origin(desktop: Desktop, origin: str) -> None:
    """A script of another site that asks with the person's cookie gets nothing to read."""
    portal = desktop.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    answers = [ask(portal, path, cookie=cookie, origin=origin) for path in ("/", "/_nicegui_ws/socket.io/")]

    assert [answer.status for answer in answers] == [403, 403]
    assert all(answer.header("access-control-allow-origin") is None for answer in answers)


@pytest.mark.parametrize(
    ("origin", "status"), [(ORIGIN, 101), ("http://evil.example", 1008), ("http://localhost:3000", 1008), (None, 1008)]
)
def test_websocket_opens_for_pages_of_this_origin_only(desktop: Desktop, origin: str | None, status: int) -> None:
    """Browsers send cookies with WebSockets of any page of the host: the origin alone tells them apart."""
    portal = desktop.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    answer = ask(portal, "/_nicegui_ws/socket.io", kind="websocket", scheme="ws", cookie=cookie, origin=origin)

    assert answer.status == status


def test_websocket_without_a_session_is_refused(desktop: Desktop) -> None:
    """The right origin is no credential."""
    answer = ask(desktop.portal(), "/_nicegui_ws/socket.io", kind="websocket", scheme="ws", origin=ORIGIN)

    assert answer.status == 1008


def test_rotated_key_ends_the_session(desktop: Desktop) -> None:
    """Whoever rotates a key wants its holders out, and not tomorrow."""
    portal = desktop.portal()
    cookie = cookie_of(sign_in(portal, desktop.connection_string()))
    kind = KeyKind.PRIMARY

    desktop.do(
        lambda done: desktop.manager.regenerate_key("hubmere", None, ROOT_RULE, kind, None, desktop.actor(), done)
    )

    assert ask(portal, "/n/hubmere", cookie=cookie).header("location") == "/portal/sign-in"


def test_cookies_of_other_programs_do_not_hide_ours(desktop: Desktop) -> None:
    """A developer's localhost is full of cookies, some of them malformed."""
    portal = desktop.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    seen = ask(portal, "/n/hubmere", cookie=f'odd; {{"json": 1}}=x; a=b=c; {cookie}; =')

    assert seen.status == 200


def test_assets_are_kept_and_pages_are_not(desktop: Desktop) -> None:
    """Assets have their version in their path; a page shows what is now."""
    portal = desktop.portal()
    cookie = cookie_of(sign_in(portal, ADMIN_TOKEN))

    asset, page = (ask(portal, path, cookie=cookie) for path in ("/_nicegui/1/static/x.js", "/n/hubmere"))

    assert asset.header("cache-control") == "private, max-age=31536000, immutable"
    assert page.header("cache-control") == "no-store"
