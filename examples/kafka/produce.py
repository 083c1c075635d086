"""Produce three records with confluent-kafka: a hub is a topic, the connection string is the password."""

import os

from confluent_kafka import Producer

producer = Producer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": os.environ["EVENTHUB_TLS_CONNECTION_STRING"],
    }
)
for number in range(3):
    producer.produce(os.environ["EVENTHUB_NAME"], f"kafka {number}", key="customer-7", headers={"number": str(number)})
assert producer.flush(30) == 0
print("produced 3 records")
