"""Another site in the browser of a signed-in person cannot read the portal."""

from collections.abc import Iterator

import httpx
import pytest

from hubmere.testing import Node

_SOCKET = "/portal/_nicegui_ws/socket.io/?EIO=4&transport=polling"


@pytest.fixture(scope="module")
def person(node: Node) -> Iterator[httpx.Client]:
    """A browser that is signed in as the administrator."""
    with httpx.Client(base_url=node.http, timeout=240) as client:
        origin = {"Origin": node.http.rstrip("/")}
        answer = client.post("/portal/sign-in", data={"credential": node.admin_token}, headers=origin)
        assert answer.status_code == 303
        yield client


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost"])
@pytest.mark.parametrize("path", ["/portal/", _SOCKET])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_request_of_another_origin_is_refused(person: httpx.Client, method: str, path: str, origin: str) -> None:
    """There is no answer with content, and no header that lets a foreign script read one."""
    answer = person.request(method, path, headers={"Origin": origin})

    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_pages_do_not_use_polling(person: httpx.Client) -> None:
    """Pages use WebSockets, whose origin is checked; the library's other transport is disabled."""
    answer = person.get(_SOCKET)

    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers
    assert person.get("/portal/", follow_redirects=True).status_code == 200
