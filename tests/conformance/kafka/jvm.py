"""Kafka's own Java clients and tools in one JVM, as Python objects.

The program in `java/` executes the calls; a client's error becomes a `ClientError` with the name of its class. Results
of clients are JSON values.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from conformance.driver import Driver
from conformance.kafka.apache import Ended

Spot = tuple[str, int]
Facts = dict[str, Any]

_PATIENCE_MS = 120_000


class Jvm:
    """Clients of one version of Kafka for one node. Only one thread may call it."""

    def __init__(self, driver: Driver, settings: dict[str, str]) -> None:
        self._driver = driver
        self._settings = settings

    def signed_in_as(self, settings: dict[str, str]) -> "Jvm":
        """Clients in the same JVM with another credential."""
        return Jvm(self._driver, settings)

    @contextmanager
    def producer(self, **settings: Any) -> Iterator["Producer"]:
        """A producer; underscores in settings mean dots. Its transactions may take longer than a minute."""
        usual = {"transaction_timeout_ms": 600_000} if "transactional_id" in settings else {}
        producer = Producer(self._driver, self._open("Producers", usual | settings))
        try:
            yield producer
        finally:
            self._driver.call("Producers", "close", client=producer.number)

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator["Consumer"]:
        """A consumer that by default reads from the beginning and commits only on request."""
        usual = {"auto_offset_reset": "earliest", "enable_auto_commit": "false"}
        consumer = Consumer(self._driver, self._open("Consumers", usual | settings))
        try:
            yield consumer
        finally:
            self._driver.call("Consumers", "close", client=consumer.number)

    def admin(self, name: str, **arguments: Any) -> Any:
        """One task of an administrator."""
        return self._driver.call("Admins", name, settings=self._settings, **arguments)

    def tool(self, main: str, *arguments: str, text: str = "") -> Ended:
        """Run a command line tool with this text as input."""
        result = self._driver.call("Tools", "run", main=main, arguments=arguments, text=text)
        return Ended(result["code"], result["out"], result["err"])

    def _open(self, module: str, settings: dict[str, Any]) -> int:
        more = {name.replace("_", "."): str(value) for name, value in settings.items()}
        return int(self._driver.call(module, "open", settings=self._settings | more))


class _Client:
    _module: str

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self.number = number

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._driver.call(self._module, name, client=self.number, **arguments)


class Producer(_Client):
    """A `KafkaProducer` of texts."""

    _module = "Producers"

    def send(self, topic: str, *records: Facts) -> list[Facts]:
        """Send records (key, value, headers, partition, timeMs) and wait for all; returns their positions."""
        results: list[Facts] = self._call("send", topic=topic, records=records)
        return results

    def send_values(self, topic: str, *values: str, partition: int = 0) -> list[Facts]:
        """Send records with only a value."""
        return self.send(topic, *({"value": value, "partition": partition} for value in values))

    def init_transactions(self) -> None:
        """Fence every older producer of the same transactional id."""
        self._call("initTransactions")

    def begin(self) -> None:
        """Begin a transaction."""
        self._call("begin")

    def commit(self) -> None:
        """Commit it."""
        self._call("commit")

    def abort(self) -> None:
        """Abort it."""
        self._call("abort")

    def send_offsets(self, consumer: "Consumer") -> None:
        """Commit the positions of a consumer in the transaction."""
        self._call("sendOffsets", consumer=consumer.number)

    def crash(self) -> None:
        """End it without closing."""
        self._call("crash")


class Consumer(_Client):
    """A `KafkaConsumer` of texts."""

    _module = "Consumers"

    def subscribe(self, *topics: str) -> None:
        """Read as a member of the group."""
        self._call("subscribe", topics=topics)

    def subscribe_pattern(self, pattern: str) -> None:
        """Read every topic whose name matches a regular expression, which the node evaluates (RE2 syntax)."""
        self._call("subscribePattern", pattern=pattern)

    def assign(self, *spots: Spot) -> None:
        """Read the given partitions."""
        self._call("assign", places=spots)

    def seek(self, spot: Spot, to: int | str) -> int:
        """Seek to an offset, `beginning` or `end`; returns the position."""
        return int(self._call("seek", place=spot, to=str(to)))

    def pause(self, *spots: Spot) -> list[int]:
        """Pause partitions; returns all paused partitions."""
        held: list[int] = self._call("pause", places=spots)
        return held

    def resume(self, *spots: Spot) -> list[int]:
        """Resume partitions; returns those that are still paused."""
        held: list[int] = self._call("resume", places=spots)
        return held

    def poll(self, count: int, *others: "Consumer", at_most_ms: int = _PATIENCE_MS) -> list[Facts]:
        """Poll until there are enough records, or the time is over; other consumers are polled too."""
        numbers = [self.number, *(other.number for other in others)]
        results: list[Facts] = self._call("poll", clients=numbers, count=count, atMostMs=at_most_ms)
        return results

    def values(self, count: int) -> list[str]:
        """The values of a number of records."""
        return [record["value"] for record in self.poll(count)]

    def poll_until_shared(self, partitions: int, *others: "Consumer") -> list[list[int]]:
        """Poll until every consumer has partitions and all partitions are assigned; returns the assignment."""
        numbers = [self.number, *(other.number for other in others)]
        results: dict[str, list[int]] = self._call("pollUntilShared", clients=numbers, partitions=partitions)
        return [results[str(number)] for number in numbers]

    def commit(self, *offsets: tuple[str, int, int, str], is_async: bool = False) -> Any:
        """Commit topic, partition, offset and text."""
        return self._call("commit", offsets=offsets, isAsync=is_async)

    def committed(self, *spots: Spot) -> list[list[Any]]:
        """Partition, offset and metadata of committed offsets."""
        results: list[list[Any]] = self._call("committed", places=spots)
        return results

    def position(self, spot: Spot) -> int:
        """The next offset."""
        return int(self._call("position", place=spot))

    def bounds(self, spot: Spot) -> list[int]:
        """The first offset, and the one after the last."""
        results: list[int] = self._call("bounds", place=spot)
        return results

    def offsets_for_times(self, spot: Spot, times_ms: Sequence[int]) -> list[list[int] | None]:
        """Offset and time of the first record that is not older, or None."""
        results: list[list[int] | None] = self._call("offsetsForTimes", place=spot, timesMs=times_ms)
        return results

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic."""
        return int(self._call("partitions", topic=topic))

    def rebalances(self) -> list[list[Any]]:
        """The events of the rebalance listener: assigned, revoked or lost, and the partitions."""
        results: list[list[Any]] = self._call("rebalances")
        return results

    def member(self) -> Facts:
        """Member id and generation."""
        result: Facts = self._call("member")
        return result
