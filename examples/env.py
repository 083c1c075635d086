"""Print the variables that the examples need, as lines for a shell: `eval "$(python examples/env.py)"`.

Reads the ready file of a running node: the one in `hubmere-data`, or the one given as an argument.
"""

import json
import shlex
import sys
from pathlib import Path

node = json.loads(Path(*sys.argv[1:2] or ["hubmere-data", "ready.json"]).read_text(encoding="utf-8"))
found = {
    "EVENTHUB_CONNECTION_STRING": node["emulator_connection_string"],
    "EVENTHUB_TLS_CONNECTION_STRING": node["connection_string"],
    "EVENTHUB_NAME": "orders",
    "EVENTHUB_NAMESPACE": node["namespace"],
    "KAFKA_BOOTSTRAP_SERVERS": node["kafka"],
    "HUBMERE_AMQPS": node["amqps"],
    "HUBMERE_HTTPS": node["https"],
    "HUBMERE_CA_FILE": node["ca_file"],
    "HUBMERE_ADMIN_TOKEN": node["admin_token"],
}
for name, value in found.items():
    if value is not None:
        print(f"export {name}={shlex.quote(value)}")
