"""Gateways on a misconfigured or broken cluster: the rows of "When something is wrong" in the manual.

One cluster serves the whole file. The last tests kill brokers, and run in the order of the file.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from cluster.gateways import error_lines, get, post_event, put_hub, running_gateway, start_refused
from cluster.running import MARKS, PATIENCE_S, Cluster, eventually, running_cluster

pytestmark = MARKS
PREFIX = "hubmere."


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("bad-days")) as running:
        yield running
        gc.collect()


def brokers_of(cluster: Cluster) -> str:
    return ",".join(str(broker["address"]) for broker in cluster.ready["brokers"])


def admin_of(cluster: Cluster) -> AdminClient:
    """An administrator of the Kafka cluster itself."""
    return AdminClient({"bootstrap.servers": brokers_of(cluster)})


def set_config(cluster: Cluster, kind: str, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = admin_of(cluster)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)


def create(place: dict[str, Any], hub: str) -> None:
    """Create a hub; a busy cluster may ask for another attempt."""
    assert eventually(lambda: put_hub(place, hub)[0] == 200)


def topic_of(cluster: Cluster, before: set[str]) -> str:
    """The topic that was created since `before`."""
    found: set[str] = set()

    def has_appeared() -> bool:
        found.update(name for name in topics_of(cluster) - before if ".hub." in name)
        return bool(found)

    assert eventually(has_appeared)
    (topic,) = found
    return topic


def topics_of(cluster: Cluster) -> set[str]:
    return set(admin_of(cluster).list_topics(timeout=PATIENCE_S).topics)


def publish(place: dict[str, Any], hub: str, body: str, *, retries: int = 10) -> None:
    """Publish an event; without retries where it must be refused, since a busy cluster may refuse others for once."""
    connection = str(place["emulator_connection_string"])
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=hub, retry_total=retries) as producer:
        producer.send_event(EventData(body), partition_id="0")


def assert_busy(answer: tuple[int, object, dict[str, str]], why: str) -> None:
    """Check that an answer is a "server busy" refusal with a time for the retry."""
    status, body, headers = answer
    assert status == 503, body
    assert why in str(body)
    assert "retry-after" in headers


def read_with_kafka(cluster: Cluster, hub: str) -> bytes | None:
    """The first event of a hub, read by a Kafka client without a group."""
    consumer = Consumer({**cluster.kafka(0), "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(hub, 0, 0)])
        message = consumer.poll(PATIENCE_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


class Reader(threading.Thread):
    """Reads partition 0 from the start."""

    def __init__(self, place: dict[str, Any], hub: str, **options: object) -> None:
        super().__init__(daemon=True)
        self.bodies: list[str] = []
        self.errors: list[Exception] = []
        self._options = options
        self.client = EventHubConsumerClient.from_connection_string(
            str(place["emulator_connection_string"]), "$Default", eventhub_name=hub, retry_total=0
        )
        self.start()

    def run(self) -> None:
        self.client.receive(
            lambda _, event: self.bodies.append(event.body_as_str()),
            on_error=lambda _, error: self.errors.append(error),
            partition_id="0",
            starting_position="-1",
            **self._options,
        )

    def close(self) -> None:
        self.client.close()
        self.join(PATIENCE_S)


def status_of(cluster: Cluster, secret: Path) -> dict[str, Any]:
    flags = (f"--cluster-kafka={brokers_of(cluster)}", f"--cluster-secret-file={secret}")
    command = [sys.executable, "-m", "hubmere", "cluster", "status", *flags]
    status: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout
    )
    return status


def a_file(folder: Path, text: str) -> Path:
    path = folder / "secret"
    path.write_text(text, encoding="utf-8")
    return path


def test_another_secret_for_a_prefix_in_use_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """It could neither decrypt the keys of the other gateways nor write keys that they can decrypt.

    Nothing is written.
    """
    secret = a_file(tmp_path, "another secret")
    before = status_of(cluster, secret)

    ended = start_refused(brokers_of(cluster), secret)

    assert ended.returncode == 2
    (said,) = error_lines(ended)
    assert "the prefix hubmere. is used by gateways with another cluster secret" in said
    after = status_of(cluster, secret)
    assert [each["session"] for each in after["gateways"]] == [each["session"] for each in before["gateways"]]
    assert after["rows"] == before["rows"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--cluster-min-insync=1"], "cluster_min_insync is 1, at least 2 is needed"),
        (["--cluster-replication=1", "--cluster-min-insync=1"], "cluster_replication is 1, at least 2 is needed"),
        (["--cluster-replication=4"], "cluster_replication is 4, and the number of brokers in the Kafka cluster is 3"),
    ],
)
def test_too_few_replicas_are_refused(cluster: Cluster, tmp_path: Path, flags: list[str], why: str) -> None:
    """The loss of one broker would lose acknowledged events; no topic is created."""
    ended = start_refused(brokers_of(cluster), a_file(tmp_path, "x"), "--cluster-prefix=few.", *flags)

    assert ended.returncode == 2
    (said,) = error_lines(ended)
    assert why in said
    assert "--cluster-unsafe" in said
    assert not [name for name in topics_of(cluster) if name.startswith("few.")]


def test_unclean_elections_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """A broker without all acknowledged events could become the leader of offsets and transactions."""
    set_config(cluster, "broker", "1", "unclean.leader.election.enable", "true")
    try:
        ended = start_refused(brokers_of(cluster), a_file(tmp_path, "x"), "--cluster-prefix=unclean.")
    finally:
        set_config(cluster, "broker", "1", "unclean.leader.election.enable", None)

    assert ended.returncode == 2
    (said,) = error_lines(ended)
    assert "has unclean.leader.election.enable=true" in said


def test_unsafe_gateway_reports_it_and_an_unknown_entry_stops_management(cluster: Cluster, tmp_path: Path) -> None:
    """An operator must see that it is unsafe; and a gateway never skips an entry of the control log."""
    flags = ("--cluster-prefix=unsafe.", "--cluster-min-insync=1", "--cluster-unsafe")
    with running_gateway(tmp_path, brokers_of(cluster), a_file(tmp_path, "x"), *flags) as gateway:
        assert "Warning  cluster_unsafe is on" in gateway.log.read_text()
        assert eventually(lambda: "cluster_unsafe" in str(get(gateway.ready, "/health")[1].get("warnings")))
        status, health = get(gateway.ready, "/health")
        assert status == 200
        assert "cluster_min_insync is 1" in str(health["warnings"])
        create(gateway.ready, "before")

        foreign = Producer({"bootstrap.servers": brokers_of(cluster)})
        foreign.produce("unsafe.control", b'{"kind":"of a later release"}')
        assert foreign.flush(PATIENCE_S) == 0

        assert eventually(lambda: get(gateway.ready, "/health")[0] == 503)
        health = get(gateway.ready, "/health")[1]
        assert "of the control log cannot be read" in health["message"]
        assert_busy(put_hub(gateway.ready, "after"), "of the control log cannot be read")
        publish(gateway.ready, "before", "still served")


@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "replaced"])
def test_hub_whose_topic_was_deleted_by_hand_is_damaged(cluster: Cluster, is_made_again: bool) -> None:
    """Starting it again at offset 0 with the same uid would make readers skip or repeat events unnoticed."""
    hub = "replaced" if is_made_again else "deleted"
    first, second = cluster.gateway(0), cluster.gateway(1)
    before = topics_of(cluster)
    create(first, hub)
    publish(first, hub, "gone")
    topic = topic_of(cluster, before)

    admin = admin_of(cluster)
    for done in admin.delete_topics([topic]).values():
        done.result(PATIENCE_S)
    assert eventually(lambda: topic not in topics_of(cluster))
    if is_made_again:
        for made_again in admin.create_topics([NewTopic(topic, 1, 3)]).values():
            made_again.result(PATIENCE_S)

    def is_damaged(place: dict[str, Any]) -> bool:
        found = get(place, "/ready")[1]["damagedRanges"]
        return any(hub in json.dumps(each) and "deleted by hand" in json.dumps(each) for each in found)

    assert eventually(lambda: is_damaged(first))
    for place in (first, second):
        with pytest.raises(EventHubError):
            publish(place, hub, "new", retries=0)
        assert_busy(post_event(place, hub, "new"), "deleted by hand")
    assert eventually(lambda: is_damaged(second))


@pytest.mark.harmful
def test_too_few_brokers_in_sync_refuse_publications_and_serve_reads(cluster: Cluster) -> None:
    """Nothing is acknowledged that one more failure would lose; stored events can be read. Management waits too."""
    before = topics_of(cluster)
    place = cluster.gateway(0)
    create(place, "in-sync")
    publish(place, "in-sync", "there")
    topic = topic_of(cluster, before)
    create(place, "flowing")
    publish(place, "flowing", "before")
    reader = Reader(place, "flowing")
    assert eventually(lambda: reader.bodies == ["before"])

    # From now on three replicas must be in sync, for this hub and for the control log.
    set_config(cluster, "topic", topic, "min.insync.replicas", "3")
    set_config(cluster, "topic", f"{PREFIX}control", "min.insync.replicas", "3")
    cluster.kill_broker(2)
    del cluster.ready["brokers"][2]
    try:
        assert eventually(lambda: get(place, "/health")[0] == 503)
        assert_busy(post_event(place, "in-sync", "refused"), "Please wait 4 seconds")
        with pytest.raises(EventHubError):
            publish(place, "in-sync", "refused", retries=0)
        assert read_with_kafka(cluster, "in-sync") == b"there"

        publish(place, "flowing", "after")
        assert eventually(lambda: reader.bodies == ["before", "after"])
        exclusive = Reader(place, "flowing", owner_level=1)
        assert eventually(lambda: bool(exclusive.errors))
        assert "Please wait 4 seconds" in str(exclusive.errors[0])
        exclusive.close()
        assert_busy(put_hub(place, "later"), "control log")
    finally:
        set_config(cluster, "topic", topic, "min.insync.replicas", "2")
        set_config(cluster, "topic", f"{PREFIX}control", "min.insync.replicas", "2")
        reader.close()

    assert eventually(lambda: get(place, "/health")[0] == 200)
    assert eventually(lambda: put_hub(place, "later")[0] == 200)
    publish(place, "in-sync", "accepted")


@pytest.mark.harmful
def test_gateway_that_loses_its_cluster_stops_and_reports_it(cluster: Cluster) -> None:
    """It must not deliver to exclusive readers that other gateways may own, nor collect events that it cannot store."""
    place = cluster.gateway(1)
    exclusive = Reader(place, "flowing", owner_level=7)
    assert eventually(lambda: exclusive.bodies == ["before", "after"])

    for broker in cluster.ready["brokers"]:
        os.kill(broker["pid"], signal.SIGKILL)

    assert eventually(lambda: get(place, "/health")[0] == 503)
    assert "cut off" in get(place, "/health")[1]["message"]
    assert_busy(post_event(place, "flowing", "lost"), "Please wait 4 seconds")
    exclusive.close()
