"""Consume a hub from its beginning as a Kafka group, until it has been quiet for two seconds; then commit."""

import os

from confluent_kafka import Consumer

QUIET_SECONDS = 2.0

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": os.environ["EVENTHUB_TLS_CONNECTION_STRING"],
        "group.id": "examples",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([os.environ["EVENTHUB_NAME"]])
# The first record waits for the group to form.
message = consumer.poll(30)
while message is not None:
    if message.error() is not None:
        raise SystemExit(message.error())
    print(f"{message.partition()}/{message.offset()}: {message.value().decode()}")
    message = consumer.poll(QUIET_SECONDS)
consumer.commit(asynchronous=False)
consumer.close()
