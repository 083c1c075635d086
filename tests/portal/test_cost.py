"""Cost of the portal for a node without open pages."""

import subprocess
import sys

import httpx

from hubmere.testing import Node

_LOADED = (
    "import sys, hubmere.node.node; print(sorted({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
)
# Libraries that only the pages need.
_PAGES_ONLY = ("nicegui", "fastapi", "socketio", "engineio", "orjson")


def test_node_starts_without_loading_the_pages() -> None:
    """They take most of a second and about 45 MB, which a node in a test or a pipeline never needs."""
    shown = subprocess.run(
        [sys.executable, "-c", _LOADED, *_PAGES_ONLY], capture_output=True, text=True, timeout=600, check=True
    )

    assert shown.stdout.strip() == "[]"


def test_node_stops_cleanly_while_the_pages_are_loading() -> None:
    """A late request must not delay the shutdown or leave anything open."""
    with Node(hubs=["orders"], settings={"memory": True}) as node:
        answer = httpx.get(f"{node.http}/portal/sign-in", timeout=120)

        node.stop()
        logs = node.logs()

    assert answer.status_code == 200
    assert "Traceback" not in logs
