"""The way in and out, in a browser."""

from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from hubmere.model.connection_string import ConnectionString
from hubmere.testing import Node
from portal.browser.visitor import Visitor


def test_first_link_opens_the_overview(browser: Browser) -> None:
    """What `hubmere up` prints is all that a newcomer needs, and it is good once."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        visitor, second = (Visitor(browser.new_context(), node) for _ in range(2))
        assert node.ready.portal is not None

        visitor.page.goto(node.ready.portal)
        second.page.goto(node.ready.portal)

        visitor.expect_heading("Overview")
        assert "token" not in visitor.page.url
        expect(second.page.get_by_role("alert")).to_have_text("This link was used already, or is not complete.")
        visitor.context.close()
        second.context.close()


def test_nothing_comes_from_elsewhere_and_no_secret_is_in_a_page(admin: Visitor) -> None:
    """A node on a closed network has a portal, and what a page holds anybody behind you can read."""
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

    assert {urlsplit(url).netloc for url in admin.asked if urlsplit(url).scheme != "data"} == {
        urlsplit(admin.origin).netloc
    }
    assert not any(key in source or admin.node.admin_token in source for source in sources)
    assert admin.complaints == []


def test_wrong_key_is_told(visitor: Visitor) -> None:
    """With the same words that clients get."""
    visitor.page.goto(f"{visitor.origin}/portal/")

    visitor.page.get_by_label("Connection string or token").fill("nonsense")
    visitor.page.get_by_role("button", name="Sign in").click()

    expect(visitor.page.get_by_role("alert")).to_contain_text("invalid signature")


def test_sign_out_ends_the_session(visitor: Visitor) -> None:
    """The way back leads to the sign-in page."""
    visitor.sign_in(visitor.node.connection_string)
    visitor.button("Sign out").click()
    expect(visitor.button("Sign in")).to_be_visible()

    visitor.page.goto(f"{visitor.origin}/portal/n/{visitor.node.namespace}")

    expect(visitor.button("Sign in")).to_be_visible()


def test_open_page_of_a_rotated_key_is_signed_out(visitor: Visitor) -> None:
    """Without a click: the page follows its session every second."""
    visitor.sign_in(visitor.add_rule("rotated", "Listen"))

    visitor.arm("POST", "authorizationRules/rotated/regenerateKeys", {"keyType": "PrimaryKey"})

    expect(visitor.button("Sign in")).to_be_visible()


def test_cookie_is_out_of_reach_of_scripts(visitor: Visitor) -> None:
    """A script that slips in finds no session to take away."""
    visitor.sign_in(visitor.node.admin_token)

    seen = visitor.page.evaluate("document.cookie")
    [cookie] = visitor.context.cookies()

    assert "hubmere" not in seen
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Lax", "/portal")
