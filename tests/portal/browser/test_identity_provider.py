"""Sign-in to the portal at an identity provider, in a browser: the flow, the effect of roles, and errors."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, expect

from hubmere.testing import Node
from portal.browser.conftest import WINDOW
from portal.browser.visitor import Visitor

_ROLES = {
    "anna": ["Azure Event Hubs Data Receiver"],
    "carl": ["Contributor"],
    "olga": ["Owner", "Azure Event Hubs Data Owner"],
    "ron": ["Reader"],
    "guest": [],
}
_SETTINGS: dict[str, Any] = {
    "memory": True,
    "local_identity": True,
    **{f"identity.users.{name}.password": f"{name}-password" for name in _ROLES},
    **{f"identity.users.{name}.roles": roles for name, roles in _ROLES.items() if roles},
}
_LOCAL = "Sign in with the local issuer"


@pytest.fixture(scope="module")
def identity_node(browser: Browser) -> Iterator[Node]:
    """A node with an issuer of its own, and users with different roles."""
    with Node(hubs=["orders"], settings=_SETTINGS) as node:
        yield node
        assert "Traceback" not in node.logs(), node.logs().partition("Traceback")[2][:4000]


@pytest.fixture
def person(browser: Browser, identity_node: Node) -> Iterator[Visitor]:
    """A person who has not signed in; their browser accepts the node's private CA."""
    with browser.new_context(viewport=WINDOW, ignore_https_errors=True) as context:
        yield Visitor(context, identity_node)


def sign_in(person: Visitor, name: str, link: str = _LOCAL, page: str = "/") -> None:
    """Go from the sign-in page of the portal to the provider and back."""
    person.page.goto(f"{person.origin}/portal{page}")
    person.page.get_by_role("link", name=link).click()
    person.page.get_by_label("User").fill(name)
    person.page.get_by_label("Password").fill(f"{name}-password")
    person.page.get_by_role("button", name="Sign in").click()


def test_person_signs_in_at_the_provider_and_out(person: Visitor) -> None:
    """The requested page opens, the name is shown, and the code does not stay in the address bar."""
    page = f"/n/{person.node.namespace}/explorer?hub=orders"

    sign_in(person, "anna", page=page)

    person.expect_heading("Explorer")
    assert urlsplit(person.page.url).query == "hub=orders"
    expect(person.page.get_by_text("anna", exact=True)).to_be_visible()
    person.button("Sign out").click()
    expect(person.page.get_by_role("status")).to_have_text("You have signed out.")
    person.page.goto(f"{person.origin}/portal{page}")
    expect(person.page.get_by_role("link", name=_LOCAL)).to_be_visible()


@pytest.mark.parametrize(
    ("name", "pages", "actions"),
    [
        ("anna", {"Overview", "Explorer", "Groups", "Links", "Scale", "Capture"}, set()),
        ("ron", {"Overview", "Groups", "Links", "Scale", "Capture", "Roles"}, set()),
        (
            "carl",
            {"Overview", "Groups", "Links", "Scale", "Capture", "Access", "Network", "Recovery", "Audit", "Roles"},
            {"New event hub"},
        ),
        (
            "olga",
            {"Overview", "Explorer", "Groups", "Links", "Scale", "Capture", "Access", "Network", "Recovery", "Audit",
             "Roles"},
            {"New event hub", "Assign role"},
        ),
    ],
)  # fmt: skip
def test_roles_decide_what_is_shown_and_allowed(person: Visitor, name: str, pages: set[str], actions: set[str]) -> None:
    """Data roles see events, Reader sees and changes nothing, Contributor manages, and only Owner assigns roles."""
    sign_in(person, name)
    person.expect_heading("Overview")

    shown = set(person.page.locator("nav a").all_inner_texts())
    assert {text.split("\n")[-1] for text in shown} - {"Processors"} == pages
    assert (person.button("New event hub").count() == 1) == ("New event hub" in actions)
    if "Roles" in pages:
        person.open("/roles", "Role assignments")
        expect(person.row("Reader").first).to_be_visible()
        assert (person.button("Assign role").count() == 1) == ("Assign role" in actions)
        assert (person.page.get_by_role("button", name="Delete").count() > 0) == ("Assign role" in actions)
    answer = person.page.goto(f"{person.origin}/portal/n/{person.node.namespace}/access")
    assert answer is not None
    assert answer.status == (200 if "Access" in pages else 403)


def test_role_is_assigned_and_deleted(person: Visitor, browser: Browser) -> None:
    """A person without a role sees whom to ask for one; deleting a role assignment ends the login."""
    with browser.new_context(viewport=WINDOW, ignore_https_errors=True) as context:
        guest = Visitor(context, person.node)
        sign_in(guest, "guest")
        alert = guest.page.get_by_role("alert")
        expect(alert).to_contain_text("as guest, but no role is assigned to you here")
        guest_id = alert.inner_text().rstrip(".").rpartition(" ")[2]

        sign_in(person, "olga")
        person.open("/roles", "Role assignments")
        person.button("Assign role").click()
        person.choose("Role", "Reader")
        person.field("Object id of the user, group or application").fill(guest_id)
        person.choose("Scope", "orders")
        person.button("Assign").click()
        person.expect_notification("The role Reader was assigned.")
        sign_in(guest, "guest")
        guest.expect_heading("Overview")

        row = person.row(guest_id)
        expect(row).to_contain_text("orders")
        row.get_by_role("button", name="Delete").click()
        person.button("Delete").last.click()
        person.expect_notification("The role assignment was deleted.")
        expect(guest.page.get_by_text("no role is assigned to you any more")).to_be_visible()


def test_wrong_password_is_reported_on_the_page_of_the_issuer(person: Visitor) -> None:
    """The right one still signs in there."""
    person.page.goto(f"{person.origin}/portal/")
    person.page.get_by_role("link", name=_LOCAL).click()
    person.page.get_by_label("User").fill("anna")
    person.page.get_by_label("Password").fill("wrong")
    person.page.get_by_role("button", name="Sign in").click()

    expect(person.page.get_by_role("alert")).to_have_text("The user is unknown, or the password is wrong.")
    person.page.get_by_label("User").fill("anna")
    person.page.get_by_label("Password").fill("anna-password")
    person.page.get_by_role("button", name="Sign in").click()
    person.expect_heading("Overview")


def test_answer_of_another_sign_in_is_refused(person: Visitor, browser: Browser) -> None:
    """The state is wrong, was used before, or belongs to another browser."""
    answers: list[str] = []
    person.page.on("request", lambda request: answers.append(request.url) if "/callback?" in request.url else None)
    sign_in(person, "anna")
    person.expect_heading("Overview")
    [answer] = answers

    person.page.goto(answer)
    expect(person.page.get_by_role("alert")).to_contain_text("This sign-in has expired, or it was used before.")
    person.page.goto(f"{person.origin}/portal/sign-in/callback?code=x&state=wrong")
    expect(person.page.get_by_role("alert")).to_contain_text("This sign-in has expired, or it was used before.")

    begun = httpx.get(f"{person.origin}/portal/sign-in/with?provider=the+local+issuer", timeout=240)
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    with browser.new_context(viewport=WINDOW) as context:
        other = Visitor(context, person.node)
        other.page.goto(f"{person.origin}/portal/sign-in/callback?{urlencode({'code': 'x', 'state': state})}")
        expect(other.page.get_by_role("alert")).to_contain_text("This sign-in was begun in another browser")


def test_refusal_of_the_provider_is_reported(person: Visitor) -> None:
    """A person may not consent."""
    person.page.goto(f"{person.origin}/portal/")
    person.page.get_by_role("link", name=_LOCAL).click()
    state = parse_qs(urlsplit(person.page.url).query)["state"][0]

    query = urlencode({"error": "access_denied", "error_description": "You have cancelled.", "state": state})
    person.page.goto(f"{person.origin}/portal/sign-in/callback?{query}")

    expect(person.page.get_by_role("alert")).to_have_text(
        "the local issuer refused the sign-in: You have cancelled."
    )  # fmt: skip


def test_issuer_of_the_settings_signs_people_in(browser: Browser, identity_node: Node) -> None:
    """Any issuer with a client id: here the issuer of another node, which this node knows by its settings only."""
    assert identity_node.ready.identity is not None
    address = f"http://localhost:{identity_node.http.rpartition(':')[2]}/portal/sign-in/with?provider=the+local+issuer"
    begun = httpx.get(address, timeout=240)
    client_id = parse_qs(urlsplit(begun.headers["location"]).query)["client_id"][0]
    issuer = identity_node.ready.identity.issuer
    settings: dict[str, Any] = {
        "memory": True,
        "identity.issuers.company.issuer": issuer,
        "identity.issuers.company.ca_file": identity_node.ca_file,
        "identity.issuers.company.client_id": client_id,
    }
    with (
        Node(hubs=["orders"], settings=settings) as node,
        browser.new_context(viewport=WINDOW, ignore_https_errors=True) as context,
    ):
        person = Visitor(context, node)
        sign_in(person, "anna", "Sign in with company")

        expect(person.page.get_by_role("alert")).to_contain_text("but no role is assigned to you here")
        anna = person.page.get_by_role("alert").inner_text().rstrip(".").rpartition(" ")[2]
        role = "subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/hubmere/providers"
        httpx.put(
            f"{node.http}/{role}/Microsoft.Authorization/roleAssignments/0d4f4e0a-7f0e-4d43-8c2a-52c6d1c9a9d7"
            "?api-version=2022-04-01",
            headers={"Authorization": f"Bearer {node.admin_token}"},
            json={"properties": {"roleDefinitionId": "Reader", "principalId": anna, "principalType": "User"}},
            timeout=240,
        ).raise_for_status()
        sign_in(person, "anna", "Sign in with company")
        person.expect_heading("Overview")
        assert person.button("New event hub").count() == 0
