"""The broker's decisions about Capture: its start, the plan, reports of the job, and what retention keeps."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from broker.builders import NOW_MS, BrokerHarness, a_batch
from hubmere.broker.hubs.live import LiveHub
from hubmere.broker.management.capture import (
    CapturedFile,
    Captures,
    HubCaptureStatus,
    HubReport,
    JobReport,
    JobState,
    PartitionReport,
    Supervision,
)
from hubmere.model.entity import CaptureDescription, CaptureDestination, Rights
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import rule_name
from hubmere.model.spec import HubSpec, NamespaceSpec

HOUR_MS = 3_600_000
JOB = JobReport(pid=7, state="running", spark_version="4.3.0", master="local[2,4]")
FILE = CapturedFile(
    url="file:///files/hubmere/orders/0.avro",
    name="hubmere/orders/0.avro",
    size_bytes=900,
    event_count=3,
    first_sequence=0,
    last_sequence=2,
    first_enqueued="2026-11-16T00:00:00Z",
    last_enqueued="2026-11-16T00:00:59Z",
)


class CaptureHarness(BrokerHarness):
    """A broker with a hub that a test can capture, publish to and report on."""

    @property
    def captures(self) -> Captures:
        return self.broker.captures

    def capture(
        self, *, enabled: bool = True, destination: CaptureDestination | None = None, skip_empty: bool = False
    ) -> LiveHub:
        described = CaptureDescription(
            enabled=enabled, destination=destination or CaptureDestination(), skip_empty=skip_empty
        )
        return self.change(replace(HubSpec.of(self.hub.entity), capture=described))

    def change(self, spec: HubSpec) -> LiveHub:
        self.do(lambda done: self.manager.update_hub("hubmere", "orders", spec, self.actor(), done))
        return self.hub

    def publish(self, count: int, *, partition: int = 0, now_ms: int = NOW_MS, size: int = 100) -> None:
        for _ in range(count):
            self.hub.log(partition).append(a_batch(body=b"x" * size), now_ms)
        self.turn.run()

    def report(
        self,
        *parts: PartitionReport,
        capture_id: str | None = None,
        error: str = "",
        is_starting: bool = False,
        job: JobReport = JOB,
    ) -> list[str]:
        supervision = HubReport(
            namespace="HubMere",
            hub="Orders",
            id=capture_id or self.hub.entity.captured_since.id,
            is_starting=is_starting,
            error=error,
            partitions=parts,
        )
        names: list[str] = []

        def record_report(done: object) -> None:
            files = self.captures.record_report(job, [supervision], now=self.now, now_ms=NOW_MS, on_done=done)  # type: ignore[arg-type]
            names.extend(new.file.name for new in files)

        self.do(record_report)
        return names

    def status(self) -> HubCaptureStatus:
        return self.captures.hub_status(self.hub.view, self.now)


@pytest.fixture
def harness() -> Iterator[CaptureHarness]:
    made = CaptureHarness(capture_hold_bytes=1 << 30, segment_bytes=1_000)
    yield made
    made.close()


# --- where it begins -------------------------------------------------------------------------------------------------


def test_capture_begins_at_the_end_of_each_log(harness: CaptureHarness) -> None:
    """Events that were published before Capture was enabled are not captured (reference: service 6)."""
    harness.publish(3)
    harness.publish(1, partition=2)

    start = harness.capture().entity.capture_start

    assert start is not None
    assert (start.since, start.started_ms) == ((3, 0, 1, 0), NOW_MS)


def test_a_hub_that_is_created_with_capture_is_captured_from_its_first_event(harness: CaptureHarness) -> None:
    """It has no earlier events."""
    hub = harness.a_hub("born", spec=HubSpec(partition_count=2, capture=CaptureDescription(enabled=True)))

    assert hub.entity.capture_start is not None
    assert hub.entity.capture_start.since == ()


def test_other_changes_do_not_move_the_start_of_capture(harness: CaptureHarness) -> None:
    """Only disabling and enabling Capture sets a new start."""
    first = harness.capture().entity.capture_start
    harness.publish(5)

    kept = harness.change(replace(HubSpec.of(harness.hub.entity), user_metadata="x")).entity.capture_start
    harness.capture(enabled=False)
    off = harness.hub.entity.capture_start
    again = harness.capture().entity.capture_start

    assert kept == first
    assert off is None
    assert again is not None
    assert first is not None
    assert again.id != first.id
    assert again.since[0] == 5


def test_a_partition_that_is_added_later_is_captured_from_its_beginning() -> None:
    """The partition did not exist when Capture was enabled, so it has no earlier events."""
    harness = CaptureHarness(limits={"partitions_may_grow": True})
    harness.publish(2)
    start = harness.capture().entity.captured_since
    grown = harness.change(replace(HubSpec.of(harness.hub.entity), partition_count=6)).entity
    harness.close()

    assert grown.captured_since == start
    assert [start.first_sequence(number) for number in range(6)] == [2, 0, 0, 0, 0, 0]


# --- the plan --------------------------------------------------------------------------------------------------------


def test_plan_has_the_captured_hubs_and_a_rule_with_only_the_right_to_read(harness: CaptureHarness) -> None:
    """The job needs only Listen."""
    for name, rights in (("sender", Rights.SEND), ("reader", Rights.LISTEN)):
        harness.do(
            lambda done, name=name, rights=rights: harness.manager.write_rule(  # type: ignore[misc]
                "hubmere", "orders", rule_name(name), rights, harness.actor(), done
            )
        )
    harness.a_hub("other")
    harness.capture()

    [planned] = harness.captures.plan()

    assert (planned.entity.name, planned.rule.name) == ("orders", "reader")
    assert planned.place.url.endswith("/hubmere-capture")


def test_a_hub_that_cannot_be_captured_is_omitted_from_the_plan_with_a_reason(harness: CaptureHarness) -> None:
    """A problem of one hub must not affect the others."""
    harness.capture()
    spec = replace(NamespaceSpec.of(harness.hub.namespace.entity), disable_local_auth=True)
    harness.do(lambda done: harness.manager.update_namespace("hubmere", spec, harness.actor(), done))

    status = harness.status()

    assert harness.captures.plan() == []
    assert not harness.captures.has_work
    assert (status.state, "local authentication is disabled" in status.reason) == (JobState.BLOCKED, True)


def test_destination_without_a_target_is_refused_when_capture_is_enabled(harness: CaptureHarness) -> None:
    """The client gets the error, not only the log, and nothing is changed."""
    with pytest.raises(InvalidArgument):
        harness.capture(destination=CaptureDestination(storage_account="file:///etc"))

    assert harness.hub.entity.capture is None


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_is_stored_counted_and_shown(harness: CaptureHarness) -> None:
    """State, lag and last file are those of the job's last report."""
    harness.capture()
    harness.publish(5)
    harness.captures.supervision = Supervision(state=JobState.RUNNING, pid=7)
    part = PartitionReport(partition=0, captured=3, last_file=FILE, files=1, events=3, size_bytes=900)

    supervision = harness.report(part)
    told_again = harness.report(part)
    status = harness.status()

    assert (supervision, told_again) == ([FILE.name], [])
    assert (status.state, status.files, status.events, status.last_file) == (JobState.RUNNING, 1, 3, FILE)
    assert (status.lag_events, status.partitions[0].captured) == (2, 3)
    assert status.backlog_bytes == harness.hub.log(0).state.size_bytes * 2 // 5
    assert (harness.hub.counters.captured_messages, harness.hub.counters.captured_bytes) == (3, 900)


def test_totals_that_start_again_at_zero_are_not_subtracted(harness: CaptureHarness) -> None:
    """Counters only grow, even if a restarted job reports smaller totals."""
    harness.capture()
    for events, files in ((10, 2), (4, 1), (5, 2)):
        harness.report(PartitionReport(partition=0, captured=events, events=events, files=files))

    assert harness.hub.counters.captured_messages == 15


def test_a_report_about_an_earlier_capture_changes_nothing(harness: CaptureHarness) -> None:
    """A job with an outdated plan must not move the position of the new capture."""
    old = harness.capture().entity.captured_since.id
    harness.capture(enabled=False)
    harness.publish(4)
    harness.capture()

    harness.report(PartitionReport(partition=0, captured=99, files=1), capture_id=old)

    assert harness.captures.captured_end(harness.hub.entity, 0) == 4
    assert harness.status().files == 0


def test_a_report_about_an_unknown_partition_is_refused_as_a_whole(harness: CaptureHarness) -> None:
    """No part of the report is stored."""
    harness.capture()
    with pytest.raises(InvalidArgument):
        harness.report(PartitionReport(partition=0, captured=1), PartitionReport(partition=4, captured=1))

    assert harness.captures.reported_at is None
    assert harness.catalog.view.capture_states(harness.hub.entity.uid) == []


def test_the_state_of_a_failing_hub_differs_from_that_of_a_healthy_one(harness: CaptureHarness) -> None:
    """The job continues to run, and the status of the hub has the job's error text."""
    harness.capture()
    harness.captures.supervision = Supervision(state=JobState.RUNNING)

    harness.report(error="the container is gone")
    failing = harness.status()
    harness.report()

    assert (failing.state, failing.reason) == (JobState.FAILING, "the container is gone")
    assert harness.status().state is JobState.RUNNING


def test_a_job_on_another_machine_is_running_while_it_reports(harness: CaptureHarness) -> None:
    """The state depends on the reports, not on who started the job."""
    harness.capture()
    silent = harness.status().state
    harness.report()
    heard = harness.status().state
    harness.now += 31

    assert (silent, heard, harness.status().state) == (
        JobState.UNSUPERVISED,
        JobState.RUNNING,
        JobState.UNSUPERVISED,
    )


def test_a_hub_is_starting_until_the_job_captures_it(harness: CaptureHarness) -> None:
    """A job that reports may still wait for Spark's processes, for all hubs or for this one."""
    states = []
    harness.capture()
    for is_starting, job in ((True, JobReport(state="starting")), (True, JOB), (False, JOB), (True, JOB)):
        harness.report(is_starting=is_starting, job=job)
        states.append((harness.captures.job_status(harness.now).state, harness.status().state))

    assert states == [
        (JobState.STARTING, JobState.STARTING),
        (JobState.RUNNING, JobState.STARTING),
        (JobState.RUNNING, JobState.RUNNING),
        (JobState.RUNNING, JobState.STARTING),
    ]


def test_a_hub_that_fails_to_start_shows_the_reason(harness: CaptureHarness) -> None:
    """A failure that repeats at every start must not look like a slow start."""
    harness.capture()

    harness.report(is_starting=True, error="no answer", job=JobReport(state="starting"))

    assert (harness.status().state, harness.status().reason) == (JobState.FAILING, "no answer")


def test_a_hub_that_is_in_no_report_yet_is_starting(harness: CaptureHarness) -> None:
    """Capture was enabled for this hub while the job was already running for others."""
    harness.capture()
    harness.captures.supervision = Supervision(state=JobState.RUNNING)

    assert harness.status().state is JobState.STARTING


def test_a_hub_without_capture_has_no_status(harness: CaptureHarness) -> None:
    """It has no lag either."""
    harness.publish(3)

    status = harness.status()

    assert (status.state, status.lag_events, status.url, status.last_file) == (JobState.OFF, 0, "", None)


# --- retention -------------------------------------------------------------------------------------------------------


def test_events_past_retention_wait_until_they_are_captured(harness: CaptureHarness) -> None:
    """Retention is held back until the job's report, and the alarm ends with it."""
    harness.capture()
    harness.publish(40)
    late = NOW_MS + 200 * HOUR_MS

    first = harness.broker.upkeep.apply_retention(harness.hub.view, 0, late)
    second = harness.broker.upkeep.apply_retention(harness.hub.view, 0, late)
    held_bytes = harness.status().held_bytes
    harness.report(PartitionReport(partition=0, captured=40, files=1))
    last = harness.broker.upkeep.apply_retention(harness.hub.view, 0, late)

    assert (first.deleted_segments, first.is_newly_held, second.is_newly_held) == (0, True, False)
    assert held_bytes == first.held_bytes > 0
    assert last.deleted_segments > 0
    assert (last.held_bytes, harness.status().held_bytes) == (0, 0)
    assert not last.lost
    assert harness.hub.counters.capture_lost_messages == 0


@pytest.mark.parametrize("hold_bytes", [None, 0])
def test_events_that_retention_deletes_before_their_capture_are_reported(hold_bytes: int | None) -> None:
    """Without a hold, or beyond its maximum size, retention deletes; the range is logged and counted."""
    harness = CaptureHarness(capture_hold_bytes=hold_bytes, segment_bytes=1_000)
    harness.publish(2)
    harness.capture()
    harness.publish(38)
    harness.report(PartitionReport(partition=0, captured=10, files=1))

    report = harness.broker.upkeep.apply_retention(harness.hub.view, 0, NOW_MS + 200 * HOUR_MS)
    lost = harness.hub.counters.capture_lost_messages
    harness.close()

    assert (report.lost, lost) == (range(10, 40), 30)


def test_retention_of_a_hub_without_capture_is_not_held_back(harness: CaptureHarness) -> None:
    """Capture changes nothing for other hubs."""
    harness.publish(40)

    report = harness.broker.upkeep.apply_retention(harness.hub.view, 0, NOW_MS + 200 * HOUR_MS)

    assert report.deleted_segments > 0
    assert (report.held_bytes, list(report.lost)) == (0, [])
    assert harness.hub.log(0).state.log_start == 40


# --- when work is due ------------------------------------------------------------------------------------------------

WINDOW_START_MS = NOW_MS - NOW_MS % 1000


def a_window(harness: CaptureHarness, *, start_ms: int = WINDOW_START_MS, captured: int = 0) -> None:
    """Report an open window of each partition, as the job does."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    parts = range(harness.hub.entity.partition_count)
    harness.report(*(PartitionReport(partition=one, captured=captured, window_start=start) for one in parts))


def test_work_is_due_while_the_windows_are_not_known(harness: CaptureHarness) -> None:
    """After Capture was enabled or the node was restarted, the job must run and report its windows."""
    harness.capture(skip_empty=True)

    assert harness.captures.next_due_ms(NOW_MS) == 0


def test_no_work_is_due_in_a_hub_without_waiting_events(harness: CaptureHarness) -> None:
    """The job need not run, unless it has to write empty files."""
    harness.capture(skip_empty=True)
    a_window(harness)
    without_files = harness.captures.next_due_ms(NOW_MS)
    described = harness.capture(skip_empty=False).entity.capture

    assert described is not None
    assert without_files is None
    assert harness.captures.next_due_ms(NOW_MS) == WINDOW_START_MS + described.interval_s * 1000


def test_work_is_due_at_the_end_of_the_window_of_the_first_waiting_event(harness: CaptureHarness) -> None:
    """Windows follow each other from the last reported one, also while the job does not run."""
    described = harness.capture(skip_empty=True).entity.capture
    assert described is not None
    interval_ms = described.interval_s * 1000
    a_window(harness)
    harness.publish(1, now_ms=WINDOW_START_MS + 7 * interval_ms + 1)
    harness.publish(1, now_ms=WINDOW_START_MS + 9 * interval_ms)

    now_ms = WINDOW_START_MS + 9 * interval_ms
    assert harness.captures.next_due_ms(now_ms) == WINDOW_START_MS + 8 * interval_ms


def test_work_is_due_although_the_first_waiting_event_has_a_time_in_the_far_future(harness: CaptureHarness) -> None:
    """Producers may set times (CreateTime). The job closes such a window now, so it must not sleep until then."""
    described = harness.capture(skip_empty=True).entity.capture
    assert described is not None
    interval_ms = described.interval_s * 1000
    a_window(harness)
    harness.publish(1, now_ms=WINDOW_START_MS + 1000 * interval_ms)

    assert harness.captures.next_due_ms(WINDOW_START_MS) == WINDOW_START_MS + interval_ms
    now_ms = WINDOW_START_MS + 5 * interval_ms
    due_ms = harness.captures.next_due_ms(now_ms)
    assert due_ms is not None
    assert due_ms <= now_ms


def test_work_is_due_at_once_when_the_size_is_reached(harness: CaptureHarness) -> None:
    """A window ends by size before its time."""
    described = harness.capture(skip_empty=True).entity.capture
    assert described is not None
    a_window(harness)
    count = described.size_limit_bytes // 1_000_000 + 1

    for _ in range(count):
        assert harness.captures.next_due_ms(NOW_MS) != 0
        harness.publish(1, size=1_000_000)

    assert harness.captures.next_due_ms(NOW_MS) == 0


def test_work_is_due_for_a_hub_that_fails(harness: CaptureHarness) -> None:
    """The job must try the hub again."""
    harness.capture(skip_empty=True)
    a_window(harness)

    harness.report(error="the destination is gone")

    assert harness.captures.next_due_ms(NOW_MS) == 0


def test_windows_of_an_earlier_capture_do_not_apply_to_the_next(harness: CaptureHarness) -> None:
    """After Capture was disabled and enabled again, it starts at the event and the second of the last change."""
    harness.capture(skip_empty=True)
    a_window(harness)
    harness.capture(enabled=False)

    harness.capture(skip_empty=True)

    assert harness.captures.next_due_ms(NOW_MS) == 0
