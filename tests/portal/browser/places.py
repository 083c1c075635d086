"""The pages and dialogs of the portal, for tests that visit all of them, and a node on which all of them exist."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import ContainerClient
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Locator, expect

from portal.browser.captured import FILE, add_captured_files
from portal.browser.visitor import Visitor

# Path below the namespace, and the heading of the page.
PAGES = (
    ("", "Overview"),
    ("/hub?hub=orders", "orders"),
    ("/explorer?hub=orders", "Explorer"),
    ("/groups", "Consumer groups"),
    ("/group?protocol=AMQP&hub=orders&group=shipping", "shipping"),
    ("/group?protocol=Kafka&group=billing", "billing"),
    ("/processors", "Event processors"),
    ("/scale", "Scale"),
    ("/capture", "Capture"),
    ("/captured?hub=archived", "Captured files"),
    ("/access", "Access"),
    ("/roles", "Role assignments"),
    ("/network", "Network"),
    ("/recovery", "Recovery"),
    ("/links", "Links"),
    ("/audit", "Audit"),
    ("/gateways", "Gateways"),
)
# A page, and the buttons that are pressed one after the other until the dialog is open.
DIALOGS = (
    ("", "Overview", ("New event hub",)),
    ("/hub?hub=orders", "orders", ("New consumer group",)),
    ("/hub?hub=orders", "orders", ("Delete event hub",)),
    ("/hub?hub=orders", "orders", ("Delete shipping",)),
    ("/explorer?hub=orders", "Explorer", ("Send event",)),
    ("/explorer?hub=orders", "Explorer", ("Open 0/0",)),
    ("/explorer?hub=orders", "Explorer", ("Open 0/0", "Resend")),
    ("/group?protocol=AMQP&hub=orders&group=shipping", "shipping", ("Delete group",)),
    ("/group?protocol=Kafka&group=billing", "billing", ("Reset offsets",)),
    ("/group?protocol=Kafka&group=billing", "billing", ("Delete group",)),
    ("/processors", "Event processors", ("Reset orders",)),
    ("/capture", "Capture", ("Edit orders",)),
    (f"/captured?hub=archived&file={FILE}", "Captured files", ("Open 0/0",)),
    ("/access", "Access", ("New rule",)),
    ("/access", "Access", ("Keys (namespace) reading",)),
    ("/access", "Access", ("Keys (namespace) reading", "Regenerate (primary)")),
    ("/access", "Access", ("Edit (namespace) reading",)),
    ("/access", "Access", ("Delete (namespace) RootManage",)),
    ("/roles", "Role assignments", ("Assign role",)),
    ("/roles", "Role assignments", ("Delete 0d4f4e0a",)),
    ("/network", "Network", ("New application group",)),
    ("/network", "Network", ("Edit slow",)),
    ("/network", "Network", ("Delete slow",)),
    ("/recovery", "Recovery", ("New alias",)),
    ("/recovery", "Recovery", ("Delete backup",)),
    ("/recovery", "Recovery", ("New namespace",)),
    ("/recovery", "Recovery", ("Delete spares",)),
    ("/links", "Links", ("Links ",)),
    ("/links", "Links", ("Close ",)),
)
# How many pixels a page is wider than its window.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# How many pixels of the widest table are behind its right edge.
TABLE_OVERFLOW = """Math.max(0, ...[...document.querySelectorAll('.h-table .q-table__middle')]
    .map(table => table.scrollWidth - table.clientWidth))"""
_CONTAINER = "all-places"
_CHECKPOINT = {
    "fully_qualified_namespace": "localhost", "eventhub_name": "orders", "consumer_group": "$Default",
    "partition_id": "0",
}  # fmt: skip
_LISTEN = {"properties": {"rights": ["Listen"]}}
_SLOW = {
    "properties": {
        "clientAppGroupIdentifier": "SASKeyName=reading",
        "policies": [
            {"type": "ThrottlingPolicy", "name": "in", "metricId": "IncomingMessages", "rateLimitThreshold": 1000}
        ],
    }
}
_ROLE = {"properties": {"roleDefinitionId": "Reader", "principalId": "f1e2d3c4-0000-4000-8000-000000000001"}}


@contextmanager
def all_places(visitor: Visitor, captured_folder: Path) -> Iterator[None]:
    """Everything that the pages and dialogs show, on a node with the hub `orders`; a client stays connected."""
    visitor.rest("POST", "orders/partitions/0/messages", content=b'{"total": 12}')
    add_captured_files(visitor, captured_folder)
    visitor.arm("PUT", "eventhubs/orders/consumergroups/shipping", {"properties": {}})
    visitor.arm("PUT", "authorizationRules/reading", _LISTEN)
    visitor.arm("PUT", "applicationGroups/slow", _SLOW)
    visitor.arm("PUT", "disasterRecoveryConfigs/backup", {"properties": {}})
    visitor.arm("PUT", "providers/Microsoft.Authorization/roleAssignments/0d4f4e0a-7f0e-4d43-8c2a-52c6d1c9a9d7", _ROLE)
    visitor.arm_namespace("spares")
    _commit(visitor)
    _add_checkpoint(visitor)
    with EventHubProducerClient.from_connection_string(
        visitor.node.emulator_connection_string, eventhub_name="orders"
    ) as producer:
        producer.send_batch([EventData("x")], partition_id="0")
    with _connected(visitor):
        yield


@contextmanager
def _connected(visitor: Visitor) -> Iterator[None]:
    """An AMQP reader. It waits for events, so its connection is not closed as idle, however long the tests take."""
    is_open = Event()
    with EventHubConsumerClient.from_connection_string(
        visitor.node.emulator_connection_string, "$Default", eventhub_name="orders"
    ) as reader:
        thread = Thread(
            target=reader.receive,
            args=(lambda _context, _event: None,),
            kwargs={"partition_id": "1", "on_partition_initialize": lambda _context: is_open.set()},
            daemon=True,
        )
        thread.start()
        assert is_open.wait(120)
        yield
    thread.join(120)


def _commit(visitor: Visitor) -> None:
    consumer = Consumer(visitor.node.kafka_config("billing"))
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()


def _add_checkpoint(visitor: Visitor) -> None:
    storage = visitor.node.blob_connection_string
    with ContainerClient.from_connection_string(storage, _CONTAINER) as client:
        if not client.exists():
            client.create_container()
    with BlobCheckpointStore.from_connection_string(storage, _CONTAINER) as store:
        store.update_checkpoint({**_CHECKPOINT, "offset": "0", "sequence_number": 0})


def labelled(visitor: Visitor, name: str) -> Locator:
    """Controls whose label begins with a text; keys of rows may be broken into lines."""
    # Playwright writes the expression between slashes and does not escape those in it.
    words = r"\s+".join(re.escape(word).replace("/", r"\/") for word in name.split())
    label = re.compile(f"^{words}" + (r"\s" if name.endswith(" ") else ""))
    page = visitor.page
    return (
        page.get_by_role("button", name=label).or_(page.get_by_role("switch", name=label)).or_(page.get_by_label(label))
    )


def open_dialog(visitor: Visitor, path: str, heading: str, buttons: tuple[str, ...]) -> Locator:
    """Open a page and press its buttons until the last dialog is open. Returns the dialog."""
    visitor.open(path, heading)
    for number, button in enumerate(buttons, 1):
        labelled(visitor, button).first.press("Enter")
        expect(visitor.page.get_by_role("dialog")).to_have_count(number)
    return visitor.page.get_by_role("dialog").last
