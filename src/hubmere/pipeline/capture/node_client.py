"""The way to the node that wants hubs captured: ask for the plan, tell how far the files are.

One request at a time over HTTP or HTTPS with the administrator's token, which comes from the environment or the node's
ready file and is shown nowhere. A node that is away is no reason to stop: the caller asks again.
"""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hubmere.pipeline.capture.plan import HubPlan, InvalidPlan, read_plan

TOKEN_VARIABLE: Final = "HUBMERE_TOKEN"  # noqa: S105  the name of a variable, not a token
PLAN_PATH: Final = "/$capture/plan"
PROGRESS_PATH: Final = "/$capture/progress"
_TIMEOUT_S: Final = 10.0


class NodeAway(Exception):
    """The node does not answer, or not with what was asked for."""


class NoToken(Exception):
    """There is nothing that opens the node."""

    def __str__(self) -> str:
        return f"the administrator's token is needed in {TOKEN_VARIABLE}, or the node's ready file by --ready-file"


def find_token(ready_file: str | None) -> str:
    """The administrator's token."""
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    if ready_file is None:
        raise NoToken
    return str(json.loads(Path(ready_file).read_bytes())["admin_token"])


class NodeDoor:
    """One node. Thread rule: any thread."""

    def __init__(self, url: str, token: str, ca_file: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._context: ssl.SSLContext | None = None
        if self._url.startswith("https:"):
            self._context = ssl.create_default_context(cafile=ca_file)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    def plan(self) -> dict[tuple[str, str, str], HubPlan]:
        """The hubs that are to be captured now."""
        try:
            return read_plan(self._ask("GET", PLAN_PATH, None))
        except InvalidPlan as error:
            raise NodeAway(f"{self._url}{PLAN_PATH} is not a plan: {error}") from None

    def report(self, progress: Mapping[str, Any]) -> None:
        """Tell how far the files are."""
        self._ask("POST", PROGRESS_PATH, json.dumps(progress).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310  the scheme is that of the given node
            self._url + path, data=body, headers=headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._context) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(1000).decode("utf-8", "replace")
            raise NodeAway(f"{self._url}{path} answered {error.code}: {text}") from None
        except (OSError, ValueError) as error:
            raise NodeAway(f"{self._url} cannot be reached: {error}") from None
