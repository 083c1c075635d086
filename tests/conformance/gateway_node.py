"""A gateway in front of given Kafka brokers, with what the tests of AMQP clients need of `AmqpNode`."""

import json
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from conformance.conformance_node import gateway_settings
from hubmere.model.names import ROOT_RULE
from hubmere.testing import Node

_API = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"
_VERSION = "api-version=2024-01-01"
_ANSWER_SECONDS = 120.0


class GatewayNode:
    """A gateway for the length of a `with` block; every hub has the consumer groups `$Default` and `second`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hubmere-gateway-")
        unlimited = {"limits.hubs_per_namespace": "unlimited", "limits.rules_per_entity": "unlimited"}
        self.node = Node(settings={**unlimited, **gateway_settings(Path(self._folder.name))})

    def __enter__(self) -> Self:
        self.node.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.node.__exit__(kind, error, trace)
        self._folder.cleanup()

    @property
    def port(self) -> int:
        """Of AMQP without TLS."""
        return int(self.node.amqp.rpartition(":")[2])

    @property
    def key(self) -> str:
        """Of the rule that may do everything."""
        parts = dict(part.split("=", 1) for part in self.node.connection_string.split(";") if part)
        return parts["SharedAccessKey"]

    def connection_string(self, rule: str = ROOT_RULE, key: str | None = None) -> str:
        """For clients in emulator mode."""
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={rule};"
            f"SharedAccessKey={key or self.key};UseDevelopmentEmulator=true;"
        )

    def add_rule(self, name: str, *rights: str) -> str:
        """Make a rule on the namespace; its connection string for emulator clients."""
        self._ask("PUT", f"/authorizationRules/{name}", {"properties": {"rights": list(rights)}})
        keys = self._ask("POST", f"/authorizationRules/{name}/listKeys", None)
        return self.connection_string(name, str(keys["primaryKey"]))

    def add_hub(self, name: str, partitions: int) -> None:
        """Make a hub."""
        self.write_hub(name, partitionCount=partitions)
        self._ask("PUT", f"/eventhubs/{name}/consumergroups/second", {"properties": {}})

    def write_hub(self, name: str, **properties: object) -> None:
        """Make a hub, or change it."""
        self._ask("PUT", f"/eventhubs/{name}", {"properties": properties})

    def delete_hub(self, name: str) -> None:
        """Delete a hub."""
        self._ask("DELETE", f"/eventhubs/{name}", None)

    def _ask(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"{self.node.http.rstrip('/')}{_API}/{self.node.namespace}{path}?{_VERSION}",
            method=method,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.node.admin_token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
