"""Schemathesis with the served OpenAPI document: there is no server error, and no undeclared answer."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hubmere.endpoints.http.server.routes import SURFACE
from hubmere.testing import Node

# Examples of each operation: enough to reach the refusals, few enough for half a minute.
EXAMPLES = 6

pytestmark = pytest.mark.foreign


@schemathesis.serializer("application/vnd.microsoft.servicebus.json")  # type: ignore[untyped-decorator]
def _batch(_context: Any, value: Any) -> bytes:
    """A batch of events is JSON with its own content type."""
    return json.dumps(value).encode()


@schemathesis.serializer("application/atom+xml")  # type: ignore[untyped-decorator]
def _entry(_context: Any, value: Any) -> bytes:
    """Descriptions are sent as generated text."""
    return str(value).encode("utf-8", "replace")


schema = schemathesis.openapi.from_dict(SURFACE.document())

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for thousands of requests."""
    with requests.Session() as opened:
        yield opened


def _known_names(names: dict[str, Any] | None, node: Node) -> dict[str, Any] | None:
    """Half of the paths name existing entities, so that not every answer is "not found"."""
    known = {"hub": "orders", "namespace": node.namespace, "group": "$Default", "partition": "0"}
    if not names:
        return names
    return {name: known[name] if name in known and len(str(value)) % 2 else value for name, value in names.items()}


@schema.parametrize()  # type: ignore[untyped-decorator]
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_declared(case: Any, node: Node, session: requests.Session) -> None:
    """Requests are random and have the administrator's rights."""
    case.path_parameters = _known_names(case.path_parameters, node)

    case.call_and_validate(
        base_url=node.http,
        headers={"Authorization": f"Bearer {node.admin_token}"},
        checks=CHECKS,
        session=session,
    )


def test_served_document_is_the_tested_one(node: Node) -> None:
    """The node serves the document that these tests use."""
    assert httpx.get(f"{node.http}/openapi.json").json() == SURFACE.document()
