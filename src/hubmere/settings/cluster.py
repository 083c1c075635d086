"""The settings of a gateway: where events are stored, and how the node uses a Kafka cluster.

Declared like all other settings (`tree`), which inherits them. Nothing is read here.
"""

# ruff: noqa: RUF009  `declare` gives a dataclass field, not a value

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hubmere.settings.declaration import declare
from hubmere.settings.kinds import ADDRESSES, OPTIONAL_PATH, SWITCH, TEXT, choice, count, seconds

Store = Literal["local", "cluster"]
ClusterSasl = Literal["none", "plain", "scram-sha-256", "scram-sha-512"]

# The heading of these settings in the help and in the reference.
CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Where events are stored, and the Kafka cluster of a gateway."""

    store: Store = declare(
        CLUSTER,
        choice("local", "cluster"),
        "local",
        "Where events and entities are stored: local is the data folder of this node; cluster is an Apache Kafka "
        "cluster, which any number of gateways share.",
    )
    cluster_kafka: tuple[tuple[str, int], ...] = declare(
        CLUSTER, ADDRESSES, (), "Brokers of the Kafka cluster to connect to first."
    )
    cluster_secret_file: Path | None = declare(
        CLUSTER,
        OPTIONAL_PATH,
        None,
        "File with the secret that all gateways of a cluster share: it encrypts the keys that they store in Kafka.",
    )
    cluster_prefix: str = declare(
        CLUSTER, TEXT, "hubmere.", "Beginning of the names of all topics and groups that gateways use in Kafka."
    )
    cluster_replication: int = declare(
        CLUSTER, count(1, 9), 3, "Number of replicas of every event in the Kafka cluster."
    )
    cluster_min_insync: int = declare(
        CLUSTER, count(1, 9), 2, "Number of replicas that must exist before a publication is acknowledged."
    )
    cluster_unsafe: bool = declare(
        CLUSTER,
        SWITCH,
        False,
        "Start although an acknowledged event may have only one replica. Only for tests: a lost broker loses events.",
    )
    cluster_sasl: ClusterSasl = declare(
        CLUSTER,
        choice("none", "plain", "scram-sha-256", "scram-sha-512"),
        "none",
        "SASL mechanism for the Kafka brokers.",
    )
    cluster_sasl_user: str = declare(CLUSTER, TEXT, "", "User name for the Kafka brokers.")
    cluster_sasl_password_file: Path | None = declare(
        CLUSTER, OPTIONAL_PATH, None, "File with the password for the Kafka brokers."
    )
    cluster_tls: bool = declare(CLUSTER, SWITCH, False, "Connect to the Kafka brokers over TLS.")
    cluster_tls_ca: Path | None = declare(
        CLUSTER, OPTIONAL_PATH, None, "Certificate authorities to trust for the Kafka brokers; else the system's."
    )
    cluster_start_timeout_s: float = declare(
        CLUSTER,
        seconds(0, 86_400),
        0.0,
        "Longest time to wait at start for a reachable Kafka broker, with store = cluster; 0: no limit.",
        key="start_timeout",
    )

    @property
    def is_gateway(self) -> bool:
        """Whether events are kept by a Kafka cluster."""
        return self.store == "cluster"
