"""Code snippets that connect each family of clients to a hub of this node.

`_TEMPLATES` maps the name of a client family to a template, in display order. Snippets contain no secret: they read the
connection string from an environment variable.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hubmere.model.addresses import Addresses

# The environment variable that holds the connection string.
VARIABLE = "HUBMERE_CONNECTION_STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One program, configuration or command."""

    title: str
    code: str


_PYTHON = """# pip install azure-eventhub
import os
from azure.eventhub import EventData, EventHubProducerClient

client = EventHubProducerClient.from_connection_string(os.environ["{variable}"], eventhub_name="{hub}")
with client:
    batch = client.create_batch()
    batch.add(EventData("hello"))
    client.send_batch(batch)
"""

_JAVASCRIPT = """// npm install @azure/event-hubs
const {{ EventHubProducerClient }} = require("@azure/event-hubs");

async function main() {{
  const client = new EventHubProducerClient(process.env.{variable}, "{hub}");
  await client.sendBatch([{{ body: "hello" }}]);
  await client.close();
}}

main();
"""

_JAVA = """// com.azure:azure-messaging-eventhubs
EventHubProducerClient client = new EventHubClientBuilder()
    .connectionString(System.getenv("{variable}"), "{hub}")
    .buildProducerClient();
client.send(List.of(new EventData("hello")));
client.close();
"""

_KAFKA = """# client.properties for any Kafka client; the topic is {hub}
bootstrap.servers={kafka}
security.protocol={security}
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="$ConnectionString" password="<the connection string>";
"""

_CURL = """TOKEN=$(hubmere sas --connection-string "${variable}" --hub "{hub}")
curl --fail -X POST "{http}/{hub}/messages" \\
     -H "Authorization: $TOKEN" -H "Content-Type: application/json" \\
     -d '{{"hello": "world"}}'
"""

_SPARK = """# pip install "hubmere[spark]"
import os

events = (
    spark.readStream.format("eventhubs")
    .option("eventhubs.connectionString", os.environ["{variable}"])
    .option("eventhubs.name", "{hub}")
    .option("eventhubs.endpoint", "{kafka}")
    .option("eventhubs.tls", "{tls}")
    .load()
)
events.writeStream.format("console").start()
"""

_TEMPLATES: Mapping[str, str] = {
    "Python": _PYTHON,
    "JavaScript": _JAVASCRIPT,
    "Java": _JAVA,
    "Kafka": _KAFKA,
    "curl": _CURL,
    "Spark": _SPARK,
}


def snippets(addresses: Addresses, namespace: str, hub: str) -> list[Snippet]:
    """All snippets for a hub, with the host names and ports of this node."""
    kafka, http = ("kafka" if addresses.kafka else "kafkas"), ("http" if addresses.http else "https")
    values = {
        "variable": VARIABLE,
        "hub": hub,
        "kafka": addresses.address_of(kafka, namespace),
        "security": "SASL_PLAINTEXT" if addresses.kafka else "SASL_SSL",
        "tls": "false" if addresses.kafka else "true",
        "http": f"{http}://{addresses.address_of(http, namespace)}",
    }
    return [Snippet(title=title, code=template.format(**values)) for title, template in _TEMPLATES.items()]
