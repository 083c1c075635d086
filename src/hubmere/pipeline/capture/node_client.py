"""The capture job's client of the node: fetches the plan and reports progress.

One request at a time over HTTP or HTTPS with the administrator's token, which comes from the environment or from the
node's ready file and is never shown. A node that does not answer does not end the job: the caller asks again.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hubmere.client.http import HttpClient, HttpUnreachable
from hubmere.model.capture.targets import PLAN_PATH, PROGRESS_PATH
from hubmere.pipeline.capture.plan import HubPlan, InvalidPlan, read_plan

TOKEN_VARIABLE: Final = "HUBMERE_TOKEN"  # noqa: S105  the name of a variable, not a token
_TIMEOUT_S: Final = 10.0
_FIRST_ERROR: Final = 300
# What a log line shows of an error's body.
_MAX_ERROR_BYTES: Final = 1000


class NodeUnavailable(Exception):
    """The node does not answer, or answers with an error."""


class MissingToken(Exception):
    """No administrator's token was given."""

    def __str__(self) -> str:
        return f"the administrator's token is needed in {TOKEN_VARIABLE}, or the node's ready file by --ready-file"


def find_token(ready_file: str | None) -> str:
    """The administrator's token."""
    if token := os.environ.get(TOKEN_VARIABLE):
        return token
    if ready_file is None:
        raise MissingToken
    return str(json.loads(Path(ready_file).read_bytes())["admin_token"])


class NodeClient:
    """The node whose hubs are captured. Thread rule: one owner."""

    def __init__(self, url: str, token: str, ca_file: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._http = HttpClient(self._url, ca_file=ca_file, timeout_s=_TIMEOUT_S)
        # The last plan; it changes rarely, and is not parsed again while it stays the same.
        self._plan_text = b""
        self._plan: dict[tuple[str, str, str], HubPlan] = {}

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._http.close()

    def plan(self) -> dict[tuple[str, str, str], HubPlan]:
        """The hubs to capture."""
        text = self._request("GET", PLAN_PATH, None)
        try:
            if text != self._plan_text:
                self._plan, self._plan_text = read_plan(text), text
            return self._plan
        except InvalidPlan as error:
            raise NodeUnavailable(f"{self._url}{PLAN_PATH} is not a plan: {error}") from None

    def report(self, progress: Mapping[str, Any]) -> None:
        """Report which events are in published files."""
        self._request("POST", PROGRESS_PATH, json.dumps(progress).encode())

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            response = self._http.request(method, path, body, headers)
        except HttpUnreachable as error:
            raise NodeUnavailable(str(error)) from None
        if response.status >= _FIRST_ERROR:
            text = response.body[:_MAX_ERROR_BYTES].decode("utf-8", "replace")
            raise NodeUnavailable(f"{self._url}{path} answered {response.status}: {text}")
        return response.body
