"""Signing in and out, in a browser."""

from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from hubmere.model.connection_string import ConnectionString
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
    """The message is the same as for clients."""
    visitor.page.goto(f"{visitor.origin}/portal/")

    visitor.page.get_by_label("Connection string or token").fill("nonsense")
    visitor.page.get_by_role("button", name="Sign in").click()

    expect(visitor.page.get_by_role("alert")).to_contain_text("invalid signature")


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

    visitor.arm("POST", "authorizationRules/rotated/regenerateKeys", {"keyType": "PrimaryKey"})

    expect(visitor.button("Sign in")).to_be_visible()


def test_cookie_is_unreadable_by_scripts(visitor: Visitor) -> None:
    """An injected script must not be able to steal the login."""
    visitor.sign_in(visitor.node.admin_token)

    seen = visitor.page.evaluate("document.cookie")
    [cookie] = visitor.context.cookies()

    assert "hubmere" not in seen
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/portal")
