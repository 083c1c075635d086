"""The capture plan that the node sends to the job: hubs, their windows and their destinations.

Parsed and checked once; sent to executors as the same JSON. Secrets never appear in texts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hubmere.client.connection import CLIENT_ID_PREFIX, Account, KafkaAddress
from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.files.names import DELTA_FORMAT, EXTENSIONS, NameFormat
from hubmere.pipeline.capture.planning.windows import Rules

# For logs and the portal. The node charges no egress for the job (reference: service 6) because of the credential in
# the plan's connection string.
CLIENT_ID: Final = CLIENT_ID_PREFIX + "capture"
# A node restarts within a second; if it is away for longer, the run of the hub fails and is repeated with back-off.
_PATIENCE_S: Final = 30.0
_ANSWER_TIMEOUT_S: Final = 20.0
_SECURE: Final = "SASL_SSL"


class InvalidPlan(ValueError):
    """The answer of the node is not a valid plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The destination of files: a URL and its credentials."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in logs or reports."""
        return tuple(text for text in self.options.values() if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPlan:
    """One captured hub."""

    namespace: str
    hub: str
    id: str
    partition_count: int
    since: Mapping[int, int]
    encoding: CaptureEncoding
    rules: Rules
    name_format: str
    target: Target
    account: Account
    topic_id: str | None = None  # None: an older node; a hub that was created again is then not noticed at once

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the hub in the job; a hub that was created again has another."""
        return (self.namespace, self.hub, self.id)

    def names(self, text: str, encoding: CaptureEncoding) -> NameFormat:
        """The names of its files for a format and an encoding, which may be those of an earlier plan."""
        return NameFormat(text=text, namespace=self.namespace, hub=self.hub, extension=EXTENSIONS[encoding])

    @property
    def format(self) -> str:
        """The effective name format."""
        return DELTA_FORMAT if self.encoding is CaptureEncoding.DELTA else self.name_format

    def __str__(self) -> str:
        return f"{self.namespace}/{self.hub}"


def read_plan(text: bytes | str) -> dict[tuple[str, str, str], HubPlan]:
    """Parse the hubs of a plan, by key."""
    try:
        whole = json.loads(text)
        plans = [read_hub({**hub, "at": {name: whole[name] for name in _PLACE}}) for hub in whole["hubs"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidPlan(f"{type(error).__name__} {error}") from None
    return {plan.key: plan for plan in plans}


_PLACE: Final = ("bootstrap", "security", "caFile")


def read_hub(given: Mapping[str, Any]) -> HubPlan:
    """One hub, with the address where it is read (`at`)."""
    destination = given["destination"]
    encoding = CaptureEncoding(given["encoding"])
    return HubPlan(
        namespace=str(given["namespace"]),
        hub=str(given["hub"]),
        id=str(given["id"]),
        partition_count=int(given["partitionCount"]),
        since={int(partition): int(first) for partition, first in given["since"].items()},
        encoding=encoding,
        rules=Rules(
            interval_s=int(given["intervalSeconds"]),
            size_limit_bytes=int(given["sizeLimitBytes"]),
            # The log of a table never lists an empty file, so none is written.
            skips_empty=bool(given["skipEmptyArchives"]) or encoding is CaptureEncoding.DELTA,
        ),
        name_format=str(given["nameFormat"]),
        target=Target(
            url=str(destination["url"]),
            options={name: str(text) for name, text in (destination.get("options") or {}).items() if text is not None},
        ),
        account=_account(given["at"], str(given["connectionString"])),
        topic_id=given.get("topicId"),
    )


def _account(at: Mapping[str, Any], connection_string: str) -> Account:
    host, _, port = str(at["bootstrap"]).rpartition(":")
    address = KafkaAddress(
        host=host.removeprefix("[").removesuffix("]"),
        port=int(port),
        is_secure=at["security"] == _SECURE,
        ca_file=at["caFile"],
    )
    return Account(
        address=address,
        connection_string=connection_string,
        client_id=CLIENT_ID,
        answer_timeout_s=_ANSWER_TIMEOUT_S,
        patience_s=_PATIENCE_S,
    )
