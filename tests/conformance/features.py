"""The terms of the compatibility page: clients, features and protocols."""

from collections.abc import Mapping
from enum import StrEnum

from conformance.conformance_node import Transport


class Name(StrEnum):
    """The clients, by the names under which they are published."""

    PYTHON = "azure-eventhub"
    PYTHON_ASYNC = "azure-eventhub (asyncio)"
    PROCESSOR = "azure-eventhub-checkpointstoreblob"
    JS = "@azure/event-hubs"
    JAVA = "azure-messaging-eventhubs"
    GO = "azeventhubs"
    PYTHON_1 = "azure-eventhub 1"
    JS_2 = "@azure/event-hubs 2"
    JAVA_2 = "azure-eventhubs"
    EPH = "azure-eventhubs-eph"
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
    KAFKA_CONNECT_1 = "Kafka Connect 1"
    MIRROR_MAKER_1 = "MirrorMaker 1"
    MIRROR_MAKER = "MirrorMaker 2"
    KAFKA_STREAMS = "Kafka Streams"
    SPARK_KAFKA = "spark-sql-kafka-0-10"


class Feature(StrEnum):
    """The features of a client; the value is the row of the compatibility page."""

    BATCHES = "batches"
    SINGLES = "single events"
    KEY = "partition key"
    PARTITION = "one partition"
    LARGE = "events of several frames"
    BODIES = "value and sequence bodies"
    BUFFERED = "buffered producer"
    IDEMPOTENT = "idempotent producer"
    POSITIONS = "start positions"
    LATEST = "only new events"
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
    THROTTLING = "throttling is reported at once"
    RECORDS = "keys, headers and timestamps"
    CODECS = "compression"
    ACKS = "every kind of acknowledgement"
    ASSIGN = "manually assigned partitions"
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
    RESTARTS = "continues after a crash or restart of the node"
    TOPICS = "topics created, extended and deleted"
    CONFIGS = "configurations"
    GROUP_ADMIN = "groups described, reset and deleted"
    RECORD_ADMIN = "offsets listed, records deleted"
    CLUSTER = "cluster, log folders, producers, transactions"
    CONSOLE = "console producer and consumer"
    PERFORMANCE = "performance tests"
    OWN_TOPICS = "its own compacted topics"
    CONNECTORS = "lines of files in and out"
    CONNECTOR_ORDERS = "connectors paused, resumed and deleted"
    OWN_RESTARTS = "continues after its own restart"
    MIRRORED_EVENTS = "events copied from and to Apache Kafka"
    MIRRORED_NODES = "events copied from node to node"
    MIRRORED_CONFIGS = "configurations copied"
    MIRRORED_GROUPS = "offsets of groups copied"
    HEARTBEATS = "checkpoints and heartbeats"
    SPARK_BATCHES = "batches read and written by Spark"
    SPARK_STREAMS = "streams read and written by Spark"


class Protocol(StrEnum):
    """The protocols of clients; each has its own table on the page."""

    AMQP = "AMQP 1.0"
    KAFKA = "Kafka"


TRANSPORTS: Mapping[Protocol, tuple[Transport, ...]] = {
    Protocol.AMQP: tuple(Transport),
    Protocol.KAFKA: (Transport.PLAIN, Transport.TLS),
}
