"""Executes requests of tests with azure-eventhub 1.3: one JSON request per line on standard input, one JSON answer per
line on standard output. It runs in a separate environment with the packages of that time, and asserts nothing.
"""

import importlib
import json
import os
import sys
from typing import Any

import certifi

# The SDK trusts only the list of this package: its users add their CA to it.
certifi.where = lambda: os.environ["HUBMERE_CA_FILE"]

# The type checker sees the current package, which has other names.
eventhub: Any = importlib.import_module("azure.eventhub")

_WAIT_S = 5
# On a busy machine nothing may arrive for a long time: three minutes, less than the test waits for an answer.
_TURNS = 36
_GROUP = "$default"

Facts = dict[str, Any]


def _client(given: Facts) -> Any:
    place = given["place"]
    address = f"amqps://{place['host']}/{place['hub']}"
    return eventhub.EventHubClient(address, username=place["name"], password=place["key"])


# --- sending ---------------------------------------------------------------------------------------------------------


def send(given: Facts) -> None:
    """Send each event separately."""
    client = _client(given)
    sender = client.add_sender(partition=given.get("partition"))
    client.run()
    try:
        for text in given["texts"]:
            event = eventhub.EventData(text)
            event.application_properties = {"text": "größe"}
            if given.get("key"):
                event.partition_key = given["key"].encode()
            sender.send(event)
    finally:
        client.stop()


def send_batch(given: Facts) -> None:
    """Send all events in one message; such a batch has no properties."""
    client = _client(given)
    sender = client.add_sender(partition=given["partition"])
    client.run()
    try:
        sender.send(eventhub.EventData(batch=iter(given["texts"])))
    finally:
        client.stop()


# --- receiving -------------------------------------------------------------------------------------------------------


def receive(given: Facts) -> list[Facts]:
    """Receive a number of events of a partition."""
    client = _client(given)
    start = eventhub.Offset(given.get("after") or "-1")
    receiver = client.add_receiver(_GROUP, given["partition"], prefetch=5000, offset=start)
    client.run()
    try:
        return [_shown(event) for event in _read(receiver, given["count"])]
    finally:
        client.stop()


def _read(receiver: Any, count: int) -> list[Any]:
    events: list[Any] = []
    for _ in range(_TURNS):
        events += receiver.receive(max_batch_size=count - len(events), timeout=_WAIT_S)
        if len(events) >= count:
            break
    return events


def _shown(event: Any) -> Facts:
    properties = event.application_properties or {}
    return {
        "body": event.body_as_str(),
        "sequence": event.sequence_number,
        "offset": event.offset.value,
        "enqueuedMs": event.enqueued_time.timestamp() * 1000,
        "key": event.partition_key.decode() if event.partition_key else None,
        "properties": {name.decode(): value.decode() for name, value in properties.items()},
    }


def contend(given: Facts) -> Facts:
    """A second reader with a higher epoch takes the partition; returns how the first one ends."""
    clients = [_client(given), _client(given)]
    try:
        owner = clients[0].add_epoch_receiver(_GROUP, given["partition"], epoch=1, prefetch=1)
        clients[0].run()
        taker = clients[1].add_epoch_receiver(_GROUP, given["partition"], epoch=2, prefetch=1)
        clients[1].run()
        # These readers start at the end.
        send({**given, "texts": ["new"]})
        return {"newcomerReads": len(_read(taker, 1)) == 1, "owner": _end_of(owner)}
    finally:
        for client in clients:
            client.stop()


def _end_of(owner: Any) -> str:
    try:
        for _ in range(_TURNS):
            owner.receive(max_batch_size=1, timeout=1)
    except eventhub.EventHubError as error:
        return str(error)
    return ""


def describe(given: Facts) -> Facts:
    """The runtime information of the hub."""
    hub = _client(given).get_eventhub_info()
    created_ms = hub["created_at"].timestamp() * 1000
    return {"name": hub["name"], "partitions": hub["partition_ids"], "createdMs": created_ms}


OPERATIONS: dict[str, Any] = {one.__name__: one for one in (send, send_batch, receive, contend, describe)}


def main() -> None:
    """Answer one request after the other."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer: Facts = {"facts": OPERATIONS[asked["name"]](asked["arguments"])}
        except Exception as error:
            answer = {"error": {"name": type(error).__name__, "code": "", "message": str(error)}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
