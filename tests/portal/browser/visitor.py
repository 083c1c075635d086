"""A person with a browser, and requests to the node outside the browser."""

import json
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, expect

from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

_FAR_FUTURE_S = 4_000_000_000
# For a machine that is busy with other tests; on an idle one everything takes less than a second.
_TIMEOUT_MS = 120_000
# Keeps the text of every notification that the page shows, also when its text changes.
_KEEP_NOTIFICATIONS = """
window.keptNotifications = [];
const kept = new WeakMap();
new MutationObserver(() => {
  for (const shown of document.querySelectorAll(".q-notification")) {
    if (shown.textContent && kept.get(shown) !== shown.textContent) {
      kept.set(shown, shown.textContent);
      window.keptNotifications.push(shown.textContent);
    }
  }
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
_TAKE_NOTIFICATION = """
(text) => {
  const at = window.keptNotifications.findIndex((one) => one.toLowerCase().includes(text.toLowerCase()));
  if (at >= 0) window.keptNotifications.splice(at, 1);
  return at >= 0;
}
"""


class Visitor:
    """One person in one browser."""

    def __init__(self, context: BrowserContext, node: Node) -> None:
        self.node = node
        self.origin = f"http://localhost:{node.http.rpartition(':')[2]}"
        self.context = context
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.origin)
        context.set_default_timeout(_TIMEOUT_MS)
        expect.set_options(timeout=_TIMEOUT_MS)
        self.page: Page = self.context.new_page()
        self.page.add_init_script(_KEEP_NOTIFICATIONS)
        self.console_errors: list[str] = []
        self.requested_urls: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        self.page.on("request", lambda request: self.requested_urls.append(request.url))
        self._root = ConnectionString.parse(node.connection_string)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)

    # --- in the browser ---

    def enter(self, credential: str) -> None:
        """Sign in without the form: post the credential and set the cookie."""
        answer = httpx.post(
            f"{self.origin}/portal/sign-in",
            data={"credential": credential},
            headers={"Origin": self.origin},
            timeout=120,
        )
        [(name, value)] = answer.cookies.items()
        self.context.add_cookies([{"name": name, "value": value, "domain": "localhost", "path": "/portal"}])

    def sign_in(self, credential: str) -> None:
        """Sign in with the form."""
        self.page.goto(f"{self.origin}/portal/")
        self.page.get_by_label("Connection string or token").fill(credential)
        self.page.get_by_role("button", name="Sign in").click()
        self.expect_heading("Overview")

    def open(self, path: str, heading: str) -> None:
        """Open a page of the namespace."""
        self.page.goto(f"{self.origin}/portal/n/{self.node.namespace}{path}")
        self.expect_heading(heading)

    def expect_heading(self, text: str) -> None:
        """Wait until a page with this heading is displayed."""
        expect(self.page.locator("[role=heading][aria-level='1']")).to_have_text(text)

    def button(self, name: str, exact: bool = True) -> Locator:
        """A button by its label."""
        return self.page.get_by_role("button", name=name, exact=exact)

    def field(self, label: str) -> Locator:
        """A field of the topmost dialog, or of the page."""
        return self.page.get_by_label(label, exact=True).last

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a list."""
        self.field(label).click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def expect_notification(self, text: str) -> None:
        """Wait for a notification that was not expected before; it may have disappeared after its five seconds."""
        self.page.wait_for_function(_TAKE_NOTIFICATION, arg=text)

    def row(self, text: str) -> Locator:
        """Rows of tables that contain a text."""
        return self.page.locator("tbody tr", has_text=text)

    def rows_of(self, card: str, text: str) -> Locator:
        """Rows of the table in the card with a heading."""
        heading = self.page.get_by_role("heading", name=card, exact=True)
        return self.page.locator(".h-card", has=heading).locator("tbody tr", has_text=text)

    # --- outside the browser ---

    def rest(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send an HTTP request with the root key."""
        assert self._root.key_name is not None
        assert self._root.key is not None
        token = make_token("http://localhost/", self._root.key_name, self._root.key, expires_at_s=_FAR_FUTURE_S)
        headers = {"Authorization": token, **arguments.pop("headers", {})}
        answer = httpx.request(method, f"{self.node.http}/{path}", headers=headers, timeout=120, **arguments)
        answer.raise_for_status()
        return answer

    def add_hub(self, name: str, partitions: int = 2) -> None:
        """Create a hub."""
        described = {"properties": {"partitionCount": partitions}}
        self.arm("PUT", f"eventhubs/{name}", described)

    def add_rule(self, name: str, *rights: str) -> str:
        """Create a rule. Returns its connection string."""
        self.arm("PUT", f"authorizationRules/{name}", {"properties": {"rights": list(rights)}})
        keys = self.arm("POST", f"authorizationRules/{name}/listKeys", {})
        text: str = keys["primaryConnectionString"]
        return text

    def arm(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """Send a request to the management API, about something in the namespace."""
        return self._arm(method, f"{self.node.namespace}/{path}", body)

    def arm_namespace(self, name: str) -> None:
        """Create a namespace."""
        self._arm("PUT", name, {"location": "local", "sku": {"name": "Standard"}})

    def _arm(self, method: str, path: str, body: dict[str, Any]) -> Any:
        where = f"subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/{path}"
        # Azure's versions of the two providers.
        version = "2022-04-01" if "Microsoft.Authorization" in path else "2024-01-01"
        answer = httpx.request(
            method,
            f"{self.node.http}/{where}?api-version={version}",
            headers={"Authorization": f"Bearer {self.node.admin_token}"},
            json=body,
            timeout=120,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def publish(self, hub: str, body: str, key: str | None = None) -> None:
        """Publish one event over HTTP."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["BrokerProperties"] = json.dumps({"PartitionKey": key})
        self.rest("POST", f"{hub}/messages", content=body, headers=headers)
