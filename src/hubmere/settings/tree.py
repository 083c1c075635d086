"""The settings: each is declared once, as a typed field with its default, its range and its description.

`SETTINGS` has the same declarations as a table. The flags of the command, the names of the variables, the keys of the
file and the reference page are derived from it. Nothing is read here.
"""

# ruff: noqa: RUF009  `declare` gives a dataclass field, not a value

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from hubmere.model.addresses import AdvertisedListener
from hubmere.model.capture.targets import CapturePlace
from hubmere.model.names import DEFAULT_STORAGE_ACCOUNT, NAMESPACE_RULE, STORAGE_ACCOUNT_RULE
from hubmere.model.tier import Override
from hubmere.settings.cluster import CLUSTER, ClusterSettings
from hubmere.settings.declaration import Setting, declare, declared_settings
from hubmere.settings.identity import IdentityTables
from hubmere.settings.kinds import (
    ADVERTISED,
    GIB,
    HOST,
    HOSTS,
    KIB,
    MIB,
    OPTIONAL_PATH,
    OPTIONAL_URL,
    PATH,
    PORT,
    SWITCH,
    TEXT,
    choice,
    count,
    list_of,
    name,
    optional_size,
    seconds,
    size,
    word,
)
from hubmere.settings.tables import HubSetting, PartnerSetting

# More than any tier of the service has; the tier's own limit is checked when a hub is created.
MAX_PARTITIONS = 10_000

Tier = Literal["basic", "standard", "premium", "dedicated", "developer", "unlimited"]
Durability = Literal["fsync", "os"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_NODE, _NETWORK, _TLS, _STORAGE, _SERVICE, _LOGS = "Node", "Network", "TLS", "Storage", "Service", "Logs"
_CAPTURE, _IDENTITY = "Capture", "Identity"
# Algorithms with which a token of an issuer may be signed. Symmetric algorithms and `none` are never accepted.
TOKEN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ClusterSettings):
    """All settings of a node."""

    data: Path = declare(
        _NODE,
        PATH,
        Path("hubmere-data"),
        "Folder for events, entities, keys and certificates.",
    )
    namespace: str = declare(
        _NODE,
        name(NAMESPACE_RULE),
        "hubmere",
        "Name of the namespace that the first start creates.",
    )
    hostname: tuple[str, ...] = declare(
        _NODE,
        HOSTS,
        (),
        "Name under which clients reach the node, for its certificate and connection strings; may be given again. "
        "Further namespaces have names below it; with *.example.org every namespace has a name below example.org.",
    )
    advertised_listeners: tuple[AdvertisedListener, ...] = declare(
        _NODE,
        ADVERTISED,
        (),
        "Host name and port that one listener (amqp, amqps, kafka, kafkas, http or https) advertises, such as "
        "kafka://events.example.org:19092; may be given again. Default: the first hostname and the port it listens on.",
    )
    memory: bool = declare(
        _NODE,
        SWITCH,
        False,
        "Keep everything in memory: nothing is written to disk, and all data is lost at a stop.",
    )
    ready_file: Path | None = declare(
        _NODE,
        OPTIONAL_PATH,
        None,
        "JSON file with addresses and keys, written once every port accepts connections.",
    )
    shutdown_timeout_s: float = declare(
        _NODE,
        seconds(0.1, 300),
        5.0,
        "Longest time that a stop waits for group commits and open connections.",
    )

    host: str = declare(
        _NETWORK,
        HOST,
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 is every IPv4 address of the machine.",
    )
    amqp_port: int | None = declare(_NETWORK, PORT, 5672, "Port for AMQP without TLS.")
    amqps_port: int | None = declare(_NETWORK, PORT, 5671, "Port for AMQP over TLS.")
    kafka_port: int | None = declare(_NETWORK, PORT, 9092, "Port for Kafka clients with SASL_PLAINTEXT.")
    kafkas_port: int | None = declare(_NETWORK, PORT, 9093, "Port for Kafka clients with SASL_SSL.")
    http_port: int | None = declare(_NETWORK, PORT, 5300, "Port for HTTP without TLS, health check included.")
    https_port: int | None = declare(_NETWORK, PORT, 5301, "Port for HTTPS.")
    max_connections: int = declare(
        _NETWORK,
        count(1, 1_000_000),
        20_000,
        "Largest number of open connections over all ports; further ones are closed, except 16 that are reserved for "
        "health checks and management.",
    )
    protocol_connections_percent: int = declare(
        _NETWORK,
        count(1, 100),
        75,
        "Share of max_connections that one protocol (AMQP, Kafka or HTTP with WebSockets) may hold; 100 is no limit.",
    )
    address_connections_percent: int = declare(
        _NETWORK,
        count(1, 100),
        90,
        "Share of max_connections that one client address may hold; 100 is no limit.",
    )
    handshake_timeout_s: float = declare(
        _NETWORK,
        seconds(1, 600),
        30.0,
        "Time in which a new connection must complete TLS, and then authenticate or send its first HTTP request.",
    )
    amqp_idle_timeout_s: float = declare(
        _NETWORK,
        seconds(5, 86_400),
        120.0,
        "Idle timeout announced to AMQP peers; a connection that is silent for twice as long is closed.",
    )
    kafka_idle_timeout_s: float = declare(
        _NETWORK,
        seconds(5, 86_400),
        600.0,
        "Time without a request after which a Kafka connection is closed.",
    )
    group_consumer_session_timeout_s: float = declare(
        _NETWORK,
        seconds(1, 1800),
        45.0,
        "Time without a heartbeat after which a member of a Kafka consumer group (group.protocol=consumer) is removed.",
    )
    group_consumer_heartbeat_interval_s: float = declare(
        _NETWORK,
        seconds(0.05, 600),
        5.0,
        "Heartbeat interval of members of Kafka consumer groups; a shorter one makes rebalances faster.",
    )
    group_consumer_max_size: int = declare(
        _NETWORK,
        count(1, 100_000),
        5_000,
        "Members that one Kafka consumer group (group.protocol=consumer) may have.",
    )
    memory_budget_bytes: int | None = declare(
        _NETWORK,
        optional_size(16 * MIB, 1024 * GIB),
        None,
        "Memory for incomplete requests and unread responses of all connections; default: a quarter of the "
        "machine's or the control group's memory.",
    )
    http_body_bytes: int = declare(
        _NETWORK,
        size(MIB, 256 * MIB),
        16 * MIB,
        "Largest HTTP request body that is read; the limits of the tier are checked in addition.",
    )

    blobs: bool = declare(
        _SERVICE,
        SWITCH,
        True,
        "Serve the part of the Azure Blob service that checkpoint stores of event processors use, on the HTTP ports.",
    )
    blob_account: str = declare(
        _SERVICE,
        name(STORAGE_ACCOUNT_RULE),
        DEFAULT_STORAGE_ACCOUNT,
        "Name of the storage account; its keys are created at the first start, and the first one is in the ready file.",
    )
    blob_development_account: bool = declare(
        _SERVICE,
        SWITCH,
        False,
        "Serve the account devstoreaccount1 with its publicly known key, as Azurite does. For development only.",
    )
    blob_max_bytes: int = declare(
        _SERVICE,
        size(MIB, 4 * GIB),
        256 * MIB,
        "Largest blob, or block of a blob, that one request may upload.",
    )

    tls_certificate: Path | None = declare(
        _TLS,
        OPTIONAL_PATH,
        None,
        "Your own server certificate chain (PEM), instead of one issued by the node's private CA.",
    )
    tls_key: Path | None = declare(
        _TLS,
        OPTIONAL_PATH,
        None,
        "Private key (PEM) of the certificate in tls_certificate.",
    )
    tls_client_ca: Path | None = declare(
        _TLS,
        OPTIONAL_PATH,
        None,
        "CA certificates (PEM): clients on TLS ports must then present a certificate issued by one of them.",
    )

    durability: Durability = declare(
        _STORAGE,
        choice("fsync", "os"),
        "fsync",
        "When an event is acknowledged: fsync once the disk has it, os once the operating system has it.",
    )
    segment_bytes: int = declare(
        _STORAGE,
        size(MIB, 2 * GIB - 1),
        256 * MIB,
        "Size at which the log of a partition starts a new segment file.",
    )
    retention_check_interval_s: float = declare(
        _STORAGE,
        seconds(1, 86_400),
        300.0,
        "Time between two runs of retention and compaction.",
    )

    disk_warn_percent: int = declare(
        _STORAGE,
        count(1, 90),
        10,
        "Free part of the data folder's disk in percent below which health, metrics and log warn.",
    )
    disk_reserve_bytes: int = declare(
        _STORAGE,
        size(MIB, 1024 * GIB),
        64 * MIB,
        "Free space, at most a twentieth of the disk, below which events are refused until space is free again.",
    )
    clock_confirm_s: float = declare(
        _STORAGE,
        seconds(1, 7 * 86_400),
        300.0,
        "Time for which a jump of the machine's clock must last before events use it; retention waits 12 times that.",
    )

    tier: Tier | None = declare(
        _SERVICE,
        choice("basic", "standard", "premium", "dedicated", "developer", "unlimited"),
        None,
        "Tier whose quotas apply, including throttling; developer has the quotas of standard without throttling. "
        "Default: the message limits of standard, and no quotas.",
        key="as",
    )
    deflate_after_s: float = declare(
        _SERVICE,
        seconds(1, 7 * 86_400),
        600.0,
        "Quiet time after which auto-inflate reduces the throughput units of a namespace that has a minimum.",
    )
    auto_create_hubs: bool = declare(
        _SERVICE,
        SWITCH,
        True,
        "Create a hub when a Kafka client with the Manage right asks for one that does not exist.",
    )
    default_partition_count: int = declare(
        _SERVICE,
        count(1, MAX_PARTITIONS),
        4,
        "Partitions of a hub that is created without a partition count.",
    )
    clock_skew_s: int = declare(
        _SERVICE,
        count(0, 3600),
        0,
        "Seconds for which a token is accepted after it has expired, and before it becomes valid.",
    )
    rotated_key_grace_s: int = declare(
        _SERVICE,
        count(0, 7 * 86_400),
        3600,
        "Seconds for which open links and connections stay open after the key they were opened with was regenerated.",
    )

    local_identity: bool = declare(
        _IDENTITY,
        SWITCH,
        False,
        "Run an OAuth issuer for development and tests, with test identities; needs https_port. Never for production.",
    )
    token_algorithms: tuple[str, ...] = declare(
        _IDENTITY,
        list_of(word(*TOKEN_ALGORITHMS)),
        TOKEN_ALGORITHMS,
        "Algorithms with which tokens of OAuth issuers may be signed; may be given again.",
    )

    capture_supervise: bool = declare(
        _CAPTURE,
        SWITCH,
        True,
        "Start the capture job while a hub is captured, and keep it running; if off, you run the job elsewhere.",
    )
    capture_master: str = declare(
        _CAPTURE,
        TEXT,
        "local[2,4]",
        "Spark master of the capture job: local[cores,tries], or the address of a cluster.",
    )
    capture_sleep_after_s: int = declare(
        _CAPTURE,
        count(0, 86_400),
        60,
        "Stop the capture job after this number of seconds without work, if no window ends within the same time; it is "
        "started again before the next window ends. 0: never stop it.",
    )
    capture_heap_mb: int = declare(
        _CAPTURE,
        count(512, 65_536),
        768,
        "Java heap of the capture job in MB.",
    )
    capture_java: Path | None = declare(
        _CAPTURE,
        OPTIONAL_PATH,
        None,
        "Java 17 or newer for the capture job: its home or its executable, else JAVA_HOME, else java on the path.",
    )
    capture_folder: Path | None = declare(
        _CAPTURE,
        OPTIONAL_PATH,
        None,
        "Folder for captured files of hubs without a target; default: capture/files in the data folder. With store = "
        "cluster there is no default: it must be a folder that all gateways share.",
    )
    capture_account_folders: bool = declare(
        _CAPTURE,
        SWITCH,
        False,
        "Treat a storage account that is not a capture target as a folder of that name below capture_folder.",
    )
    capture_checkpoint_dir: Path | None = declare(
        _CAPTURE,
        OPTIONAL_PATH,
        None,
        "Folder for the checkpoints of the capture job; default: capture/checkpoints in the data folder. With store = "
        "cluster there is no default: it must be a folder that all gateways share.",
    )
    capture_hold_retention: bool = declare(
        _CAPTURE,
        SWITCH,
        True,
        "Keep events of a captured hub past their retention until they are captured.",
    )
    capture_hold_bytes: int = declare(
        _CAPTURE,
        size(MIB, 1024 * 1024 * GIB),
        10 * GIB,
        "Size of a partition above which events past retention are deleted even if they are not captured.",
    )

    log_format: LogFormat = declare(
        _LOGS,
        choice("text", "json"),
        "text",
        "Format of the log lines on standard error.",
    )
    log_level: LogLevel = declare(
        _LOGS,
        choice("debug", "info", "warning", "error"),
        "info",
        "Lowest level of log lines that are written.",
    )
    audit_log: bool = declare(
        _LOGS,
        SWITCH,
        True,
        "Write a line of JSON for every management action to audit.log in the data folder.",
    )
    audit_log_bytes: int = declare(
        _LOGS,
        size(64 * KIB, GIB),
        16 * MIB,
        "Size at which audit.log is rotated; five files are kept.",
    )

    otlp_endpoint: str | None = declare(
        _LOGS,
        OPTIONAL_URL,
        None,
        "Address of an OpenTelemetry collector (OTLP over HTTP) that gets spans; needs hubmere[otel].",
    )

    # From the file (and, for limits, the environment) only: tables have no flag.
    limits: Mapping[str, Override] = field(default_factory=lambda: MappingProxyType({}))
    hubs: tuple[HubSetting, ...] = ()
    partners: tuple[PartnerSetting, ...] = ()
    identity: IdentityTables = IdentityTables()
    capture_targets: Mapping[str, CapturePlace] = field(default_factory=lambda: MappingProxyType({}))
    # Started with the official emulator's Config.json: its literal key SAS_KEY_VALUE is then accepted.
    is_emulator: bool = False

    @property
    def client_hosts(self) -> tuple[str, ...]:
        """Every host name that clients may use: for the certificate and for tokens."""
        return tuple(dict.fromkeys((*self.hostname, *(entry.host for entry in self.advertised_listeners))))

    @property
    def has_data_folder(self) -> bool:
        """Whether the node keeps anything on its own disk."""
        return not self.memory and not self.is_gateway


# Inherited fields come first in a dataclass; the cluster is the last topic for readers.
SETTINGS: tuple[Setting, ...] = tuple(sorted(declared_settings(Settings), key=lambda setting: setting.panel == CLUSTER))
BY_KEY: Mapping[str, Setting] = MappingProxyType({setting.key: setting for setting in SETTINGS})
