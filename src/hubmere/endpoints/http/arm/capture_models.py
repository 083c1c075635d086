"""JSON of capture: the job's progress reports in, its plan and the capture states out.

The plan contains keys and the credentials of destinations, so only the administrator gets it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from hubmere.broker import (
    CAPTURE_STARTING,
    CapturedFile,
    HubCaptureStatus,
    HubReport,
    JobReport,
    PartitionCaptureStatus,
    PartitionReport,
    PlannedHub,
    Supervision,
)
from hubmere.endpoints.http.arm.models import ArmModel
from hubmere.endpoints.http.arm.serializer import Json, iso_time
from hubmere.model.addresses import Addresses
from hubmere.model.entity import Hub

# Non-negative numbers that fit a database column.
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
# A failure with its causes; the job's log has the full text.
Reason = Annotated[str, Field(max_length=4096)]
Text = Annotated[str, Field(max_length=1024)]
_REVISION_CHARACTERS = 16
_MAX_HUBS = 10_000
_MAX_PARTITIONS = 10_000


class FileModel(ArmModel):
    """A published file, with the fields of the Azure service's `CaptureFileCreated` event."""

    url: Annotated[str, Field(max_length=4096)]
    name: Annotated[str, Field(max_length=2048)]
    size_in_bytes: Number = 0
    event_count: Number = 0
    first_sequence_number: int = Field(default=-1, ge=-1, le=2**63 - 1)
    last_sequence_number: int = Field(default=-1, ge=-1, le=2**63 - 1)
    first_enqueue_time: Text | None = None
    last_enqueue_time: Text | None = None

    def value(self) -> CapturedFile:
        """The file as the broker expects it."""
        return CapturedFile(
            url=self.url,
            name=self.name,
            size_bytes=self.size_in_bytes,
            event_count=self.event_count,
            first_sequence=self.first_sequence_number,
            last_sequence=self.last_sequence_number,
            first_enqueued=self.first_enqueue_time or "",
            last_enqueued=self.last_enqueue_time or "",
        )


class PartitionModel(ArmModel):
    """The job's progress on a partition."""

    partition: Annotated[int, Field(ge=0, lt=_MAX_PARTITIONS)]
    captured: Number
    backlog_bytes: Number | None = None
    window_start: Text | int | float | None = None
    last_file: FileModel | None = None
    files: Number = 0
    events: Number = 0
    bytes: Number = 0

    def value(self) -> PartitionReport:
        """The report as the broker expects it."""
        return PartitionReport(
            partition=self.partition,
            captured=self.captured,
            window_start="" if self.window_start is None else str(self.window_start),
            last_file=None if self.last_file is None else self.last_file.value(),
            files=self.files,
            events=self.events,
            size_bytes=self.bytes,
        )


class HubModel(ArmModel):
    """The job's progress on a hub."""

    namespace: Text
    hub: Text
    id: Text
    state: Text | None = None
    error: Reason | None = None
    partitions: list[PartitionModel] = Field(default_factory=list, max_length=_MAX_PARTITIONS)

    def value(self) -> HubReport:
        """The report as the broker expects it."""
        return HubReport(
            namespace=self.namespace,
            hub=self.hub,
            id=self.id,
            is_starting=self.state == CAPTURE_STARTING,
            error=self.error or "",
            partitions=tuple(part.value() for part in self.partitions),
        )


class JobModel(ArmModel):
    """The state of the job itself."""

    pid: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    state: Text | None = None
    spark_version: Text | None = None
    master: Text | None = None
    error: Reason | None = None

    def value(self) -> JobReport:
        """The report as the broker expects it."""
        return JobReport(
            pid=self.pid,
            state=self.state or "",
            spark_version=self.spark_version or "",
            master=self.master or "",
            error=self.error or "",
        )


class ProgressBody(ArmModel):
    """POST of the job's progress."""

    job: JobModel
    hubs: list[HubModel] = Field(default_factory=list, max_length=_MAX_HUBS)


# --- the plan --------------------------------------------------------------------------------------------------------


def plan_json(
    hubs: Sequence[PlannedHub],
    addresses: Addresses,
    credential_of: Callable[[Hub], str],
    *,
    bootstrap: str,
    security: str,
    ca_file: str | None,
) -> Json:
    """The plan of the capture job; its revision changes with its content."""
    plan: Json = {
        "bootstrap": bootstrap,
        "security": security,
        "caFile": ca_file,
        "hubs": [_planned_json(hub, addresses, credential_of(hub.entity)) for hub in hubs],
    }
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    return {"revision": digest[:_REVISION_CHARACTERS], **plan}


def _planned_json(planned: PlannedHub, addresses: Addresses, credential: str) -> Json:
    hub, capture, start = planned.entity, planned.capture, planned.entity.captured_since
    return {
        "namespace": hub.namespace,
        "hub": hub.name,
        "id": start.id,
        "topicId": hub.topic_id,
        "partitionCount": hub.partition_count,
        "connectionString": addresses.capture_connection_string(planned.rule, hub.name, credential),
        "since": {str(number): start.first_sequence(number) for number in range(hub.partition_count)},
        "encoding": capture.encoding.value,
        "intervalSeconds": capture.interval_s,
        "sizeLimitBytes": capture.size_limit_bytes,
        "skipEmptyArchives": capture.skip_empty,
        "nameFormat": capture.destination.archive_name_format,
        "destination": {"url": planned.place.url, "options": dict(planned.place.options)},
    }


# --- capture states --------------------------------------------------------------------------------------------------


def file_json(file: CapturedFile) -> Json:
    """A file, with the field names of the Azure service."""
    return {
        "fileUrl": file.url,
        "name": file.name,
        "sizeInBytes": file.size_bytes,
        "eventCount": file.event_count,
        "firstSequenceNumber": file.first_sequence,
        "lastSequenceNumber": file.last_sequence,
        "firstEnqueueTime": file.first_enqueued,
        "lastEnqueueTime": file.last_enqueued,
    }


def status_json(hub: str, status: HubCaptureStatus, supervision: Supervision, job: JobReport) -> Json:
    """The capture state of a hub, without its partitions."""
    newest = status.last_file
    return {
        "eventHub": hub,
        "state": status.state.value,
        "reason": status.reason,
        "destination": status.url,
        "lagEvents": status.lag_events,
        "backlogBytes": status.backlog_bytes,
        "heldBytes": status.held_bytes,
        "files": status.files,
        "events": status.events,
        "bytes": status.size_bytes,
        "lastWritten": None if status.last_written_ms < 0 else iso_time(status.last_written_ms),
        "lastFile": None if newest is None else file_json(newest),
        "job": {
            "state": supervision.state.value,
            "reason": supervision.reason,
            "pid": supervision.pid,
            "restarts": supervision.restarts,
            "alarm": supervision.is_alarmed,
            "sparkVersion": job.spark_version,
            "master": job.master,
        },
    }


def partition_json(status: PartitionCaptureStatus) -> Json:
    """The capture state of a partition."""
    return {
        "partition": status.partition,
        "captured": status.captured,
        "lagEvents": status.lag_events,
        "backlogBytes": status.backlog_bytes,
        "heldBytes": status.held_bytes,
        "windowStart": status.window_start,
        "coldBegin": status.cold_begin,
        "coldGap": None if status.cold_gap is None else f"{status.cold_gap.start}-{status.cold_gap.stop - 1}",
        "lastFile": None if status.last_file is None else file_json(status.last_file),
    }
