"""A real node and a real browser for the tests of a module.

Not for the whole session: Playwright runs an event loop in this thread, and other tests need their own.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ViewportSize, sync_playwright

from hubmere.testing import Node
from portal.browser.visitor import Visitor

_CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
WINDOW = ViewportSize(width=1280, height=900)
# No profile, no sandbox (not available in containers), no background network traffic.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; tests that need it are skipped if it is not installed."""
    if _CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `make browser` installs it")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=_CHROMIUM, args=list(_FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def captured_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the node's captured files."""
    return tmp_path_factory.mktemp("captured")


@pytest.fixture(scope="module")
def portal_node(browser: Browser, captured_folder: Path) -> Iterator[Node]:
    """A node in memory with the hub `orders`; tests that change something create their own hubs and rules."""
    settings: dict[str, str | bool] = {
        "memory": True, "as": "unlimited", "capture_supervise": False, "capture_folder": str(captured_folder)
    }  # fmt: skip
    with Node(hubs=["orders"], settings={**settings}) as node:
        yield node
        # Exceptions in button handlers are in the log, not on the page.
        if "Traceback" in (logs := node.logs()):
            pytest.fail(logs[max(0, logs.index("Traceback") - 500) :][:8000])


@pytest.fixture
def visitor(browser: Browser, portal_node: Node) -> Iterator[Visitor]:
    """A person who has not signed in."""
    with browser.new_context(viewport=WINDOW) as context:
        yield Visitor(context, portal_node)


@pytest.fixture(scope="module")
def admin_context(browser: Browser) -> Iterator[BrowserContext]:
    """The administrator's browser: one for all tests, so that assets are loaded once."""
    with browser.new_context(viewport=WINDOW) as context:
        yield context


@pytest.fixture
def admin(admin_context: BrowserContext, portal_node: Node) -> Iterator[Visitor]:
    """The administrator, in a new tab."""
    made = Visitor(admin_context, portal_node)
    made.enter(portal_node.admin_token)
    yield made
    made.page.close()
