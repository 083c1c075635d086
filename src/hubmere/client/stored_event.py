"""An event of a hub as a program reads it from a node over HTTP."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One event of a hub. `key` is the partition key, else the key of a Kafka record."""

    partition: int
    sequence_number: int
    enqueued_time: datetime
    key: str | None
    body: bytes
    properties: Mapping[str, object]
    system_properties: Mapping[str, object]

    @classmethod
    def from_json(cls, partition: int, event: Mapping[str, Any]) -> Self:
        """The event of a JSON response."""
        body: str = event["body"] or ""
        return cls(
            partition=partition,
            sequence_number=event["sequenceNumber"],
            enqueued_time=datetime.fromisoformat(event["enqueuedTime"]),
            key=event["partitionKey"] if event["partitionKey"] is not None else event["key"],
            body=base64.b64decode(body) if event["bodyEncoding"] == "base64" else body.encode(),
            properties={name: typed["value"] for name, typed in event["properties"].items()},
            system_properties={name: typed["value"] for name, typed in event["systemProperties"].items()},
        )

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)
