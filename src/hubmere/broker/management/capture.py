"""Capture on the node's side: the plan for the capture job, its reported progress, and what retention must keep.

A Spark job writes the files. It fetches the plan and reports its progress over HTTP. This module makes the plan, stores
the reports, and names the events that retention must keep (`retention_hold`). The job's own checkpoint decides
what is captured: a lost or late report changes the monitoring and what is held back, never what is written (reference:
service 6). Thread rule: the owner's thread only.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.hubs.live_namespace import LiveNamespace
from hubmere.broker.hubs.views import HubView
from hubmere.broker.management.capture_due import NOW_MS, OpenWindows, bytes_from
from hubmere.model.capture.targets import CapturePlace, CaptureTargets
from hubmere.model.entity import AccessRule, CaptureDescription, Hub, Rights
from hubmere.model.errors import Conflict, InvalidArgument, Refusal
from hubmere.model.names import fold
from hubmere.store.catalog.runtime_state import CaptureState
from hubmere.store.catalog.view import Put
from hubmere.store.engine import Catalog, OnDurable, RetentionHold

# A job reports every few seconds; after this time without a report it no longer counts as running.
SILENCE_SECONDS = 30.0
# State in a report while the job cannot capture yet.
STARTING = "starting"


class JobState(StrEnum):
    """State of the job, and of the capture of one hub."""

    OFF = "Off"  # no hub is captured
    UNSUPERVISED = "Unsupervised"  # the job is to run elsewhere, and does not report
    STARTING = "Starting"
    RUNNING = "Running"
    SLEEPING = "Sleeping"  # no window ends soon: the job is stopped, and is started before the next one ends
    FAILING = "Failing"  # the job runs, but the capture of this hub fails and is retried
    BACKING_OFF = "BackingOff"
    BLOCKED = "Blocked"  # it cannot run until an operator changes something
    STOPPING = "Stopping"
    ELSEWHERE = "Elsewhere"  # another gateway of the cluster runs the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """State of the job as the node's supervisor sees it; `is_alarmed` after repeated failures of the same kind."""

    state: JobState = JobState.UNSUPERVISED
    reason: str = ""
    pid: int | None = None
    restarts: int = 0
    is_alarmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFile:
    """One published file, with the fields of the service's `CaptureFileCreated` event."""

    url: str
    name: str
    size_bytes: int
    event_count: int
    first_sequence: int
    last_sequence: int
    first_enqueued: str
    last_enqueued: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """Progress of one partition: `captured` is the first sequence number that no published file holds."""

    partition: int
    captured: int
    window_start: str = ""
    last_file: CapturedFile | None = None
    files: int = 0
    events: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReport:
    """Progress of one hub."""

    namespace: str
    hub: str
    id: str
    is_starting: bool = False
    error: str = ""
    partitions: tuple[PartitionReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """State of the job itself, as it reports it."""

    pid: int | None = None
    state: str = ""
    spark_version: str = ""
    master: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHub:
    """One hub of the plan: how to capture it, where to write, and which rule to read it with."""

    entity: Hub
    capture: CaptureDescription
    place: CapturePlace
    rule: AccessRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCaptureStatus:
    """Monitoring data of one partition; `held_bytes` are past retention and kept for the job.

    With cold reads: the first event that readers get, and the gap before it that hides older files.
    """

    partition: int
    captured: int
    lag_events: int
    backlog_bytes: int
    held_bytes: int
    window_start: str
    last_file: CapturedFile | None
    cold_begin: int | None = None
    cold_gap: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubCaptureStatus:
    """Monitoring data of one hub."""

    state: JobState
    reason: str
    url: str
    files: int
    events: int
    size_bytes: int
    last_written_ms: int
    partitions: tuple[PartitionCaptureStatus, ...]

    @property
    def lag_events(self) -> int:
        """Events that no file holds yet."""
        return sum(one.lag_events for one in self.partitions)

    @property
    def backlog_bytes(self) -> int:
        """Bytes that no file holds yet."""
        return sum(one.backlog_bytes for one in self.partitions)

    @property
    def held_bytes(self) -> int:
        """Bytes that are past retention and kept for the job."""
        return sum(one.held_bytes for one in self.partitions)

    @property
    def last_file(self) -> CapturedFile | None:
        """The newest file of any partition."""
        files = [one.last_file for one in self.partitions if one.last_file is not None]
        return max(files, key=lambda file: file.last_enqueued, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file that was published since the last report."""

    namespace: str
    hub: str
    partition: int
    file: CapturedFile


class Captures:
    """The captured hubs of a node. `hold_bytes` bounds what is held per partition; None holds nothing back.

    Thread rule: the owner's thread only.
    """

    def __init__(
        self,
        catalog: Catalog,
        namespaces: Mapping[str, LiveNamespace],
        targets: CaptureTargets,
        *,
        hold_bytes: int | None,
    ) -> None:
        self._catalog = catalog
        self._namespaces = namespaces
        self._targets = targets
        self._hold_bytes = hold_bytes
        self._errors: dict[str, str] = {}
        # Ids of the hubs that the job reports as running.
        self._running: set[str] = set()
        self._windows = OpenWindows()
        self._held: dict[tuple[str, int], int] = {}
        self._reported_at: float | None = None
        self.job = JobReport()
        self.supervision = Supervision()

    # --- the plan ---

    def hubs(self) -> list[HubView]:
        """The hubs whose capture is enabled, by name."""
        return [hub.view for hub in self._captured_hubs()]

    def _captured_hubs(self) -> Iterator[LiveHub]:
        for name in sorted(self._namespaces):
            hubs = self._namespaces[name].hubs
            yield from (hubs[key] for key in sorted(hubs) if hubs[key].entity.is_captured)

    @property
    def has_work(self) -> bool:
        """Whether there is a hub that the job can capture now; asked every second."""
        for namespace in self._namespaces.values():
            for hub in namespace.hubs.values():
                if hub.entity.is_captured and self._blocked_reason(hub) is None:
                    return True
        return False

    def next_due_ms(self, now_ms: int) -> int | None:
        """When the next window of any hub ends, in ms since 1970; past if it has ended or is not known, None if no
        window ends before another event arrives."""
        found: list[int] = []
        for hub in self._captured_hubs():
            if self._errors.get(hub.entity.uid):
                # What has failed is tried again, whatever the time.
                return NOW_MS
            if self._blocked_reason(hub) is None:
                partitions = range(hub.entity.partition_count)
                ends = ((one, self.captured_end(hub.entity, one)) for one in partitions)
                dues = (self._windows.due_ms(hub, one, captured, now_ms) for one, captured in ends)
                found += [due_ms for due_ms in dues if due_ms is not None]
        return min(found, default=None)

    def _blocked_reason(self, hub: LiveHub) -> str | None:
        try:
            self._plan_hub(hub)
        except Refusal as refusal:
            return refusal.text()
        return None

    def plan(self) -> list[PlannedHub]:
        """The plan for the job. Hubs that cannot be captured are left out; their status says why."""
        return [self._plan_hub(hub) for hub in self._captured_hubs() if self._blocked_reason(hub) is None]

    def _plan_hub(self, hub: LiveHub) -> PlannedHub:
        entity, capture = hub.entity, hub.entity.capture
        assert capture is not None
        place = self._targets.place_of(capture.destination)
        if hub.namespace.entity.disable_local_auth:
            raise InvalidArgument(
                "namespace to capture", entity.namespace, "one that accepts keys (local authentication is disabled)"
            )
        view = self._catalog.view
        rules = [*view.rules(entity), *view.rules(hub.namespace.entity)]
        readers = [rule for rule in rules if rule.rights.allows(Rights.LISTEN)]
        if not readers:
            raise InvalidArgument("event hub to capture", entity.name, "one with a rule that has the right Listen")
        # Least privilege: a rule with Listen only if there is one, rules of the hub before those of the namespace.
        rule = min(readers, key=lambda one: (len(one.rights.names), one.hub is None))
        return PlannedHub(entity=entity, capture=capture, place=place, rule=rule)

    # --- progress ---

    def record_report(
        self, job: JobReport, hubs: Sequence[HubReport], *, now: float, now_ms: int, on_done: OnDurable
    ) -> list[NewFile]:
        """Store a report. Parts about hubs that were re-created, or whose capture was enabled again, are ignored.

        `on_done` is called when it is durable. Returns the files that no earlier report has named.
        """
        if self.supervision.state is JobState.ELSEWHERE:
            raise Conflict("Another gateway runs the capture job now; this job has been replaced.")
        found = [(hub, report) for report in hubs if (hub := self._find(report)) is not None]
        self._drop_stale()
        steps: list[Put] = []
        files: list[NewFile] = []
        for hub, report in found:
            self._errors[hub.entity.uid] = report.error
            (self._running.discard if report.is_starting else self._running.add)(hub.entity.uid)
            for part in report.partitions:
                self._record_partition(hub, part, now_ms, steps, files)
        self._catalog.submit(*steps, callback=on_done)
        self.job, self._reported_at = job, now
        return files

    def _drop_stale(self) -> None:
        """Drop the state of hubs that were deleted or are no longer captured."""
        captured = list(self._captured_hubs())
        known = {hub.entity.uid for hub in captured}
        self._running &= known
        self._errors = {uid: error for uid, error in self._errors.items() if uid in known}
        self._windows.keep({hub.entity.captured_since.id for hub in captured})
        self._held = {key: held for key, held in self._held.items() if key[0] in known}

    def _find(self, report: HubReport) -> LiveHub | None:
        namespace = self._namespaces.get(fold(report.namespace))
        hub = None if namespace is None else namespace.hubs.get(fold(report.hub))
        if hub is None or not hub.entity.is_captured or hub.entity.captured_since.id != report.id:
            return None
        for part in report.partitions:
            if part.partition >= hub.entity.partition_count:
                raise InvalidArgument("partition", part.partition, f"below {hub.entity.partition_count}")
        return hub

    def _record_partition(
        self, hub: LiveHub, part: PartitionReport, now_ms: int, steps: list[Put], files: list[NewFile]
    ) -> None:
        uid = hub.entity.uid
        self._windows.record(hub.entity.captured_since.id, part.partition, part.window_start)
        known = self._state(hub.entity, part.partition)
        state = CaptureState(
            hub_uid=uid,
            partition=part.partition,
            capture_id=hub.entity.captured_since.id,
            sequence=part.captured,
            files=part.files,
            events=part.events,
            size_bytes=part.size_bytes,
            last_file="" if part.last_file is None else json.dumps(asdict(part.last_file)),
            modified_ms=now_ms,
        )
        if known is not None and _is_same(known, state):
            return
        steps.append(Put(state))
        hub.counters.captured_messages += _increase(part.events, 0 if known is None else known.events)
        hub.counters.captured_bytes += _increase(part.size_bytes, 0 if known is None else known.size_bytes)
        if part.last_file is not None and (known is None or known.last_file != state.last_file):
            place = (hub.entity.namespace, hub.name)
            files.append(NewFile(namespace=place[0], hub=place[1], partition=part.partition, file=part.last_file))

    def _state(self, hub: Hub, partition: int) -> CaptureState | None:
        state = self._catalog.planned_view.find_capture_state(hub.uid, partition)
        return None if state is None or state.capture_id != hub.captured_since.id else state

    def captured_end(self, hub: Hub, partition: int) -> int:
        """The first sequence number of a captured partition that no published file is known to hold."""
        state = self._state(hub, partition)
        return hub.captured_since.first_sequence(partition) if state is None else state.sequence

    # --- retention ---

    def retention_hold(self, hub: Hub, partition: int) -> RetentionHold | None:
        """What retention must not delete yet: events that no published file holds. None if nothing is held back."""
        if not hub.is_captured or self._hold_bytes is None:
            return None
        return RetentionHold(self.captured_end(hub, partition), self._hold_bytes)

    def record_held_bytes(self, hub: Hub, partition: int, held_bytes: int) -> bool:
        """Keep how many bytes past retention are held back, for monitoring. True if nothing was held before."""
        before = self._held.pop((hub.uid, partition), 0)
        if held_bytes:
            self._held[hub.uid, partition] = held_bytes
        return bool(held_bytes) and not before

    def record_deleted(self, hub: LiveHub, partition: int, deleted: range) -> range:
        """Count events that retention deleted before they were captured; returns their sequence numbers."""
        lost = range(max(self.captured_end(hub.entity, partition), deleted.start), deleted.stop)
        hub.counters.capture_lost_messages += len(lost)
        return lost

    # --- monitoring ---

    def job_status(self, now: float) -> Supervision:
        """State of the job for display. A job that reports progress is running, also if the node did not start it."""
        supervision = self.supervision
        has_reported = self._reported_at is not None and now - self._reported_at <= SILENCE_SECONDS
        if supervision.state is JobState.UNSUPERVISED and has_reported:
            return Supervision(state=self.reported_state, pid=self.job.pid, reason=self.job.error)
        return supervision

    @property
    def reported_state(self) -> JobState:
        """State of the job by its last report: it is running once it can capture a hub."""
        return JobState.STARTING if self.job.state == STARTING else JobState.RUNNING

    @property
    def reported_at(self) -> float | None:
        """Monotonic time of the job's last report; None before the first."""
        return self._reported_at

    def hub_status(self, view: HubView, now: float) -> HubCaptureStatus:
        """Monitoring data of a hub, captured or not."""
        hub = view._live
        states = [
            state
            for state in self._catalog.view.capture_states(hub.entity.uid)
            if not hub.entity.is_captured or state.capture_id == hub.entity.captured_since.id
        ]
        state, reason = self._hub_state(hub, now)
        return HubCaptureStatus(
            state=state,
            reason=reason,
            url=self._url_of(hub),
            files=sum(one.files for one in states),
            events=sum(one.events for one in states),
            size_bytes=sum(one.size_bytes for one in states),
            last_written_ms=max((one.modified_ms for one in states if one.last_file), default=-1),
            partitions=tuple(self._partitions(hub, states)),
        )

    def url_of(self, view: HubView) -> str:
        """The URL of a hub's captured files; empty if there is no destination."""
        return self._url_of(view._live)

    def _url_of(self, hub: LiveHub) -> str:
        if hub.entity.capture is None:
            return ""
        try:
            return self._targets.place_of(hub.entity.capture.destination).url
        except InvalidArgument:
            return ""

    def _hub_state(self, hub: LiveHub, now: float) -> tuple[JobState, str]:
        if not hub.entity.is_captured:
            return JobState.OFF, ""
        if (blocked := self._blocked_reason(hub)) is not None:
            return JobState.BLOCKED, blocked
        job = self.job_status(now)
        error = self._errors.get(hub.entity.uid, "")
        if job.state in (JobState.RUNNING, JobState.STARTING) and error:
            return JobState.FAILING, error
        if job.state is JobState.RUNNING and hub.entity.uid not in self._running:
            return JobState.STARTING, ""
        return job.state, job.reason

    def _partitions(self, hub: LiveHub, states: Sequence[CaptureState]) -> Iterator[PartitionCaptureStatus]:
        known = {state.partition: state for state in states}
        for partition in range(hub.entity.partition_count if hub.entity.is_captured else 0):
            state = known.get(partition)
            captured = hub.entity.captured_since.first_sequence(partition) if state is None else state.sequence
            lag_events, backlog_bytes = _waiting(hub, partition, captured)
            cold_begin, cold_gap = hub.cold_range(partition)
            yield PartitionCaptureStatus(
                partition=partition,
                captured=captured,
                lag_events=lag_events,
                backlog_bytes=backlog_bytes,
                held_bytes=self._held.get((hub.entity.uid, partition), 0),
                window_start=self._windows.start_of(hub.entity.captured_since.id, partition),
                last_file=_file_of(state),
                cold_begin=cold_begin,
                cold_gap=cold_gap,
            )


def _is_same(one: CaptureState, other: CaptureState) -> bool:
    """Whether a report brings nothing new: these fields change with every file."""
    return (one.sequence, one.files, one.last_file) == (other.sequence, other.files, other.last_file)


def _increase(total: int, known: int) -> int:
    """The increase since the last report; a total that fell was restarted at 0."""
    return total - known if total >= known else total


def _file_of(state: CaptureState | None) -> CapturedFile | None:
    return None if state is None or not state.last_file else CapturedFile(**json.loads(state.last_file))


def _waiting(hub: LiveHub, partition: int, captured: int) -> tuple[int, int]:
    """Events and bytes of a partition that are not captured yet; 0 for an offline partition."""
    try:
        log = hub.stored_log(partition)
        first, end = max(captured, log.state.log_start), log.state.committed
        return (end - first, bytes_from(log, first)) if first < end else (0, 0)
    except Refusal:
        return 0, 0
