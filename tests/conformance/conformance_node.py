"""A node for foreign clients, as a child process with every port open, and changes that tests make on it. Tests use the
same means as an operator: the settings file, the ready file and the management API. Each test gets its own hubs, so
that one node serves all tests and no test sees another's events.
"""

import json
import os
import secrets
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hubmere.testing import Node

_API = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
_VERSION = "api-version=2024-01-01"
_ANSWER_SECONDS = 120.0
# This is not the product's default: every test creates hubs.
_SETTINGS: Mapping[str, str | int | float | bool] = {
    "memory": True,
    "limits.hubs_per_namespace": "unlimited",
    "limits.rules_per_entity": "unlimited",
}


# Addresses of Kafka brokers: the tests then run against a gateway in front of them.
GATEWAY_VARIABLE = "HUBMERE_CONFORMANCE_KAFKA"


def is_on_cluster() -> bool:
    """Whether the tests run against a gateway."""
    return GATEWAY_VARIABLE in os.environ


def gateway_settings(folder: Path) -> dict[str, str]:
    """The settings of a gateway with its own topics, if brokers are given; otherwise none."""
    brokers = os.environ.get(GATEWAY_VARIABLE)
    if brokers is None:
        return {}
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(16), encoding="ascii")
    prefix = f"arena-{secrets.token_hex(4)}."
    given = {"cluster_kafka": brokers, "cluster_secret_file": str(secret), "cluster_prefix": prefix}
    return {"store": "cluster", **given}


class Transport(StrEnum):
    """How AMQP clients reach a node; the value is the column of the compatibility page."""

    PLAIN = "plain"
    TLS = "TLS"
    WEB_SOCKET = "WebSocket"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLocation:
    """The address and credential with which a client uses a hub."""

    transport: Transport
    port: int
    connection: str
    hub: str

    def as_arguments(self) -> dict[str, Any]:
        """The same as arguments for a driver in another language."""
        return {
            "connection": self.connection,
            "hub": self.hub,
            "webSocket": self.transport is Transport.WEB_SOCKET,
        }


class ConformanceNode:
    """A node for the length of a `with` block; `settings` override those of all tests."""

    def __init__(self, **settings: str | int | float | bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hubmere-arena-")
        gateway = gateway_settings(Path(self._folder.name))
        self.node = Node(settings={**_SETTINGS, **gateway, "memory": not gateway, **settings})
        self._numbers = count(1)

    def __enter__(self) -> Self:
        self.node.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.__exit__(kind, error, trace)
        self._folder.cleanup()

    def new_hub(self, partitions: int = 2, **properties: object) -> str:
        """Create a hub for one test."""
        name = f"hub-{next(self._numbers)}"
        self.write_hub(name, partitions, **properties)
        return name

    def write_hub(self, name: str, partitions: int, **properties: object) -> None:
        """Create or change a hub; further properties have their names in the management API."""
        self._put(f"/eventhubs/{name}", {"partitionCount": partitions, **properties})

    def write_group(self, hub: str, group: str) -> None:
        """Create a consumer group."""
        self._put(f"/eventhubs/{hub}/consumergroups/{group}", {})

    def new_key(self, *rights: str) -> tuple[str, str]:
        """Name and key of a new rule of the namespace."""
        name = f"rule-{next(self._numbers)}"
        self._put(f"/authorizationRules/{name}", {"rights": list(rights)})
        keys = self._ask("POST", f"/authorizationRules/{name}/listKeys", None)
        return name, str(keys["primaryKey"])

    def place(self, transport: Transport, hub: str, rule: tuple[str, str] | None = None) -> HubLocation:
        """The address of a hub for clients, with the rights of the root rule unless another rule is given."""
        port = self.port(transport)
        name, key = rule or self.root
        emulator = ";UseDevelopmentEmulator=true" if transport is Transport.PLAIN else ""
        connection = f"Endpoint=sb://localhost:{port}/;SharedAccessKeyName={name};SharedAccessKey={key}{emulator}"
        return HubLocation(transport=transport, port=port, connection=connection, hub=hub)

    def port(self, transport: Transport) -> int:
        """The port of a transport."""
        served = {
            Transport.PLAIN: self.node.amqp,
            Transport.TLS: self.node.amqps,
            Transport.WEB_SOCKET: self.node.https,
        }
        return int(served[transport].rstrip("/").rpartition(":")[2])

    @property
    def root(self) -> tuple[str, str]:
        """Name and key of the rule with all rights."""
        parts = dict(part.split("=", 1) for part in self.node.connection_string.split(";") if part)
        return parts["SharedAccessKeyName"], parts["SharedAccessKey"]

    def _put(self, path: str, properties: Mapping[str, object]) -> None:
        self._ask("PUT", path, {"properties": properties})

    def _ask(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"{self.node.http.rstrip('/')}{_API}/{self.node.namespace}{path}?{_VERSION}",
            method=method,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.node.admin_token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
