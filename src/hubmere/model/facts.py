"""Names of the configuration entries by which a node tells its own clients what Kafka has no request for.

The values are JSON texts. The node describes them only to a client that names them (`endpoints/kafka/admin/hub_facts`).
"""

from typing import Final

# The names of the hub's consumer groups: a list of texts.
CONSUMER_GROUPS: Final = "hubmere.consumer.groups"
# Where captured files of the hub are and how they are called, without any credential: an object.
CAPTURE: Final = "hubmere.capture"
