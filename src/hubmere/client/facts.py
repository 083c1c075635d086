"""What a node tells its own clients about a hub beyond Kafka: DescribeConfigs with the names of `model.facts`.

Another Kafka broker leaves out entries that it does not know; the answer is then None, and callers do without.
"""

import json
from typing import Any, Final

from hubmere.client.connection import Client, Connection
from hubmere.client.failures import Refused
from hubmere.model.facts import CAPTURE, CONSUMER_GROUPS
from hubmere.wire.kafka.messages.configs import ConfigResource, DescribeConfigsRequest, ResourceType

_TOPIC: Final = ResourceType.TOPIC
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_LARGEST_BATCH: Final = "max.message.bytes"


def consumer_groups(client: Client, hub: str) -> list[str] | None:
    """The consumer groups of a hub; None if the broker has no such thing."""
    found = _ask(client, hub, CONSUMER_GROUPS)
    return None if found is None else [str(name) for name in found]


def capture_of(client: Client, hub: str) -> dict[str, Any] | None:
    """Where the captured files of a hub are (`url`, null if nowhere) and how they are called; None if unknown."""
    found = _ask(client, hub, CAPTURE)
    return found if isinstance(found, dict) else None


def largest_batch_bytes(client: Client, hub: str) -> int | None:
    """The size of the largest batch that the hub takes; None if the broker does not tell."""
    value = _value_of(client, hub, _LARGEST_BATCH)
    return None if value is None else int(value)


def has_ordered_times(client: Client, hub: str) -> bool:
    """Whether times of events never decrease: those of the broker do not, those of producers (CreateTime) may."""
    try:
        return _value_of(client, hub, _TIMESTAMP_TYPE) == "LogAppendTime"
    except Refused:
        # Another broker that does not tell.
        return False


def _ask(client: Client, hub: str, name: str) -> Any:
    value = _value_of(client, hub, name)
    return None if value is None else json.loads(value)


def _value_of(client: Client, hub: str, name: str) -> str | None:
    resource = ConfigResource(resource_type=_TOPIC, resource_name=hub, configuration_keys=(name,))

    def attempt(connection: Connection) -> str | None:
        (result,) = connection.ask(DescribeConfigsRequest(resources=(resource,))).results
        if result.error_code:
            raise Refused(f"hub '{hub}'", result.error_code)
        return next((entry.value for entry in result.configs if entry.name == name), None)

    return client.call(attempt)
