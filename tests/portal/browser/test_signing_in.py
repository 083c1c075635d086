"""Signing in and out, in a browser."""

from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, expect

from hubmere.model.security.connection_string import ConnectionString
from hubmere.testing import Node
from portal.browser.visitor import Visitor


def test_first_link_opens_the_overview(browser: Browser) -> None:
    """The link that `hubmere up` prints signs in once."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        visitor, second = (Visitor(browser.new_context(), node) for _ in range(2))
        assert node.ready.portal is not None

        visitor.page.goto(node.ready.portal)
        second.page.goto(node.ready.portal)

        visitor.expect_heading("Overview")
        assert "token" not in visitor.page.url
        expect(second.page.get_by_role("alert")).to_have_text("This link has already been used, or it is incomplete.")
        visitor.context.close()
        second.context.close()


def test_pages_load_nothing_external_and_contain_no_secret(admin: Visitor) -> None:
    """The portal must work without internet access, and pages are visible to people nearby."""
    key = ConnectionString.parse(admin.node.connection_string).key
    assert key is not None

    sources = []
    for path, heading in (
        ("", "Overview"),
        ("/hub?hub=orders", "orders"),
        ("/explorer", "Explorer"),
        ("/scale", "Scale"),
        ("/capture", "Capture"),
        ("/access", "Access"),
        ("/links", "Links"),
    ):
        admin.open(path, heading)
        sources.append(admin.page.content())

    assert {urlsplit(url).netloc for url in admin.requested_urls if urlsplit(url).scheme != "data"} == {
        urlsplit(admin.origin).netloc
    }
    assert not any(key in source or admin.node.admin_token in source for source in sources)
    assert admin.console_errors == []


def test_wrong_key_is_refused(visitor: Visitor) -> None:
    """The message describes a valid credential."""
    visitor.page.goto(f"{visitor.origin}/portal/")

    visitor.page.get_by_label("Connection string or token").fill("nonsense")
    visitor.page.get_by_role("button", name="Sign in").click()

    expect(visitor.page.get_by_role("alert")).to_contain_text("neither a connection string nor")


def test_sign_out_ends_the_login(visitor: Visitor) -> None:
    """Pages are not accessible afterwards."""
    visitor.sign_in(visitor.node.connection_string)
    visitor.button("Sign out").click()
    expect(visitor.button("Sign in")).to_be_visible()

    visitor.page.goto(f"{visitor.origin}/portal/n/{visitor.node.namespace}")

    expect(visitor.button("Sign in")).to_be_visible()


def test_open_page_of_a_rotated_key_is_signed_out(visitor: Visitor) -> None:
    """The page checks its login every second."""
    visitor.sign_in(visitor.add_rule("rotated", "Listen"))
    visitor.open("/explorer?hub=orders", "Explorer")

    visitor.arm("POST", "authorizationRules/rotated/regenerateKeys", {"keyType": "PrimaryKey"})

    expect(visitor.button("Sign in")).to_be_visible()
    expect(visitor.page.get_by_role("status")).to_contain_text("its key was regenerated")
    assert "explorer" in visitor.page.url


def test_open_page_leads_to_the_sign_in_after_a_restart(browser: Browser) -> None:
    """Logins end with the node; the page would show old numbers for ever."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        visitor = Visitor(browser.new_context(), node)
        visitor.sign_in(node.admin_token)
        visitor.open("/scale", "Scale")

        node.restart()

        expect(visitor.button("Sign in")).to_be_visible()
        assert "scale" in visitor.page.url
        visitor.context.close()


def test_link_to_a_page_survives_the_sign_in(visitor: Visitor) -> None:
    """A link in a ticket or a chat must open the page that it names."""
    visitor.page.goto(f"{visitor.origin}/portal/n/{visitor.node.namespace}/hub?hub=orders")
    visitor.page.get_by_label("Connection string or token").fill(visitor.node.connection_string)
    visitor.button("Sign in").click()

    visitor.expect_heading("orders")
    expect(visitor.page).to_have_title(f"orders · {visitor.node.namespace} · Hubmere")


def test_root_redirects_a_browser_to_the_portal_and_answers_a_client_with_the_feed(visitor: Visitor) -> None:
    """The first SDKs probe `/` and expect an Atom feed; a person expects a page."""
    visitor.page.goto(f"{visitor.origin}/")
    feed = httpx.get(f"{visitor.origin}/", timeout=120)
    atom = httpx.get(f"{visitor.origin}/", headers={"Accept": "application/atom+xml, text/html;q=0.1"}, timeout=120)

    expect(visitor.button("Sign in")).to_be_visible()
    assert {feed.headers["content-type"], atom.headers["content-type"]} == {
        "application/atom+xml;type=feed;charset=utf-8"
    }


def test_unknown_page_is_not_found(admin: Visitor) -> None:
    """It is a page of the portal, with a link back."""
    for path in ("/portal/nowhere", f"/portal/n/{admin.node.namespace}/hub?hub=missing", "/portal/n/missing"):
        answer = admin.page.goto(f"{admin.origin}{path}")
        assert answer is not None
        assert answer.status == 404
        expect(admin.page.get_by_role("alert")).to_contain_text("could not be found")
    admin.page.get_by_role("link", name="Go to the overview").click()
    admin.expect_heading("Overview")


def test_cookie_is_unreadable_by_scripts(visitor: Visitor) -> None:
    """An injected script must not be able to steal the login."""
    visitor.sign_in(visitor.node.admin_token)

    seen = visitor.page.evaluate("document.cookie")
    [cookie] = visitor.context.cookies()

    assert "hubmere" not in seen
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/portal")
