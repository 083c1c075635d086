"""The claims about each foreign client: transport by feature, and where its version is pinned. `matrix.py` compares the
claims with the tests.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from conformance.clients import PERIOD_PACKAGE_JSON, PERIOD_POM, PERIOD_REQUIREMENTS, Jars
from conformance.conformance_node import Transport
from conformance.features import Feature, Name, Protocol
from conformance.versions import of_cargo, of_go, of_kafka, of_maven, of_npm, of_pip


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client, where its version is pinned, and its claims."""

    name: Name
    language: str
    version: Callable[[], str]
    claims: Mapping[Transport, frozenset[Feature]]
    protocol: Protocol = Protocol.AMQP


# --- claims ----------------------------------------------------------------------------------------------------------


def _over(transports: Iterable[Transport], *features: Feature) -> dict[Transport, frozenset[Feature]]:
    return dict.fromkeys(transports, frozenset(features))


def _everywhere(*features: Feature) -> dict[Transport, frozenset[Feature]]:
    return _over(Transport, *features)


def _also(claims: Mapping[Transport, frozenset[Feature]], *features: Feature) -> dict[Transport, frozenset[Feature]]:
    """The claims of an older version, plus later features over every transport."""
    return {transport: known | frozenset(features) for transport, known in claims.items()}


# Features of clients that support KIP-848.
_CONSUMER_GROUPS = (Feature.CONSUMER_PROTOCOL, Feature.REGEX_SUBSCRIPTION, Feature.MIGRATION)
# Kafka's own clients support every feature in every version.
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
# Features of every client with the common operations, and additional ones of some.
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

# The features of the SDKs of 2019; they only support this transport and port 5671.
_PERIOD = _over(
    (Transport.TLS,),
    Feature.SINGLES,
    Feature.BATCHES,
    Feature.KEY,
    Feature.POSITIONS,
    Feature.OWNER,
    Feature.PROPERTIES,
    Feature.REFUSALS,
)

CLIENTS: tuple[Client, ...] = (
    Client(
        name=Name.PYTHON,
        language="Python",
        version=of_pip("azure-eventhub"),
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
        version=of_pip("azure-eventhub"),
        claims={
            Transport.PLAIN: frozenset({Feature.BATCHES, Feature.BUFFERED, Feature.PROCESSOR}),
            Transport.TLS: frozenset({Feature.BATCHES}),
        },
    ),
    Client(
        name=Name.PROTON,
        language="Python, AMQP 1.0 without an SDK",
        version=of_pip("python-qpid-proton"),
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
        version=of_npm("@azure/event-hubs"),
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
        version=of_maven("azure-messaging-eventhubs"),
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
        version=of_go("github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"),
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
        language="Python, with checkpoints in the node and in Azurite",
        version=of_pip("azure-eventhub-checkpointstoreblob"),
        claims=_over((Transport.PLAIN,), Feature.FAIL_OVER),
    ),
    Client(
        name=Name.PYTHON_1,
        language="Python, the SDK of 2019",
        version=of_pip("azure-eventhub", PERIOD_REQUIREMENTS),
        claims=_PERIOD,
    ),
    Client(
        name=Name.JS_2,
        language="Node.js, the SDK of 2019",
        version=of_npm("@azure/event-hubs", PERIOD_PACKAGE_JSON),
        claims=_PERIOD,
    ),
    Client(
        name=Name.JAVA_2,
        language="Java, the SDK of 2019",
        version=of_maven("azure-eventhubs", PERIOD_POM),
        claims=_PERIOD,
    ),
    Client(
        name=Name.EPH,
        language="Java, the EventProcessorHost of 2019 with its leases and checkpoints in memory",
        version=of_maven("azure-eventhubs-eph", PERIOD_POM),
        claims=_over((Transport.TLS,), Feature.PROCESSOR),
    ),
    Client(
        name=Name.RHEA,
        language="Node.js, AMQP 1.0 without an SDK",
        version=of_npm("rhea"),
        claims=_everywhere(
            Feature.SINGLES, Feature.LARGE, Feature.POSITIONS, Feature.PREFETCH, Feature.DRAIN, Feature.REFUSALS
        ),
    ),
    Client(
        name=Name.CONFLUENT,
        language="Python, on librdkafka",
        version=of_pip("confluent-kafka"),
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
        version=of_pip("kafka-python"),
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
        version=of_pip("aiokafka"),
        claims=_over((Transport.PLAIN,), Feature.CODECS, Feature.IDEMPOTENT, Feature.GROUPS, Feature.TRANSACTIONS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_1,
        language="Java",
        version=of_kafka(Jars.KAFKA_1),
        claims={
            Transport.PLAIN: _KAFKA_COMMON | _KAFKA_TRANSACTIONS | {Feature.CLUSTER},
            Transport.TLS: _KAFKA_OVER_TLS,
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_2,
        language="Java",
        version=of_kafka(Jars.KAFKA_2),
        claims={
            Transport.PLAIN: _KAFKA_COMMON | _KAFKA_TRANSACTIONS | _KAFKA_GROUP_ADMIN | {Feature.CLUSTER},
            Transport.TLS: _KAFKA_OVER_TLS,
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_3,
        language="Java",
        version=of_kafka(Jars.KAFKA_3),
        claims=_KAFKA_JAVA,
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_JAVA_4,
        language="Java",
        version=of_kafka(Jars.KAFKA_4),
        claims=_also(_KAFKA_JAVA, *_CONSUMER_GROUPS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKAJS,
        language="Node.js",
        version=of_npm("kafkajs"),
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
        version=of_go("github.com/twmb/franz-go"),
        claims={
            Transport.PLAIN: _KAFKA_FULL | {Feature.CONSUMER_PROTOCOL, Feature.REGEX_SUBSCRIPTION},
            Transport.TLS: _KAFKA_OVER_TLS | {Feature.CONSUMER_PROTOCOL},
        },
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.SARAMA,
        language="Go",
        version=of_go("github.com/IBM/sarama"),
        claims={Transport.PLAIN: _KAFKA_FULL, Transport.TLS: _KAFKA_OVER_TLS},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_GO,
        language="Go",
        version=of_go("github.com/segmentio/kafka-go"),
        claims={Transport.PLAIN: _KAFKA_COMMON | {Feature.GROUP_ADMIN}, Transport.TLS: _KAFKA_OVER_TLS},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.RUST,
        language="Rust, on librdkafka",
        version=of_cargo("rdkafka"),
        claims={Transport.PLAIN: _KAFKA_FULL},
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_TOOLS_3,
        language="Kafka's command line tools",
        version=of_kafka(Jars.KAFKA_3),
        claims=_KAFKA_TOOLS,
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_TOOLS_4,
        language="Kafka's command line tools",
        version=of_kafka(Jars.KAFKA_4),
        claims=_also(_KAFKA_TOOLS, Feature.CONSUMER_PROTOCOL, Feature.REFUSALS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.KAFKA_CONNECT,
        language="A distributed worker with Kafka's connectors for files",
        version=of_kafka(Jars.KAFKA_4),
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
        name=Name.KAFKA_CONNECT_1,
        language="A distributed worker with Kafka's connectors for files",
        version=of_kafka(Jars.CONNECT_1),
        claims=_over((Transport.PLAIN,), Feature.CONNECTORS),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.MIRROR_MAKER_1,
        language="Between two nodes",
        version=of_kafka(Jars.KAFKA_1),
        claims=_over((Transport.PLAIN,), Feature.MIRRORED_NODES),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.MIRROR_MAKER,
        language="Between a node and Apache Kafka of the same version, both ways",
        version=of_kafka(Jars.KAFKA_4),
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
        version=of_kafka(Jars.KAFKA_4),
        claims=_over(
            (Transport.TLS,), Feature.OWN_TOPICS, Feature.OWN_RESTARTS, Feature.EXACTLY_ONCE, Feature.REFUSALS
        ),
        protocol=Protocol.KAFKA,
    ),
    Client(
        name=Name.SPARK_KAFKA,
        language="PySpark 4.3, for which there is no connector of its own version yet",
        version=of_kafka(Jars.SPARK),
        claims=_over((Transport.TLS,), Feature.SPARK_BATCHES, Feature.SPARK_STREAMS),
        protocol=Protocol.KAFKA,
    ),
)
