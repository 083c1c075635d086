"""Publish over TLS, on whatever port the node has: azure-eventhub 5 ignores the port of a connection string."""

import os

from azure.eventhub import EventData, EventHubProducerClient

producer = EventHubProducerClient.from_connection_string(
    os.environ["EVENTHUB_TLS_CONNECTION_STRING"],
    eventhub_name=os.environ["EVENTHUB_NAME"],
    # Host and port of AMQP with TLS, `amqps` in the ready file; without it the SDK connects to 5671.
    custom_endpoint_address=f"sb://{os.environ['HUBMERE_AMQPS']}",
    connection_verify=os.environ["HUBMERE_CA_FILE"],
)
with producer:
    producer.send_batch([EventData(f"tls {number}") for number in range(3)])
print("published 3 events over TLS")
