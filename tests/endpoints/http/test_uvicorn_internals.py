"""The internals of uvicorn that we override and call exist, and a uvicorn without them is refused at start."""

import re
import tomllib
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from hubmere.endpoints.http.server import bounded, protocol, upgrade
from hubmere.endpoints.http.server.server import HttpServers
from hubmere.endpoints.http.server.uvicorn_internals import (
    HTTP_INTERNALS,
    REQUIRED,
    UvicornMismatch,
    check_internals,
    websocket_internals,
)

ROOT = Path(__file__).parents[3]


def test_installed_uvicorn_is_accepted() -> None:
    """The version of `constraints.txt` is the one that the tables describe."""
    check_internals()
    check_internals([websocket_internals(WSProtocol)])


@pytest.mark.parametrize("name", ["_start_asgi_task", "_unset_keepalive_if_required", "on_response_complete"])
def test_a_missing_method_ends_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message names the version and the method, before a port is served."""
    monkeypatch.delattr(HttpToolsProtocol, name)

    with pytest.raises(UvicornMismatch) as mismatch:
        HttpServers(app=None)

    assert f"uvicorn {uvicorn.__version__} does not fit" in str(mismatch.value)
    assert f"HttpToolsProtocol.{name} is missing" in str(mismatch.value)


def test_method_with_other_parameters_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method with other parameters is as bad as a missing one."""

    def changed(self: object, cycle: object) -> None:
        """A method with a different signature."""

    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", changed)

    with pytest.raises(UvicornMismatch, match=re.escape("_start_asgi_task takes (cycle) instead of (cycle, app)")):
        check_internals()


def test_missing_attribute_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes are set by the constructor of uvicorn's class."""

    def changed(
        self: HttpToolsProtocol, config: object, server_state: object, app_state: object, _loop: object
    ) -> None:
        self.parser = None

    monkeypatch.setattr(HttpToolsProtocol, "__init__", changed)

    with pytest.raises(UvicornMismatch, match=r"HttpToolsProtocol\.pipeline is missing"):
        check_internals()


def test_every_override_of_uvicorn_is_in_the_tables() -> None:
    """A new override without a row would not be checked."""
    listed = {members.kind: set(members.methods) for members in (*HTTP_INTERNALS, websocket_internals(WSProtocol))}
    ours = {
        HttpToolsProtocol: (bounded.BoundedProtocol, protocol.HttpConnection),
        WSProtocol: (upgrade.WebSocketProtocol,),
    }

    for theirs, classes in ours.items():
        overridden = {name for kind in classes for name in vars(kind) if callable(vars(theirs).get(name))}
        assert overridden <= listed[theirs] | {"__init__"}


def test_the_required_version_has_an_upper_bound() -> None:
    """Private methods may change with any minor version."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert [line for line in dependencies if line.startswith("uvicorn")] == [REQUIRED]
    assert re.fullmatch(r"uvicorn>=0\.\d+,<0\.\d+", REQUIRED)
