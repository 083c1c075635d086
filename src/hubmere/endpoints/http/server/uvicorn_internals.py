"""Checks that the installed uvicorn has the internal methods and attributes that this package uses.

`bounded`, `protocol` and `upgrade` subclass uvicorn's connections and override methods that uvicorn does not promise to
keep. `pyproject.toml` therefore bounds its version. This check catches an installation that ignores the bound: the node
refuses to start with one clear message, instead of failing in the middle of a request.
The tables name every method that is overridden or called, with its parameters, and every attribute that is read or set.
"""

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

# As in pyproject.toml; a test compares them.
REQUIRED = "uvicorn>=0.54,<0.55"


class UsedMembers(NamedTuple):
    """The members of one uvicorn class that are used here: methods with their parameters, attributes of instances."""

    kind: type[Any]
    methods: Mapping[str, tuple[str, ...]]
    attributes: Sequence[str] = ()


_CONNECTION: Mapping[str, tuple[str, ...]] = {
    "connection_made": ("transport",),
    "connection_lost": ("exc",),
    "data_received": ("data",),
    "pause_writing": (),
    "resume_writing": (),
    "shutdown": (),
}

HTTP_INTERNALS = (
    UsedMembers(
        HttpToolsProtocol,
        {
            **_CONNECTION,
            "__init__": ("config", "server_state", "app_state", "_loop"),
            "handle_websocket_upgrade": (),
            "on_message_begin": (),
            "on_url": ("url",),
            "on_header": ("name", "value"),
            "on_headers_complete": (),
            "on_body": ("body",),
            "on_message_complete": (),
            "on_response_complete": (),
            "send_400_response": ("msg",),
            "_should_upgrade": (),
            "_should_upgrade_to_ws": (),
            "_start_asgi_task": ("cycle", "app"),
            "_unset_keepalive_if_required": (),
        },
        (
            *("access_log", "client", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "pipeline"),
            *("scheme", "scope", "server_state", "transport", "ws_protocol_class"),
        ),
    ),
    UsedMembers(
        RequestResponseCycle,
        {"run_asgi": ("app",)},
        (
            *("body", "disconnected", "keep_alive", "message_event", "more_body", "on_response"),
            *("response_complete", "response_started", "scope"),
        ),
    ),
    UsedMembers(
        FlowControl, {"__init__": ("transport",), "pause_reading": (), "resume_reading": ()}, ("write_paused",)
    ),
    UsedMembers(ServerState, {}, ("connections", "default_headers", "tasks")),
)


def websocket_internals(kind: type[Any]) -> UsedMembers:
    """The members of uvicorn's WebSocket connection, which is loaded with the first WebSocket only."""
    methods = {**_CONNECTION, "handle_message": ("event",)}
    return UsedMembers(kind, methods, ("client", "loop", "queue", "read_paused", "transport"))


class UvicornMismatch(Exception):
    """The installed uvicorn lacks something that the HTTP endpoint uses."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """Names the installed version, and what does not fit."""
        return (
            f"uvicorn {uvicorn.__version__} does not fit this version of Hubmere: {'; '.join(self.problems)}. "
            f"Install {REQUIRED}."
        )


def check_internals(used: Sequence[UsedMembers] = HTTP_INTERNALS) -> None:
    """Raise UvicornMismatch unless every member exists, and every method has the expected parameters."""
    problems = [problem for members in used for problem in _problems(members)]
    if problems:
        raise UvicornMismatch(problems)


def _problems(members: UsedMembers) -> list[str]:
    name = members.kind.__name__
    problems = []
    for method, expected in members.methods.items():
        function = getattr(members.kind, method, None)
        if not isinstance(function, FunctionType):
            problems.append(f"{name}.{method} is missing")
        elif (found := _parameters(function)) != expected:
            problems.append(f"{name}.{method} takes ({', '.join(found)}) instead of ({', '.join(expected)})")
    # Attributes of instances are assigned in `__init__`; an instance would need a transport and an application.
    assigned = members.kind.__init__.__code__.co_names
    problems += [f"{name}.{attribute} is missing" for attribute in members.attributes if attribute not in assigned]
    return problems


def _parameters(function: FunctionType) -> tuple[str, ...]:
    """The names of the positional parameters after `self`."""
    code = function.__code__
    return code.co_varnames[1 : code.co_argcount]
