"""The content of topics, read and written by librdkafka, to check the results of other programs."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

# The time for JVMs that start, join groups and rebalance on a busy machine; shorter than the limit of pytest.
PATIENCE_S = 400.0
_PAUSE_S = 0.3
_ANSWER_S = 300.0
_MOVING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)

_Found = TypeVar("_Found")


class Event(NamedTuple):
    """The content of a record, without its position."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    time_ms: int = 0


def until(probe: Callable[[], _Found], what: str, *, seconds: float = PATIENCE_S) -> _Found:
    """The first true result of the probe; fails with its last result."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s, but {found!r}"
        time.sleep(_PAUSE_S)
    return found


def write(settings: dict[str, Any], topic: str, events: Iterable[Event]) -> None:
    """Publish, and wait until everything is acknowledged."""
    refused: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    # A producer that is not idempotent can change the order when it sends again, as it does on a new topic.
    producer = Producer({"linger.ms": 5, "enable.idempotence": True, **settings})
    for event in events:
        producer.produce(
            topic,
            partition=event.partition,
            key=event.key,
            value=event.value,
            headers=list(event.headers),
            timestamp=event.time_ms,
            on_delivery=note,
        )
    assert producer.flush(_ANSWER_S) == 0
    assert not refused


def messages(settings: dict[str, Any], topic: str, *, committed_only: bool = False) -> list[Message]:
    """The current records of a topic, partition by partition; none for an unknown topic."""
    isolation = "read_committed" if committed_only else "read_uncommitted"
    reader = Consumer({**settings, "group.id": "judge", "isolation.level": isolation, "enable.partition.eof": True})
    try:
        known = reader.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in known.partitions])
        return _read_to_the_ends(reader, len(known.partitions))
    finally:
        reader.close()


def _read_to_the_ends(reader: Consumer, partition_count: int) -> list[Message]:
    found: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + _ANSWER_S
    while len(ended) < partition_count:
        assert time.monotonic() < deadline, f"only partitions {ended} of {partition_count} could be read to the end"
        for message in reader.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(_number(message.partition()))
    return sorted(found, key=lambda message: (_number(message.partition()), _number(message.offset())))


def _number(value: int | None) -> int:
    assert value is not None
    return value


def events(settings: dict[str, Any], topic: str) -> list[Event]:
    """All current events of a topic, in the order of its partitions."""
    return [_event(message) for message in messages(settings, topic)]


def _event(message: Message) -> Event:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Event(_number(message.partition()), message.key(), message.value(), headers, message.timestamp()[1])


def values(settings: dict[str, Any], topic: str) -> list[bytes]:
    """The values of a topic, in the order of its partitions."""
    return [message.value() or b"" for message in messages(settings, topic)]


def _admin(settings: dict[str, Any]) -> AdminClient:
    """A client for one call; its unread log lines are discarded."""
    return AdminClient({**settings, "log_level": 0})


def topic_names(settings: dict[str, Any]) -> set[str]:
    """The names of all topics."""
    return set(_admin(settings).list_topics(timeout=_ANSWER_S).topics)


def partition_count(settings: dict[str, Any], topic: str) -> int:
    """The number of partitions of a topic."""
    return len(_admin(settings).list_topics(timeout=_ANSWER_S).topics[topic].partitions)


def configuration(settings: dict[str, Any], topic: str) -> dict[str, str]:
    """The entries of a topic."""
    admin = _admin(settings)
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: str(entry.value) for name, entry in future.result(_ANSWER_S).items()}


def committed(settings: dict[str, Any], group: str, topic: str, partitions: int) -> list[int]:
    """The committed offset of a group in each partition of a topic; negative if there is none."""
    reader = Consumer({**settings, "group.id": group})
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    try:
        return until(lambda: _committed_now(reader, wanted), "coordinator of the group")
    finally:
        reader.close()


def _committed_now(reader: Consumer, wanted: list[TopicPartition]) -> list[int]:
    """Nothing while the group has no coordinator: a broker loads its groups after it has started."""
    try:
        return [place.offset for place in reader.committed(wanted, timeout=_ANSWER_S)]
    except KafkaException as error:
        if error.args[0].code() in _MOVING:
            return []
        raise
