"""The threads of the demo: devices that publish by AMQP, Kafka and HTTPS, and two readers. Each counts its events.

A worker that loses the node connects again after a pause, so that a node can be stopped and started under the demo.
"""

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from http import HTTPStatus

from hubmere.cli.demo.devices import Device
from hubmere.cli.target.node import RuleKey
from hubmere.client.amqp import AmqpPeer
from hubmere.client.connection import Account, Client, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.client.failures import ClientFailure
from hubmere.client.http import HttpClient, HttpUnreachable
from hubmere.client.producer import HubProducer, Record, encode_batch, producer_id_of
from hubmere.model.keys import partition_of_key
from hubmere.model.security.connection_string import ConnectionString
from hubmere.node.ready import Ready
from hubmere.records.header import read_header
from hubmere.wire.kafka.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic

_PAUSE_SECONDS = 1.0
_WAIT_SECONDS = 0.25
# How often a reader commits its offsets, which are written to disk.
_COMMIT_SECONDS = 1.0
_ANSWER_SECONDS = 15.0


class Worker(threading.Thread, ABC):
    """Publishes or reads until `end` is called. `done` counts events; `trouble` is the current failure."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.done = 0
        self.trouble: str | None = None
        self._ending = threading.Event()

    def end(self) -> None:
        """Ask the worker to stop; `join` waits for it."""
        self._ending.set()

    def run(self) -> None:
        """Work, and start again after a failure."""
        while not self._ending.is_set():
            try:
                self.work()
            except (ClientFailure, HttpUnreachable, OSError) as error:
                self.trouble = str(error) or type(error).__name__
                self._ending.wait(_PAUSE_SECONDS)

    @abstractmethod
    def work(self) -> None:
        """Connect, then publish or read until the end."""

    def count(self, events: int) -> None:
        """Add to the number of events; a success also clears `trouble`."""
        self.done += events
        self.trouble = None


class Publisher(Worker):
    """Devices that publish in turn, at a rate for all of them together."""

    def __init__(self, name: str, ready: Ready, hub: str, devices: Sequence[Device], events_per_second: float) -> None:
        super().__init__(name)
        self.ready, self.hub = ready, hub
        self._devices, self._gap_s = devices, 1 / events_per_second

    def turns(self) -> "Turns":
        """The devices in turn, at their rate, until the end."""
        return Turns(self._devices, self._gap_s, self._ending)


class Turns:
    """An iterator over devices at a fixed rate; it does not catch up after a delay."""

    def __init__(self, devices: Sequence[Device], gap_s: float, ending: threading.Event) -> None:
        self._devices, self._gap_s, self._ending = devices, gap_s, ending
        self._next_s, self._number = time.monotonic(), 0

    def __iter__(self) -> "Turns":
        return self

    def __next__(self) -> Device:
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._gap_s, now_s)
        if self._ending.wait(self._next_s - now_s):
            raise StopIteration
        self._number += 1
        return self._devices[self._number % len(self._devices)]


class AmqpPublisher(Publisher):
    """Devices behind a gateway that speaks AMQP 1.0."""

    def work(self) -> None:
        """One event at a time, each accepted before the next."""
        with amqp_peer(self.ready, "demo-gateway") as peer:
            for device in self.turns():
                peer.send(self.hub, device.measure(now_ms()), device.name, {"site": device.site})
                self.count(1)


class KafkaPublisher(Publisher):
    """Devices behind a gateway that speaks Kafka."""

    def work(self) -> None:
        """One record at a time, by our own small client."""
        with Client(kafka_account(self.ready, "hubmere-demo-producer")) as client:
            partitions = HubReader(client, self.hub).partition_count()
            producer = HubProducer(client, self.hub, producer_id_of([os.urandom(16)]))
            for device in self.turns():
                headers = (("site", device.site.encode()),)
                record = Record(0, now_ms(), device.name.encode(), device.measure(now_ms()), headers)
                producer.send(partition_of_key(device.name, partitions), encode_batch([record]))
                producer.flush()
                self.count(1)


class HttpsPublisher(Publisher):
    """Devices that publish directly, each under its own publisher name."""

    def work(self) -> None:
        """Send a POST per event, over one connection."""
        assert self.ready.https is not None
        client = HttpClient(self.ready.https, ca_file=self.ready.ca_file, timeout_s=_ANSWER_SECONDS)
        keys: dict[str, RuleKey] = {}
        with closing(client):
            for device in self.turns():
                key = keys.get(device.name) or keys.setdefault(device.name, self._key(device))
                path = f"/{self.hub}/publishers/{device.name}/messages"
                headers = {"Authorization": key.header(), "Content-Type": "application/json", "Site": device.site}
                response = client.request("POST", path, device.measure(now_ms()), headers)
                if response.status != HTTPStatus.CREATED:
                    raise HttpUnreachable(self.ready.https, f"{response.status} {response.body[:200]!r}")
                self.count(1)

    def _key(self, device: Device) -> RuleKey:
        """The credential for the path of the device."""
        string = ConnectionString.parse(self.ready.connection_string)
        assert string.key_name is not None
        assert string.key is not None
        return RuleKey(f"sb://{string.host}/{self.hub}/publishers/{device.name}", string.key_name, string.key)


class AmqpReader(Worker):
    """Reads every partition of a hub as a consumer group, from now on."""

    def __init__(self, name: str, ready: Ready, hub: str, group: str, partitions: int) -> None:
        super().__init__(name)
        self._ready, self._hub, self._group, self._partitions = ready, hub, group, partitions

    def work(self) -> None:
        """Read events until the end."""
        with amqp_peer(self._ready, f"demo-{self._group}") as peer:
            for partition in range(self._partitions):
                peer.read_from(self._hub, self._group, partition)
            while not self._ending.is_set():
                self.count(sum(1 for body in peer.receive_bodies(_WAIT_SECONDS) if json.loads(body)))


class KafkaReader(Worker):
    """Reads a hub as a Kafka group that commits its offsets; a little late, so that there is some lag to show."""

    def __init__(self, name: str, ready: Ready, hub: str, group: str) -> None:
        super().__init__(name)
        self._ready, self._hub, self._group = ready, hub, group

    def work(self) -> None:
        """Read new events, commit, wait."""
        with Client(kafka_account(self._ready, "hubmere-demo-consumer")) as client:
            reader = HubReader(client, self._hub)
            partitions = range(reader.partition_count())
            places = {partition: bounds.end for partition, bounds in reader.bounds(partitions).items()}
            while not self._ending.wait(_COMMIT_SECONDS):
                ends = reader.bounds(partitions)
                for partition, bounds in ends.items():
                    self._read(reader, partition, places[partition], bounds.end)
                places = {partition: bounds.end for partition, bounds in ends.items()}
                self._commit(client, places)

    def _read(self, reader: HubReader, partition: int, start: int, end: int) -> None:
        for fetched in reader.read_range(partition, start, end):
            at = 0
            while at < len(fetched.data):
                header = read_header(fetched.data, at)
                self.count(header.record_count)
                at += header.size_bytes

    def _commit(self, client: Client, places: dict[int, int]) -> None:
        wanted = tuple(
            OffsetCommitPartition(index=index, committed_offset=place, committed_metadata=None)
            for index, place in places.items()
        )
        request = OffsetCommitRequest(
            group_id=self._group, topics=(OffsetCommitTopic(name=self._hub, partitions=wanted),)
        )  # fmt: skip
        client.call(lambda connection: connection.ask(request))


# --- where the node is -----------------------------------------------------------------------------------------------


def amqp_peer(ready: Ready, container_id: str) -> AmqpPeer:
    """A client with the key of the root rule; it is not connected yet."""
    string = ConnectionString.parse(ready.emulator_connection_string)
    assert ready.amqp is not None
    assert string.key_name is not None
    assert string.key is not None
    host, _, port = ready.amqp.rpartition(":")
    return AmqpPeer(host.strip("[]"), int(port), string.key_name, string.key, container_id=container_id)


def kafka_account(ready: Ready, client_id: str) -> Account:
    """Credentials for a Kafka client."""
    assert ready.kafka is not None
    host, _, port = ready.kafka.rpartition(":")
    address = KafkaAddress(host=host.strip("[]"), port=int(port), is_secure=False)
    return Account(address=address, connection_string=ready.connection_string, client_id=client_id)


def now_ms() -> int:
    """The wall time of the devices."""
    return time.time_ns() // 1_000_000
