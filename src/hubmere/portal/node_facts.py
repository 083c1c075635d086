"""Facts about the node that the overview shows and that the broker does not know."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The node's TLS certificate: when it expires, and the certificate of the private CA that signed it, if any."""

    expires_ms: int
    ca_pem: str | None = None


def _no_certificate() -> Certificate | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Version, data folder and certificate of a node. `read_certificate` may be called on any thread."""

    version: str = ""
    data_folder: str = ""
    # The Kafka brokers that store the events of a gateway; empty on a single node.
    kafka_brokers: str = ""
    # Whether a private CA of the node signed its certificate.
    has_private_ca: bool = False
    read_certificate: Callable[[], Certificate | None] = _no_certificate
