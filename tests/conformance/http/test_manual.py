"""The manual describes HTTP correctly."""

import os
import re
import subprocess
import sys
from pathlib import Path

from hubmere.endpoints.http.arm.openapi import openapi_path
from hubmere.endpoints.http.server.routes import ALL
from hubmere.model.security.connection_string import ConnectionString
from hubmere.model.security.sas import make_token
from hubmere.testing import Node

DOCS = Path(__file__).parents[3] / "docs"
_ARM_BASE = "/subscriptions/{subscription}/resourceGroups/{resourceGroup}/providers/Microsoft.EventHub"


def test_every_path_is_in_the_reference_page() -> None:
    """A path without a line there would be undocumented."""
    text = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")

    missing = [
        (method, pattern)
        for pattern, handlers in ALL.items()
        for method in handlers
        if f"| `{method}` | `{openapi_path(pattern).replace(_ARM_BASE, '…')}` |" not in text
    ]
    assert missing == []


def test_reference_page_has_no_path_that_does_not_exist() -> None:
    """A line is deleted with its path."""
    text = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    routed = {(method, openapi_path(pattern)) for pattern, handlers in ALL.items() for method in handlers}

    described = re.findall(r"^\| `([A-Z]+)` \| `([^`]+)` \|", text, re.MULTILINE)

    extra = {(method, path.replace("…", _ARM_BASE)) for method, path in described} - routed
    assert all(path.endswith("/messages") and method == "POST" for method, path in extra)


def test_example_of_the_how_to_page_runs(node: Node) -> None:
    """It is copied from the page and run unchanged."""
    page = (DOCS / "how-to" / "publish-over-https.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    parts = ConnectionString.parse(node.connection_string)
    token = make_token("https://localhost/orders", parts.key_name or "", parts.key or "", expires_at_s=4_000_000_000)
    environment = {**os.environ, "HUBMERE_URL": node.https, "TOKEN": token, "CA_FILE": node.ca_file}

    run = subprocess.run(
        [sys.executable, "-c", code.group(1)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )

    assert (run.stdout.strip(), run.stderr) == ("201", "")
