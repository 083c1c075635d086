"""A processor as customers run it: EventHubConsumerClient with the blob checkpoint store, in a separate process.

    processor.py CONNECTION_STRING HUB STORAGE_CONNECTION_STRING CONTAINER

It writes a JSON line for each claim, {"claimed": partition}, and each event, {"event": body, "partition": id}. The line
of an event is written before its checkpoint, so that every event is processed at least once. Each round of load
balancing writes {"listed": time}, and each claim or renewal that the store accepted {"owned": partition, "at": time},
with the time of the store.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

# The SDK's defaults are 30 s and 6 times that; the rules are the same with shorter times. A round of load balancing
# renews one ownership after another: on a busy machine it must not take as long as an ownership is valid.
LOAD_BALANCING_SECONDS = 1.0
OWNERSHIP_SECONDS = 12.0


def print_fact(**fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def on_events(partition: Any, events: list[EventData]) -> None:
    for event in events:
        print_fact(event=event.body_as_str(), partition=partition.partition_id)
    if events:
        partition.update_checkpoint()


class RecordingStore(BlobCheckpointStore):  # type: ignore[misc]  # the SDK ships no types
    """The SDK's own checkpoint store, which reports when ownership was listed and accepted."""

    def list_ownership(self, *names: str, **options: Any) -> Iterable[dict[str, Any]]:
        print_fact(listed=time.time())
        found: Iterable[dict[str, Any]] = super().list_ownership(*names, **options)
        return found

    def claim_ownership(self, ownership_list: Iterable[dict[str, Any]], **options: Any) -> Iterable[dict[str, Any]]:
        accepted: list[dict[str, Any]] = list(super().claim_ownership(ownership_list, **options))
        for ownership in accepted:
            print_fact(owned=ownership["partition_id"], at=ownership["last_modified_time"])
        return accepted


def main(connection_string: str, hub: str, storage: str, container: str) -> None:
    logging.disable(logging.WARNING)
    store = RecordingStore.from_connection_string(storage, container)
    consumer = EventHubConsumerClient.from_connection_string(
        connection_string,
        "$Default",
        eventhub_name=hub,
        checkpoint_store=store,
        load_balancing_interval=LOAD_BALANCING_SECONDS,
        partition_ownership_expiration_interval=OWNERSHIP_SECONDS,
    )
    consumer.receive_batch(
        on_event_batch=on_events,
        on_partition_initialize=lambda partition: print_fact(claimed=partition.partition_id),
        starting_position="-1",
        max_wait_time=1,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
