"""A response about a management change is sent after its audit line is written; nothing else waits for that line."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from endpoints.http.harness import HttpNode
from endpoints.kafka.kafka_node import KafkaNode
from endpoints.kafka.raw_client import RawClient
from hubmere.records.header import Buffer
from hubmere.store.audit import AUDIT_FILE, AuditLine, AuditLog
from hubmere.store.files import Files
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.admin import CreatableTopic, CreateTopicsRequest, DeletableTopic, DeleteTopicsRequest
from hubmere.wire.kafka.messages.metadata import MetadataRequest

_NAMESPACE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/orders-ns"
_SECONDS = 240.0


class StuckDisk(Files):
    """A disk on which a write returns only after the test lets it."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()
        self.write = self._write

    def _write(self, fd: int, data: Buffer) -> int:
        self.is_asked.set()
        assert self.goes_on.wait(_SECONDS)
        return Files.write(fd, data)


class StuckAudit:
    """An audit log on a stuck disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.disk = StuckDisk()
        self.post: Callable[[Callable[[], None]], None]
        self.log = AuditLog(path, max_bytes=100_000, files=self.disk, post=lambda call: self.post(call))

    def targets(self) -> list[str]:
        return [AuditLine.parse(line).target for line in self._path.read_text().splitlines()]

    def answer(self, change: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """Ask for a change while the disk is stuck; another request is answered meanwhile, the change is not."""
        with ThreadPoolExecutor(1) as client:
            asked = client.submit(change)
            assert self.disk.is_asked.wait(_SECONDS)
            other()
            assert not asked.done()
            self.disk.goes_on.set()
            return asked.result(_SECONDS)


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[StuckAudit]:
    stuck = StuckAudit(tmp_path / AUDIT_FILE)
    yield stuck
    stuck.disk.goes_on.set()
    stuck.log.close()


@pytest.mark.parametrize(("partitions", "status"), [(2, 200), (100_000, 400)], ids=["done", "refused"])
def test_http_change(audit: StuckAudit, partitions: int, status: int) -> None:
    """Also a change that is refused at once."""
    with HttpNode(audit=audit.log) as node, node.manager() as client, node.manager() as other:
        audit.post = node.post
        body = {"properties": {"partitionCount": partitions}}
        response = audit.answer(
            lambda: client.put(f"{_NAMESPACE}/eventhubs/fresh?api-version=2024-01-01", json=body),
            lambda: other.get(f"{_NAMESPACE}?api-version=2024-01-01").raise_for_status(),
        )

        assert response.status_code == status
        assert len(audit.targets()) == 1


def test_http_keys(audit: StuckAudit) -> None:
    """Reading keys is audited like a change."""
    with HttpNode(audit=audit.log) as node, node.manager() as client, node.manager() as other:
        audit.post = node.post
        keys = f"{_NAMESPACE}/authorizationRules/RootManageSharedAccessKey/listKeys?api-version=2024-01-01"
        response = audit.answer(
            lambda: client.post(keys), lambda: other.get(f"{_NAMESPACE}?api-version=2024-01-01").raise_for_status()
        )

        assert response.status_code == 200
        assert audit.targets() == ["orders-ns/RootManageSharedAccessKey"]


@pytest.mark.parametrize(
    ("name", "code"), [("fresh", ErrorCode.NONE), ("orders", ErrorCode.TOPIC_ALREADY_EXISTS)], ids=["done", "refused"]
)
def test_kafka_topic(audit: StuckAudit, name: str, code: ErrorCode) -> None:
    """The response to CreateTopics waits for the line of a topic that was created, or refused at once."""
    with KafkaNode(audit=audit.log) as node, RawClient(node).sign_in() as client, RawClient(node).sign_in() as other:
        audit.post = node.post
        topics = (CreatableTopic(name=name, num_partitions=2, replication_factor=-1),)
        answer = audit.answer(
            lambda: client.call(CreateTopicsRequest(topics=topics), 7),
            lambda: other.call(MetadataRequest(topics=()), 12),
        )

        assert answer.topics[0].error_code == code
        assert audit.targets() == [f"hubmere/{name}"]


def test_kafka_topic_that_is_deleted(audit: StuckAudit) -> None:
    """The response to DeleteTopics waits too."""
    with KafkaNode(audit=audit.log) as node, RawClient(node).sign_in() as client, RawClient(node).sign_in() as other:
        audit.post = node.post
        answer = audit.answer(
            lambda: client.call(DeleteTopicsRequest(topics=(DeletableTopic(name="orders"),), timeout_ms=1000), 6),
            lambda: other.call(MetadataRequest(topics=()), 12),
        )

        assert answer.responses[0].error_code == ErrorCode.NONE
        assert audit.targets() == ["hubmere/orders"]
