"""Hubs whose older events are in captured files; the files are written without Spark and without the job."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from client.hubs import Hubs
from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.destinations.delta import DataFile, commit_files
from hubmere.pipeline.capture.files.names import Span, table_root
from hubmere.pipeline.capture.node_client import NodeClient
from hubmere.pipeline.capture.plan import HubPlan
from hubmere.pipeline.capture.planning.offsets import CaptureOffset
from hubmere.pipeline.capture.writing import FileTask, WrittenFile, write_file
from hubmere.pipeline.history.location import AUTO, Location, find_location
from hubmere.testing import Node
from pipeline.capture.runs import micro_batches, publish

PATIENCE_S = 240.0
ARM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces"


class CapturedHubs(Hubs):
    """The hubs of a node that captures into a folder; tests decide when."""

    def __init__(self, node: Node, folder: Path) -> None:
        super().__init__(node)
        self.folder = folder
        self._reached: dict[str, CaptureOffset] = {}
        self._commits = 0

    def new_captured(self, partitions: int = 1, **description: object) -> str:
        """A hub that is captured from its beginning."""
        hub = self.new(partitions)
        self.enable(hub, partitions, **description)
        return hub

    def enable(self, hub: str, partitions: int, **description: object) -> None:
        """Enable Capture of a hub, or disable and enable it again."""
        wanted = {"enabled": True, "encoding": "Avro", "skipEmptyArchives": True, **description}
        body = {"properties": {"partitionCount": partitions, "captureDescription": wanted}}
        place = f"{self.node.http}{ARM}/{self.node.namespace}/eventhubs/{hub}?api-version=2024-01-01"
        headers = {"Authorization": f"Bearer {self.node.admin_token}"}
        assert httpx.put(place, json=body, headers=headers).is_success

    def plan(self, hub: str) -> HubPlan:
        """The node's plan for a hub, as the job gets it."""
        client = NodeClient(self.node.http, self.node.admin_token, None)
        try:
            return next(plan for plan in client.plan().values() if plan.hub == hub)
        finally:
            client.close()

    def capture(self, hub: str) -> int:
        """Capture all events that are in no file yet; returns the number of files."""
        plan, files = self.plan(hub), 0
        for offset, planned in micro_batches(plan, self._reached.get(hub)):
            written = [write_file(plan, each, uuid4().hex) for each in planned]
            for each in written:
                publish(plan, each)
            if plan.encoding is CaptureEncoding.DELTA:
                self._commit(plan, written)
            files += len(written)
            self._reached[hub] = offset
        return files

    def write_windows(self, hub: str, spans: Sequence[tuple[int, int]]) -> None:
        """Capture the first partition in windows of a minute with the given events; they may be empty."""
        plan = self.plan(hub)
        names = plan.names(plan.format, plan.encoding)
        for number, (first, end) in enumerate(spans):
            second = 1_700_000_000 + 60 * number
            span = Span(plan.id, 0, first, end)
            task = FileTask(span, names.name_of(0, second), plan.encoding, second + 60)
            publish(plan, write_file(plan, task, uuid4().hex))

    def location(self, hub: str) -> Location:
        """Where the node says that the captured files of a hub are."""
        return find_location(self.client, hub, AUTO, {})

    def _commit(self, plan: HubPlan, written: list[WrittenFile]) -> None:
        """Add files to the log of a Delta table."""
        root = table_root(plan.namespace, plan.hub)
        self._commits += 1
        added = [
            DataFile(each.name.removeprefix(root), each.partition, each.size_bytes, each.events, 0) for each in written
        ]
        commit_files(f"{plan.target.url}/{root}", plan.target.options, plan.id, self._commits, added)

    def files(self, hub: str) -> list[Path]:
        """The captured files of a hub."""
        return sorted(path for path in self.folder.rglob("*.*") if f"/{hub}/" in str(path) and path.is_file())


def limit_log(hubs: CapturedHubs, hub: str, *, retention_bytes: int, segment_bytes: int) -> None:
    """Limit the log of each partition in bytes, so that retention deletes what is older."""
    set_config(hubs, hub, {"retention.bytes": str(retention_bytes), "segment.bytes": str(segment_bytes)})


def set_config(hubs: Hubs, hub: str, wanted_values: Mapping[str, str]) -> None:
    """Change the settings of a hub as Kafka's administration does."""
    set_to = AlterConfigOpType.SET
    changes = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in wanted_values.items()]
    wanted = ConfigResource(ConfigResource.Type.TOPIC, hub, incremental_configs=changes)
    admin = AdminClient(hubs.node.kafka_config())
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result(PATIENCE_S)


@contextmanager
def a_capturing_node(folder: Path, **settings: Any) -> Iterator[CapturedHubs]:
    """A node that captures into a folder when a test asks for it."""
    own = {"memory": True, "as": "unlimited", "capture_supervise": False, "capture_folder": str(folder), **settings}
    with Node(settings=own) as node:
        hubs = CapturedHubs(node, folder)
        try:
            yield hubs
        finally:
            hubs.client.close()
