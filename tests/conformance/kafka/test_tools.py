"""Kafka's own command line tools, by their main classes, against a node. The tests use the options of the newest
version; `_OLDER` maps them to those of the previous one.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.clients import Jars
from conformance.conformance_node import Transport
from conformance.driver import Driver
from conformance.kafka.apache import Ended, client_settings, write_settings
from conformance.kafka.conftest import a_driver
from conformance.kafka.jvm import Jvm
from conformance.matrix import Feature, Name
from hubmere.testing import Node

judges = pytest.mark.judges

pytestmark = [pytest.mark.foreign, judges(transport=Transport.PLAIN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of one version: the class that a script of `bin` starts, and the names of its options."""

    jars: Jars
    mains: Mapping[str, str]
    # Names by tool and option of the newest version; all of these options have a value.
    options: Mapping[tuple[str, str], str]

    def words(self, name: str, *arguments: str) -> Iterator[str]:
        """The arguments of a tool for this version."""
        words = iter(arguments)
        for word in words:
            option = self.options.get((name, word))
            if option is None:
                yield word
            else:
                value = next(words)
                yield from (part.format(value) for part in option.split())


_NEWEST = Tools(
    jars=Jars.KAFKA_4,
    mains={
        "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
        "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka-topics": "org.apache.kafka.tools.TopicCommand",
        "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka-configs": "kafka.admin.ConfigCommand",
        "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
        "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
        "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
        "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
        "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
        "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
        "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    },
    options={},
)
_OLDER = Tools(
    jars=Jars.KAFKA_3,
    # Tools that were written in Scala, as a part of the broker.
    mains={
        **_NEWEST.mains,
        "kafka-console-producer": "kafka.tools.ConsoleProducer",
        "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
        "kafka-dump-log": "kafka.tools.DumpLogSegments",
    },
    options={
        ("kafka-console-producer", "--command-config"): "--producer.config {}",
        ("kafka-console-producer", "--reader-property"): "--property {}",
        ("kafka-console-consumer", "--command-config"): "--consumer.config {}",
        ("kafka-console-consumer", "--formatter-property"): "--property {}",
        ("kafka-producer-perf-test", "--bootstrap-server"): "--producer-props bootstrap.servers={}",
        ("kafka-producer-perf-test", "--command-config"): "--producer.config {}",
        ("kafka-consumer-perf-test", "--command-config"): "--consumer.config {}",
        ("kafka-consumer-perf-test", "--num-records"): "--messages {}",
    },
)
_VERSIONS = [
    pytest.param(tools, marks=judges(client=client), id=f"tools {tools.jars}")
    for tools, client in ((_OLDER, Name.KAFKA_TOOLS_3), (_NEWEST, Name.KAFKA_TOOLS_4))
]

# By default these tools give up after some seconds.
_PATIENCE = {
    "kafka-console-producer": ("--request-timeout-ms", "100000"),
    "kafka-consumer-groups": ("--timeout", "100000"),
    "kafka-consumer-perf-test": ("--timeout", "200000"),
}

Tool = Callable[..., Ended]


@pytest.fixture(scope="module", params=_VERSIONS)
def tools(request: pytest.FixtureRequest) -> Tools:
    """Each version in turn."""
    version: Tools = request.param
    return version


@pytest.fixture(scope="module")
def driver(tools: Tools) -> Iterator[Driver]:
    """One JVM for all tools of a version."""
    with a_driver(tools.jars) as driver:
        yield driver


@pytest.fixture(scope="module")
def jvm(driver: Driver, node: Node) -> Jvm:
    return Jvm(driver, client_settings(node))


@pytest.fixture(scope="module")
def run(tools: Tools, jvm: Jvm, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Runs a tool like its script, signed in; it must succeed."""
    settings = client_settings(node)
    server = ["--bootstrap-server", settings.pop("bootstrap.servers")]
    signed_in = [*server, "--command-config", str(write_settings(tmp_path_factory.mktemp("tools") / "c", settings))]

    def run(name: str, *arguments: str, text: str = "") -> Ended:
        patience = _PATIENCE.get(name, ())
        ended = jvm.tool(tools.mains[name], *tools.words(name, *signed_in, *patience, *arguments), text=text)
        ended.lines()
        return ended

    return run


def rows(text: str) -> list[dict[str, str]]:
    """The rows of a table with a header line, by column; separated by blanks."""
    head, *lines = (line.split() for line in text.splitlines() if line.strip())
    return [dict(zip(head, line, strict=False)) for line in lines]


@judges(feature=Feature.CONSOLE)
def test_console_consumer_prints_what_the_console_producer_reads(run: Tool, topic: str) -> None:
    """Keys, headers and values are transferred."""
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    typed = "h:1,g:2\tkey\tgröße\nh:3\tk\tsecond\n"
    reading = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    writing = [f"print.{what}=true" for what in ("key", "headers", "offset")]

    run("kafka-console-producer", "--topic", topic, *reading, text=typed)
    printed = run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2",
        *(word for name in writing for word in ("--formatter-property", name)),
    )  # fmt: skip

    assert printed.lines() == ["Offset:0\th:1,g:2\tkey\tgröße", "Offset:1\th:3\tk\tsecond"]
    assert "Processed a total of 2 messages" in printed.err


@judges(feature=Feature.TOPICS)
def test_topics_are_created_listed_described_extended_and_deleted(run: Tool, topic: str) -> None:
    """Scripts request three replicas, which is accepted."""
    made = run("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    again = run("kafka-topics", "--create", "--if-not-exists", "--topic", topic)
    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    described = run("kafka-topics", "--describe", "--topic", topic)
    listed = run("kafka-topics", "--list")
    run("kafka-topics", "--delete", "--topic", topic)

    assert made.lines() == [f"Created topic {topic}."]
    assert again.code == 0
    assert f"Topic: {topic}\t" in described.out
    assert re.search(r"PartitionCount: 3\tReplicationFactor: 1\t", described.out)
    assert described.out.count("Leader: 0\tReplicas: 0\tIsr: 0") == 3
    assert topic in listed.lines()
    assert topic not in run("kafka-topics", "--list").lines()


@judges(feature=Feature.GROUP_ADMIN)
def test_groups_are_listed_described_reset_and_deleted(run: Tool, jvm: Jvm, topic: str, group: str) -> None:
    """They have members or not."""
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    with jvm.producer() as producer:
        producer.send_values(topic, *"abcde", partition=1)
    with jvm.consumer(group_id=group, client_id="reader") as consumer:
        consumer.subscribe(topic)
        consumer.poll(5)
        consumer.commit((topic, 0, 0, ""), (topic, 1, 3, ""))
        busy = run("kafka-consumer-groups", "--describe", "--group", group)
        state = run("kafka-consumer-groups", "--describe", "--group", group, "--state")
        members = run("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose")
    listed = run("kafka-consumer-groups", "--list")
    moved = run(
        "kafka-consumer-groups", "--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute"
    )
    after = run("kafka-consumer-groups", "--describe", "--group", group, "--offsets")
    run("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    run("kafka-consumer-groups", "--delete", "--group", group)

    lag = {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows(busy.out)}
    assert lag == {"0": ("0", "0", "0"), "1": ("3", "5", "2")}
    assert "Stable" in state.out
    # The older tool omits the name of the topic.
    assert re.search(rf" ({topic}:0,1|\(0,1\))\s", members.out)
    assert group in listed.lines()
    # The older tool also omits the line ends.
    assert set(re.findall(rf"{group}\s+{topic}\s+(\d+)\s+(\d+)", moved.out)) == {("0", "0"), ("1", "0")}
    assert {row["PARTITION"]: row["LAG"] for row in rows(after.out)} == {"0": "0", "1": "5"}
    assert group not in run("kafka-consumer-groups", "--list").lines()


@judges(feature=Feature.CONFIGS)
def test_configurations_are_read_and_changed(run: Tool, topic: str) -> None:
    """Those of a topic can be changed; those of the broker can be read."""
    run("kafka-topics", "--create", "--topic", topic, "--config", "retention.ms=3600000")
    place = ("--entity-type", "topics", "--entity-name", topic)

    before = run("kafka-configs", "--describe", *place)
    run("kafka-configs", "--alter", *place, "--add-config", "retention.ms=7200000,message.timestamp.type=CreateTime")
    after = run("kafka-configs", "--describe", *place)
    run("kafka-configs", "--alter", *place, "--delete-config", "retention.ms")
    everything = run("kafka-configs", "--describe", *place, "--all")
    broker = run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")

    assert "retention.ms=3600000" in before.out
    assert "retention.ms=7200000" in after.out
    assert "message.timestamp.type=CreateTime" in after.out
    assert "retention.ms=604800000" in everything.out
    assert "num.partitions=4" in broker.out


@judges(feature=Feature.RECORD_ADMIN)
def test_offsets_are_listed_and_records_deleted(run: Tool, jvm: Jvm, topic: str, tmp_path: Path) -> None:
    """Offsets are found by earliest, latest and time."""
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    with jvm.producer() as producer:
        first = producer.send_values(topic, *"abcd", partition=1)[0]
    wanted = tmp_path / "offsets.json"
    place = {"topic": topic, "partition": 1, "offset": 3}
    wanted.write_text(json.dumps({"partitions": [place], "version": 1}), encoding="utf-8")

    def offsets(time: str) -> list[str]:
        return run("kafka-get-offsets", "--topic", topic, "--time", time).lines()

    by_time = offsets(str(first["timeMs"]))
    deleted = run("kafka-delete-records", "--offset-json-file", str(wanted))

    assert f"{topic}:1:0" in by_time
    assert f"partition: {topic}-1\tlow_watermark: 3" in deleted.out
    assert (offsets("earliest"), offsets("latest")) == (
        [f"{topic}:0:0", f"{topic}:1:3"],
        [f"{topic}:0:0", f"{topic}:1:4"],
    )


@judges(feature=Feature.PERFORMANCE)
def test_performance_tests_run(run: Tool, topic: str) -> None:
    """All written events are read; the speed is not checked here."""
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "4")
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")

    written = run("kafka-producer-perf-test", "--topic", topic, *load)
    read = run("kafka-consumer-perf-test", "--topic", topic, "--num-records", "20000", "--hide-header")

    assert "20000 records sent" in written.out
    assert int(read.lines()[-1].split(", ")[4]) == 20000


@judges(feature=Feature.CLUSTER)
def test_the_cluster_is_described(run: Tool, jvm: Jvm, topic: str) -> None:
    """The output has the id, log folders, versions, transactions and their producers."""
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    with jvm.producer(transactional_id=f"t-{topic}") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send_values(topic, "x")
        listed = rows(run("kafka-transactions", "list").out)
        described = rows(run("kafka-transactions", "describe", "--transactional-id", f"t-{topic}").out)
        active = rows(run("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0").out)
        hanging = run("kafka-transactions", "find-hanging", "--broker-id", "0", "--max-transaction-timeout", "15")
        producer.abort()
    folders = run("kafka-log-dirs", "--describe", "--topic-list", topic)
    versions = run("kafka-broker-api-versions")

    assert {row["TransactionalId"]: row["TransactionState"] for row in listed}[f"t-{topic}"] == "Ongoing"
    assert (described[0]["TransactionState"], f"{topic}-0" in described[0].values()) == ("Ongoing", True)
    assert active[0]["CurrentTransactionStartOffset"] == "0"
    assert topic not in hanging.out
    assert f'"partition":"{topic}-0"' in folders.out
    assert "(id: 0 " in versions.out


@judges(feature=Feature.CLUSTER)
def test_segments_can_be_dumped(tools: Tools, jvm: Jvm, topic: str, tmp_path: Path) -> None:
    """Reference check 52: Kafka's tool reads our segments and indexes without an error."""
    with Node(hubs=[topic], data=tmp_path / "data") as other:
        clients = jvm.signed_in_as(client_settings(other))
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with clients.producer(compression_type=codec, batch_size=2000) as producer:
                producer.send_values(topic, *(f"{number:0100}" for number in range(200)))
    files = [path for path in (tmp_path / "data").rglob("0*") if path.suffix in (".log", ".index", ".timeindex")]

    dumps = {
        path.suffix: jvm.tool(tools.mains["kafka-dump-log"], "--files", str(path), "--deep-iteration").lines()
        for path in files
        if path.stat().st_size
    }

    assert set(dumps) == {".log", ".index", ".timeindex"}
    records = [line for line in dumps[".log"] if line.lstrip().startswith("|")]
    assert len(records) == 1000
    assert all("isvalid: true" in line for line in dumps[".log"] if line.startswith("baseOffset"))
    assert not [line for lines in dumps.values() for line in lines if "ismatch" in line or "not found" in line]
