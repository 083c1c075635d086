"""Send and receive with Apache Qpid Proton, a client that knows AMQP 1.0 and nothing of Event Hubs.

It signs in with the name and the key of a rule. A hub is a target address, a partition of a consumer group a source.
Events are delivered settled: there is nothing to accept.
"""

import os

from proton import Message
from proton.utils import BlockingConnection

WAIT_SECONDS = 10
parts = dict(part.split("=", 1) for part in os.environ["EVENTHUB_CONNECTION_STRING"].split(";") if part)
hub = os.environ["EVENTHUB_NAME"]

connection = BlockingConnection(
    parts["Endpoint"].replace("sb://", "amqp://").rstrip("/"),
    timeout=WAIT_SECONDS,
    user=parts["SharedAccessKeyName"],
    password=parts["SharedAccessKey"],
    allowed_mechs="PLAIN",
)
sender = connection.create_sender(f"{hub}/Partitions/0")
for number in range(3):
    sender.send(Message(body=f"proton {number}", properties={"number": number}))
receiver = connection.create_receiver(f"{hub}/ConsumerGroups/$Default/Partitions/0", credit=3)
for _ in range(3):
    print(receiver.receive(WAIT_SECONDS).body)
connection.close()
