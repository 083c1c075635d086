"""A processor as customers run them: EventHubConsumerClient with the blob checkpoint store, in a process of its own.

    processor.py CONNECTION_STRING HUB STORAGE_CONNECTION_STRING CONTAINER

Writes a JSON line for each thing that happens: {"claimed": partition}, {"event": body, "partition": id}. An event is
written before its checkpoint is, as a customer's own work would be done: at least once.
"""

import json
import logging
import sys
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

# The SDK's defaults are 30 s and 6 times that: the same rules, on a test's time scale.
LOAD_BALANCING_SECONDS = 1.0
OWNERSHIP_SECONDS = 4.0


def tell(**fact: object) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def on_events(partition: Any, events: list[EventData]) -> None:
    for event in events:
        tell(event=event.body_as_str(), partition=partition.partition_id)
    if events:
        partition.update_checkpoint()


def main(connection_string: str, hub: str, storage: str, container: str) -> None:
    logging.disable(logging.WARNING)
    store = BlobCheckpointStore.from_connection_string(storage, container)
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
        on_partition_initialize=lambda partition: tell(claimed=partition.partition_id),
        starting_position="-1",
        max_wait_time=1,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
