"""The Azure SDK for Python with settings for tests: short retries, and receiving with a time limit."""

import threading
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

# The SDK tries three times by default: an error of the node must not be hidden.
QUICK = {"retry_total": 0, "retry_backoff_factor": 0.05, "auth_timeout": 120, "user_agent": "hubmere-tests"}
# By default a write of the SDK fails if the node does not read for 0.2 s, and the handshake of a WebSocket after 1 s.
# Over a WebSocket the SDK waits in steps of this time, so that it must be short.
SOCKET_TIMEOUT_S, WEBSOCKET_TIMEOUT_S = 60.0, 5.0
WAIT_SECONDS = 240.0


def a_producer(connection_string: str, hub: str, **options: Any) -> EventHubProducerClient:
    settings = QUICK | {"socket_timeout": SOCKET_TIMEOUT_S} | options
    return EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub, **settings)


def a_consumer(connection_string: str, hub: str, group: str = "$Default", **options: Any) -> EventHubConsumerClient:
    settings = QUICK | {"load_balancing_interval": 0.5} | options
    return EventHubConsumerClient.from_connection_string(connection_string, group, eventhub_name=hub, **settings)


class Received:
    """Collects events of a consumer in a thread until there are enough, or an error occurs."""

    def __init__(self, consumer: EventHubConsumerClient, count: int, **options: Any) -> None:
        self.events: list[tuple[str, EventData]] = []
        self.errors: list[Exception] = []
        self._consumer = consumer
        self._count = count
        self._options = {"starting_position": "-1"} | options
        self._first = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Received":
        self._thread.start()
        return self

    def wait_for_first(self) -> "Received":
        """Wait for one event or an error; the consumer continues."""
        self._first.wait(WAIT_SECONDS)
        return self

    def wait(self) -> "Received":
        """Wait until all events have arrived; closes the consumer."""
        self._done.wait(WAIT_SECONDS)
        self._consumer.close()
        self._thread.join(WAIT_SECONDS)
        return self

    def _run(self) -> None:
        self._consumer.receive(on_event=self._on_event, on_error=self._on_error, **self._options)

    def _on_event(self, partition: Any, event: EventData) -> None:
        self.events.append((partition.partition_id, event))
        self._first.set()
        if len(self.events) >= self._count:
            self._done.set()

    def _on_error(self, _partition: Any, error: Exception) -> None:
        self.errors.append(error)
        self._first.set()
        self._done.set()

    @property
    def bodies(self) -> list[str]:
        return [event.body_as_str() for _, event in self.events]


def receive(consumer: EventHubConsumerClient, count: int, **options: Any) -> Received:
    """Receive a number of events, or raise the first error."""
    return Received(consumer, count, **options).start().wait()
