"""What is claimed of foreign clients: client by transport by feature, and what does not pass yet with its reason.

Each claim is a cell, and each cell has at least one test that is marked with it:

    pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JS)]

    @pytest.mark.judges(feature=Feature.BATCHES)
    def test_...

Marks of a module, a test and a parameter are taken together, the nearest wins. `docs/compatibility.md` is rendered from
here by `report.py`; a test holds claims and tests together.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from conformance.arena import Transport
from conformance.clients import CACHE, CARGO_TOML, GO_MOD, PACKAGE_JSON, POM, Jars, kafka_version

MARK = "judges"
# What the last runs of the tests gave, by test.
RESULTS = CACHE / "conformance.json"
_ROOT = Path(__file__).parents[2]


class Name(StrEnum):
    """The clients, by the names under which they are published."""

    PYTHON = "azure-eventhub"
    PYTHON_ASYNC = "azure-eventhub (asyncio)"
    PROCESSOR = "azure-eventhub-checkpointstoreblob"
    JS = "@azure/event-hubs"
    JAVA = "azure-messaging-eventhubs"
    GO = "azeventhubs"
    PROTON = "python-qpid-proton"
    RHEA = "rhea"
    CONFLUENT = "confluent-kafka"
    KAFKA_PYTHON = "kafka-python"
    AIOKAFKA = "aiokafka"
    KAFKA_JAVA_1 = "kafka-clients 1"
    KAFKA_JAVA_2 = "kafka-clients 2"
    KAFKA_JAVA_3 = "kafka-clients 3"
    KAFKA_JAVA_4 = "kafka-clients 4"
    KAFKA_TOOLS_3 = "kafka-tools 3"
    KAFKA_TOOLS_4 = "kafka-tools 4"
    KAFKAJS = "kafkajs"
    FRANZ = "franz-go"
    SARAMA = "sarama"
    KAFKA_GO = "kafka-go"
    RUST = "rust-rdkafka"
    KAFKA_CONNECT = "Kafka Connect"
    MIRROR_MAKER = "MirrorMaker 2"
    KAFKA_STREAMS = "Kafka Streams"
    SPARK_KAFKA = "spark-sql-kafka-0-10"


class Feature(StrEnum):
    """What a client can do; the value is the row of the compatibility page."""

    BATCHES = "batches"
    SINGLES = "single events"
    KEY = "partition key"
    PARTITION = "one partition"
    LARGE = "events of several frames"
    BODIES = "value and sequence bodies"
    BUFFERED = "buffered producer"
    IDEMPOTENT = "idempotent producer"
    POSITIONS = "start positions"
    LATEST = "only what comes from now on"
    PREFETCH = "prefetch and credit"
    DRAIN = "drain"
    GROUPS = "consumer groups"
    OWNER = "owner level"
    LAST_ENQUEUED = "last enqueued information"
    PROPERTIES = "hub and partition properties"
    CHECKPOINTS = "checkpoints"
    PROCESSOR = "processor"
    FAIL_OVER = "processors share and take over"
    REFUSALS = "refusals as the client's own errors"
    THROTTLING = "throttling is told at once"
    RECORDS = "keys, headers and timestamps"
    CODECS = "compression"
    ACKS = "every kind of acknowledgement"
    ASSIGN = "partitions of one's own choice"
    PAUSE = "pause and resume"
    COMMITS = "commits"
    COOPERATIVE = "cooperative rebalance"
    STATIC = "static members"
    CONSUMER_PROTOCOL = "consumer group protocol (group.protocol=consumer)"
    REGEX_SUBSCRIPTION = "subscription by regular expression, evaluated by the node"
    MIGRATION = "classic and consumer members in one group"
    TRANSACTIONS = "transactions"
    EXACTLY_ONCE = "read, write and commit exactly once"
    FENCING = "fencing"
    RESTARTS = "goes on after a crash or restart of the node"
    TOPICS = "topics made, grown and deleted"
    CONFIGS = "configurations"
    GROUP_ADMIN = "groups described, moved and deleted"
    RECORD_ADMIN = "offsets listed, records deleted"
    CLUSTER = "cluster, log folders, producers, transactions"
    CONSOLE = "console producer and consumer"
    PERFORMANCE = "performance tests"
    OWN_TOPICS = "compacted topics of its own"
    CONNECTORS = "lines of files in and out"
    CONNECTOR_ORDERS = "connectors paused, resumed and deleted"
    OWN_RESTARTS = "goes on after a restart of its own"
    MIRRORED_EVENTS = "events copied from and to Apache Kafka"
    MIRRORED_CONFIGS = "configurations copied"
    MIRRORED_GROUPS = "places of groups copied"
    HEARTBEATS = "checkpoints and heartbeats"
    SPARK_BATCHES = "batches read and written by Spark"
    SPARK_STREAMS = "streams read and written by Spark"


@dataclass(frozen=True, slots=True)
class Cell:
    """One claim."""

    client: Name
    transport: Transport
    feature: Feature


class Protocol(StrEnum):
    """What clients speak; each has a table of its own on the page."""

    AMQP = "AMQP 1.0"
    KAFKA = "Kafka"


TRANSPORTS: Mapping[Protocol, tuple[Transport, ...]] = {
    Protocol.AMQP: tuple(Transport),
    Protocol.KAFKA: (Transport.PLAIN, Transport.TLS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client, where its pinned version stands, and what is claimed of it."""

    name: Name
    language: str
    version: Callable[[], str]
    claims: Mapping[Transport, frozenset[Feature]]
    protocol: Protocol = Protocol.AMQP


# --- versions --------------------------------------------------------------------------------------------------------


def _of_pip(package: str) -> Callable[[], str]:
    return lambda: _found(rf"(?mi)^{re.escape(package)}==(\S+)", _ROOT / "constraints.txt")


def _of_npm(package: str) -> Callable[[], str]:
    return lambda: str(json.loads(PACKAGE_JSON.read_bytes())["dependencies"][package])


def _of_maven(artifact: str) -> Callable[[], str]:
    return lambda: _found(rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)</version>", POM)


def _of_go(module: str) -> Callable[[], str]:
    return lambda: _found(rf"(?m)^\t{re.escape(module)} v(\S+)", GO_MOD)


def _of_cargo(crate: str) -> Callable[[], str]:
    return lambda: _found(rf'(?m)^{re.escape(crate)} = .*"=([^"]+)"', CARGO_TOML)


def _of_kafka(jars: Jars) -> Callable[[], str]:
    return lambda: kafka_version(jars)


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    assert match is not None, f"{path.name} pins no version for {pattern}"
    return match.group(1)


# --- claims ----------------------------------------------------------------------------------------------------------


def _over(transports: Iterable[Transport], *features: Feature) -> dict[Transport, frozenset[Feature]]:
    return dict.fromkeys(transports, frozenset(features))


def _everywhere(*features: Feature) -> dict[Transport, frozenset[Feature]]:
    return _over(Transport, *features)


def _also(claims: Mapping[Transport, frozenset[Feature]], *features: Feature) -> dict[Transport, frozenset[Feature]]:
    """Claims of an older version and, over every transport, what came later."""
    return {transport: known | frozenset(features) for transport, known in claims.items()}


# What clients that know KIP-848 can do with it.
_CONSUMER_GROUPS = (Feature.CONSUMER_PROTOCOL, Feature.REGEX_SUBSCRIPTION, Feature.MIGRATION)
# Kafka's own clients can do everything, whatever their version.
_KAFKA_JAVA: Mapping[Transport, frozenset[Feature]] = {
    Transport.PLAIN: frozenset(
        {
            Feature.RECORDS,
            Feature.CODECS,
            Feature.ACKS,
            Feature.IDEMPOTENT,
            Feature.POSITIONS,
            Feature.ASSIGN,
            Feature.PAUSE,
            Feature.COMMITS,
            Feature.GROUPS,
            Feature.COOPERATIVE,
            Feature.STATIC,
            Feature.TRANSACTIONS,
            Feature.EXACTLY_ONCE,
            Feature.FENCING,
            Feature.TOPICS,
            Feature.CONFIGS,
            Feature.GROUP_ADMIN,
            Feature.RECORD_ADMIN,
            Feature.CLUSTER,
            Feature.REFUSALS,
        }
    ),
    Transport.TLS: frozenset({Feature.CODECS, Feature.GROUPS}),
}
# What every client that is driven by the same operations does, and what some have beside it.
_KAFKA_COMMON = frozenset(
    {
        Feature.RECORDS,
        Feature.CODECS,
        Feature.ACKS,
        Feature.POSITIONS,
        Feature.COMMITS,
        Feature.GROUPS,
        Feature.TOPICS,
        Feature.CONFIGS,
        Feature.REFUSALS,
    }
)
_KAFKA_TRANSACTIONS = frozenset({Feature.IDEMPOTENT, Feature.TRANSACTIONS, Feature.EXACTLY_ONCE, Feature.FENCING})
_KAFKA_GROUP_ADMIN = frozenset({Feature.GROUP_ADMIN, Feature.RECORD_ADMIN})
_KAFKA_FULL = _KAFKA_COMMON | _KAFKA_TRANSACTIONS | _KAFKA_GROUP_ADMIN | {Feature.STATIC}
_KAFKA_OVER_TLS = frozenset({Feature.CODECS, Feature.GROUPS})
_KAFKA_TOOLS = _over(
    (Transport.PLAIN,),
    Feature.CONSOLE,
    Feature.TOPICS,
    Feature.CONFIGS,
    Feature.GROUP_ADMIN,
    Feature.RECORD_ADMIN,
    Feature.CLUSTER,
    Feature.PERFORMANCE,
)

CLIENTS: tuple[Client, ...] = (
    Client(
        name=Name.PYTHON,
        language="Python",
        version=_of_pip("azure-eventhub"),
        claims={
            Transport.PLAIN: frozenset(
                {
                    Feature.BATCHES,
                    Feature.SINGLES,
                    Feature.KEY,
                    Feature.LARGE,
                    Feature.BODIES,
                    Feature.BUFFERED,
                    Feature.POSITIONS,
                    Feature.LATEST,
                    Feature.GROUPS,
                    Feature.OWNER,
                    Feature.LAST_ENQUEUED,
                    Feature.PROPERTIES,
                    Feature.CHECKPOINTS,
                    Feature.REFUSALS,
                    Feature.THROTTLING,
                }
            ),
            Transport.TLS: frozenset({Feature.BATCHES}),
            Transport.WEB_SOCKET: frozenset({Feature.BATCHES}),
        },
    ),
    Client(
        name=Name.PYTHON_ASYNC,
        language="Python, asyncio",
        version=_of_pip("azure-eventhub"),
        claims={
            Transport.PLAIN: frozenset({Feature.BATCHES, Feature.BUFFERED, Feature.PROCESSOR}),
            Transport.TLS: frozenset({Feature.BATCHES}),
        },
    ),
    Client(
        name=Name.PROTON,
        language="Python, AMQP 1.0 without an SDK",
        version=_of_pip("python-qpid-proton"),
        claims={
            Transport.PLAIN: frozenset(
                {Feature.SINGLES, Feature.LARGE, Feature.POSITIONS, Feature.DRAIN, Feature.REFUSALS}
            ),
            Transport.TLS: frozenset({Feature.SINGLES}),
        },
    ),
    Client(
        name=Name.JS,
        language="Node.js",
        version=_of_npm("@azure/event-hubs"),
        claims=_everywhere(
            Feature.BATCHES,
            Feature.SINGLES,
            Feature.KEY,
            Feature.PARTITION,
            Feature.LARGE,
            Feature.BUFFERED,
            Feature.IDEMPOTENT,
            Feature.POSITIONS,
            Feature.LATEST,
            Feature.PREFETCH,
            Feature.GROUPS,
            Feature.OWNER,
            Feature.LAST_ENQUEUED,
            Feature.PROPERTIES,
            Feature.PROCESSOR,
            Feature.REFUSALS,
        ),
    ),
    Client(
        name=Name.JAVA,
        language="Java",
        version=_of_maven("azure-messaging-eventhubs"),
        claims=_everywhere(
            Feature.BATCHES,
            Feature.SINGLES,
            Feature.KEY,
            Feature.LARGE,
            Feature.BUFFERED,
            Feature.POSITIONS,
            Feature.PREFETCH,
            Feature.OWNER,
            Feature.LAST_ENQUEUED,
            Feature.PROPERTIES,
            Feature.PROCESSOR,
            Feature.REFUSALS,
        ),
    ),
    Client(
        name=Name.GO,
        language="Go",
        version=_of_go("github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"),
        claims=_everywhere(
            Feature.BATCHES,
            Feature.SINGLES,
            Feature.KEY,
            Feature.PARTITION,
            Feature.LARGE,
            Feature.POSITIONS,
            Feature.LATEST,
            Feature.PREFETCH,
            Feature.GROUPS,
            Feature.OWNER,
            Feature.PROPERTIES,
            Feature.PROCESSOR,
            Feature.FAIL_OVER,
            Feature.REFUSALS,
        ),
    ),
    Client(
        name=Name.PROCESSOR,
        language="Python, with checkpoints in Azurite",
        version=_of_pip("azure-eventhub-checkpointstoreblob"),
        claims=_over((Transport.PLAIN,), Feature.FAIL_OVER),
    ),
    Client(
        name=Name.RHEA,
        language="Node.js, AMQP 1.0 without an SDK",
        version=_of_npm("rhea"),
        claims=_everywhere(
            Feature.SINGLES, Feature.LARGE, Feature.POSITIONS, Feature.PREFETCH, Feature.DRAIN, Feature.REFUSALS
        ),
    ),
    Client(
        name=Name.CONFLUENT,
        language="Python, on librdkafka",
        version=_of_pip("confluent-kafka"),
        claims={
            Transport.PLAIN: frozenset(
                {
                    Feature.CODECS,
                    Feature.ACKS,
                    Feature.IDEMPOTENT,
                    Feature.GROUPS,
                    Feature.COOPERATIVE,
                    Feature.STATIC,
                    Feature.TRANSACTIONS,
                    Feature.EXACTLY_ONCE,
                    Feature.FENCING,
                    Feature.RESTARTS,
                    Feature.TOPICS,
                    Feature.GROUP_ADMIN,
                    Feature.RECORD_ADMIN,
                    *_CONSUMER_GROUPS,
                    Feature.REFUSALS,
                }
            ),
            Transport.TLS: frozenset({Feature.CODECS}),
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_PYTHON,
        language="Python",
        version=_of_pip("kafka-python"),
        claims={
            Transport.PLAIN: frozenset(
                {
                    Feature.RECORDS,
                    Feature.CODECS,
                    Feature.GROUPS,
                    Feature.POSITIONS,
                    Feature.TOPICS,
                    Feature.REFUSALS,
                }
            ),
            Transport.TLS: frozenset({Feature.RECORDS}),
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.AIOKAFKA,
        language="Python, asyncio",
        version=_of_pip("aiokafka"),
        claims=_over((Transport.PLAIN,), Feature.CODECS, Feature.IDEMPOTENT, Feature.GROUPS, Feature.TRANSACTIONS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_1,
        language="Java",
        version=_of_kafka(Jars.KAFKA_1),
        claims={
            Transport.PLAIN: _KAFKA_COMMON | _KAFKA_TRANSACTIONS | {Feature.CLUSTER},
            Transport.TLS: _KAFKA_OVER_TLS,
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_2,
        language="Java",
        version=_of_kafka(Jars.KAFKA_2),
        claims={
            Transport.PLAIN: _KAFKA_COMMON | _KAFKA_TRANSACTIONS | _KAFKA_GROUP_ADMIN | {Feature.CLUSTER},
            Transport.TLS: _KAFKA_OVER_TLS,
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_3,
        language="Java",
        version=_of_kafka(Jars.KAFKA_3),
        claims=_KAFKA_JAVA,
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_4,
        language="Java",
        version=_of_kafka(Jars.KAFKA_4),
        claims=_also(_KAFKA_JAVA, *_CONSUMER_GROUPS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKAJS,
        language="Node.js",
        version=_of_npm("kafkajs"),
        claims={
            Transport.PLAIN: frozenset(
                {
                    Feature.RECORDS,
                    Feature.CODECS,
                    Feature.ACKS,
                    Feature.IDEMPOTENT,
                    Feature.POSITIONS,
                    Feature.COMMITS,
                    Feature.GROUPS,
                    Feature.TRANSACTIONS,
                    Feature.EXACTLY_ONCE,
                    Feature.TOPICS,
                    Feature.CONFIGS,
                    Feature.GROUP_ADMIN,
                    Feature.RECORD_ADMIN,
                    Feature.REFUSALS,
                }
            ),
            Transport.TLS: frozenset({Feature.CODECS, Feature.GROUPS}),
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.FRANZ,
        language="Go",
        version=_of_go("github.com/twmb/franz-go"),
        claims={
            Transport.PLAIN: _KAFKA_FULL | {Feature.CONSUMER_PROTOCOL, Feature.REGEX_SUBSCRIPTION},
            Transport.TLS: _KAFKA_OVER_TLS | {Feature.CONSUMER_PROTOCOL},
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.SARAMA,
        language="Go",
        version=_of_go("github.com/IBM/sarama"),
        claims={Transport.PLAIN: _KAFKA_FULL, Transport.TLS: _KAFKA_OVER_TLS},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_GO,
        language="Go",
        version=_of_go("github.com/segmentio/kafka-go"),
        claims={Transport.PLAIN: _KAFKA_COMMON | {Feature.GROUP_ADMIN}, Transport.TLS: _KAFKA_OVER_TLS},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.RUST,
        language="Rust, on librdkafka",
        version=_of_cargo("rdkafka"),
        claims={Transport.PLAIN: _KAFKA_FULL},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_TOOLS_3,
        language="Kafka's command line tools",
        version=_of_kafka(Jars.KAFKA_3),
        claims=_KAFKA_TOOLS,
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_TOOLS_4,
        language="Kafka's command line tools",
        version=_of_kafka(Jars.KAFKA_4),
        claims=_also(_KAFKA_TOOLS, Feature.CONSUMER_PROTOCOL, Feature.REFUSALS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_CONNECT,
        language="A distributed worker with Kafka's connectors for files",
        version=_of_kafka(Jars.KAFKA_4),
        claims=_over(
            (Transport.TLS,),
            Feature.OWN_TOPICS,
            Feature.CONNECTORS,
            Feature.CONNECTOR_ORDERS,
            Feature.OWN_RESTARTS,
            Feature.EXACTLY_ONCE,
        ),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.MIRROR_MAKER,
        language="Between a node and Apache Kafka of the same version, both ways",
        version=_of_kafka(Jars.KAFKA_4),
        claims=_over(
            (Transport.TLS,),
            Feature.MIRRORED_EVENTS,
            Feature.MIRRORED_CONFIGS,
            Feature.MIRRORED_GROUPS,
            Feature.HEARTBEATS,
            Feature.OWN_TOPICS,
        ),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_STREAMS,
        language="Java, a word count with a state store",
        version=_of_kafka(Jars.KAFKA_4),
        claims=_over(
            (Transport.TLS,), Feature.OWN_TOPICS, Feature.OWN_RESTARTS, Feature.EXACTLY_ONCE, Feature.REFUSALS
        ),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.SPARK_KAFKA,
        language="PySpark 4.3, for which there is no connector of its own version yet",
        version=_of_kafka(Jars.SPARK),
        claims=_over((Transport.TLS,), Feature.SPARK_BATCHES, Feature.SPARK_STREAMS),
        protocol=Protocol.KAFKA,
    ),
)


@dataclass(frozen=True, slots=True)
class Gap:
    """What does not pass yet, with the reason that a user is told; no feature stands for all of them."""

    client: Name
    transport: Transport
    feature: Feature | None
    reason: str


GAPS: tuple[Gap, ...] = (
    *(
        Gap(
            Name.JS,
            transport,
            Feature.THROTTLING,
            "a throttled send is answered by detaching the link, and the client waits for its own operation timeout "
            "before it tries again",
        )
        for transport in Transport
    ),
)


def claims() -> set[Cell]:
    """Every claim, gaps not among them."""
    return {
        Cell(client.name, transport, feature)
        for client in CLIENTS
        for transport, features in client.claims.items()
        for feature in features
    }


def version_of(name: Name) -> str:
    """The pinned version of a client."""
    return next(client.version() for client in CLIENTS if client.name is name)


def cell_of(item: pytest.Item) -> Cell | None:
    """The claim that a test proves; None for a test that proves none."""
    parts: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers(MARK))):
        parts.update(mark.kwargs)
    if not parts:
        return None
    missing = {"client", "transport", "feature"} - parts.keys()
    assert not missing, f"{item.nodeid}: its marks do not say which {', '.join(sorted(missing))}"
    return Cell(Name(str(parts["client"])), Transport(str(parts["transport"])), Feature(str(parts["feature"])))
