"""Settings that are tables of the configuration file: hubs to create, and partners on other nodes."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSetting:
    """An event hub that the node creates at start if it does not exist; an existing one is not changed."""

    name: str
    namespace: str | None = None  # None: the node's own
    partition_count: int | None = None  # None: `default_partition_count`
    consumer_groups: tuple[str, ...] = ()  # beside $Default
    retention_hours: int | None = None  # None: the service's default
    user_metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerSetting:
    """A namespace on another node with which namespaces of this node can be paired, and the address of that node."""

    name: str
    url: str
    token: str = field(repr=False)
    ca_file: Path | None = None  # None: the authorities that the system trusts
