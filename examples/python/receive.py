"""Read a hub from its beginning with the asyncio client of azure-eventhub, until it has been quiet for two seconds."""

import asyncio
import os

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient, PartitionContext

QUIET_SECONDS = 2.0


async def main() -> None:
    """Print each event with where it lies."""
    something_came = asyncio.Event()

    async def on_event(partition: PartitionContext, event: EventData | None) -> None:
        if event is not None:
            print(f"{partition.partition_id}/{event.sequence_number}: {event.body_as_str()}", flush=True)
            something_came.set()

    consumer = EventHubConsumerClient.from_connection_string(
        os.environ["EVENTHUB_CONNECTION_STRING"],
        consumer_group="$Default",
        eventhub_name=os.environ["EVENTHUB_NAME"],
    )
    async with consumer:
        reading = asyncio.create_task(consumer.receive(on_event, starting_position="-1"))
        await something_came.wait()
        while something_came.is_set():
            something_came.clear()
            await asyncio.sleep(QUIET_SECONDS)
        reading.cancel()


asyncio.run(main())
