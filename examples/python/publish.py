"""Publish three events with azure-eventhub: they share a partition key, so they stay in order."""

import os

from azure.eventhub import EventData, EventHubProducerClient

producer = EventHubProducerClient.from_connection_string(
    os.environ["EVENTHUB_CONNECTION_STRING"], eventhub_name=os.environ["EVENTHUB_NAME"]
)
with producer:
    batch = producer.create_batch(partition_key="customer-7")
    for number in range(3):
        event = EventData(f"python {number}")
        event.properties = {"number": number}
        batch.add(event)
    producer.send_batch(batch)
print("published 3 events")
