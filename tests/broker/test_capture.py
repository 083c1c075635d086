"""The broker's decisions about Capture: its start, the plan, reports of the job, and what retention keeps."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from broker.builders import NOW_MS, Bench, a_batch
from hubmere.broker.live import LiveHub
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


class CaptureBench(Bench):
    """A broker whose hub can be captured, published to and reported on."""

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
            files = self.captures.record_report(job, [supervision], now=self.now, now_ms=NOW_MS, done=done)  # type: ignore[arg-type]
            names.extend(new.file.name for new in files)

        self.do(record_report)
        return names

    def status(self) -> HubCaptureStatus:
        return self.captures.hub_status(self.hub.view, self.now)


@pytest.fixture
def bench() -> Iterator[CaptureBench]:
    made = CaptureBench(capture_hold_bytes=1 << 30, segment_bytes=1_000)
    yield made
    made.close()


# --- where it begins -------------------------------------------------------------------------------------------------


def test_capture_begins_at_the_end_of_each_log(bench: CaptureBench) -> None:
    """Events from before it was switched on are not captured (reference: service 6)."""
    bench.publish(3)
    bench.publish(1, partition=2)

    start = bench.capture().entity.capture_start

    assert start is not None
    assert (start.since, start.started_ms) == ((3, 0, 1, 0), NOW_MS)


def test_a_hub_that_is_made_captured_is_captured_as_a_whole(bench: CaptureBench) -> None:
    """It has no events from before."""
    hub = bench.a_hub("born", spec=HubSpec(partition_count=2, capture=CaptureDescription(enabled=True)))

    assert hub.entity.capture_start is not None
    assert hub.entity.capture_start.since == ()


def test_other_changes_leave_the_beginning_where_it_was(bench: CaptureBench) -> None:
    """Only disabling and enabling it sets a new start."""
    first = bench.capture().entity.capture_start
    bench.publish(5)

    kept = bench.change(replace(HubSpec.of(bench.hub.entity), user_metadata="x")).entity.capture_start
    bench.capture(enabled=False)
    off = bench.hub.entity.capture_start
    again = bench.capture().entity.capture_start

    assert kept == first
    assert off is None
    assert again is not None
    assert first is not None
    assert again.id != first.id
    assert again.since[0] == 5


def test_a_partition_that_is_added_later_is_captured_from_its_beginning() -> None:
    """It was empty when capture began, because it was not there."""
    bench = CaptureBench(limits={"partitions_may_grow": True})
    bench.publish(2)
    start = bench.capture().entity.captured_since
    grown = bench.change(replace(HubSpec.of(bench.hub.entity), partition_count=6)).entity
    bench.close()

    assert grown.captured_since == start
    assert [start.first_sequence(number) for number in range(6)] == [2, 0, 0, 0, 0, 0]


# --- the plan --------------------------------------------------------------------------------------------------------


def test_the_plan_has_the_captured_hubs_and_the_least_rule_that_reads_them(bench: CaptureBench) -> None:
    """A job needs no more than Listen."""
    for name, rights in (("sender", Rights.SEND), ("reader", Rights.LISTEN)):
        bench.do(
            lambda done, name=name, rights=rights: bench.manager.write_rule(  # type: ignore[misc]
                "hubmere", "orders", rule_name(name), rights, bench.actor(), done
            )
        )
    bench.a_hub("other")
    bench.capture()

    [planned] = bench.captures.plan()

    assert (planned.entity.name, planned.rule.name) == ("orders", "reader")
    assert planned.place.url.endswith("/hubmere-capture")


def test_a_hub_that_cannot_be_captured_is_left_out_and_says_why(bench: CaptureBench) -> None:
    """One hub's trouble is not the others'."""
    bench.capture()
    spec = replace(NamespaceSpec.of(bench.hub.namespace.entity), disable_local_auth=True)
    bench.do(lambda done: bench.manager.update_namespace("hubmere", spec, bench.actor(), done))

    status = bench.status()

    assert bench.captures.plan() == []
    assert not bench.captures.has_work
    assert (status.state, "local authentication is disabled" in status.reason) == (JobState.BLOCKED, True)


def test_a_destination_that_no_target_has_is_refused_when_it_is_asked_for(bench: CaptureBench) -> None:
    """Whoever asks hears it, not a log file; and nothing was changed."""
    with pytest.raises(InvalidArgument):
        bench.capture(destination=CaptureDestination(storage_account="file:///etc"))

    assert bench.hub.entity.capture is None


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_is_kept_counted_and_shown(bench: CaptureBench) -> None:
    """State, lag and last file are those of the job's last report."""
    bench.capture()
    bench.publish(5)
    bench.captures.supervision = Supervision(state=JobState.RUNNING, pid=7)
    part = PartitionReport(partition=0, captured=3, last_file=FILE, files=1, events=3, size_bytes=900)

    supervision = bench.report(part)
    told_again = bench.report(part)
    status = bench.status()

    assert (supervision, told_again) == ([FILE.name], [])
    assert (status.state, status.files, status.events, status.last_file) == (JobState.RUNNING, 1, 3, FILE)
    assert (status.lag_events, status.partitions[0].captured) == (2, 3)
    assert status.backlog_bytes == bench.hub.log(0).state.size_bytes * 2 // 5
    assert (bench.hub.counters.captured_messages, bench.hub.counters.captured_bytes) == (3, 900)


def test_totals_of_a_job_that_began_anew_are_not_taken_off(bench: CaptureBench) -> None:
    """Counters only grow, whatever the job remembers."""
    bench.capture()
    for events, files in ((10, 2), (4, 1), (5, 2)):
        bench.report(PartitionReport(partition=0, captured=events, events=events, files=files))

    assert bench.hub.counters.captured_messages == 15


def test_a_report_about_an_earlier_stretch_changes_nothing(bench: CaptureBench) -> None:
    """A job that has not asked for the plan since must not move the mark of the new stretch."""
    old = bench.capture().entity.captured_since.id
    bench.capture(enabled=False)
    bench.publish(4)
    bench.capture()

    bench.report(PartitionReport(partition=0, captured=99, files=1), capture_id=old)

    assert bench.captures.captured(bench.hub.entity, 0) == 4
    assert bench.status().files == 0


def test_a_report_about_a_partition_that_is_not_there_is_refused_as_a_whole(bench: CaptureBench) -> None:
    """Nothing of it is kept."""
    bench.capture()
    with pytest.raises(InvalidArgument):
        bench.report(PartitionReport(partition=0, captured=1), PartitionReport(partition=4, captured=1))

    assert bench.captures.reported_at is None
    assert bench.catalog.view.capture_states(bench.hub.entity.uid) == []


def test_the_state_of_a_failing_hub_differs_from_that_of_a_healthy_one(bench: CaptureBench) -> None:
    """The job runs on; the hub shows the job's words."""
    bench.capture()
    bench.captures.supervision = Supervision(state=JobState.RUNNING)

    bench.report(error="the container is gone")
    failing = bench.status()
    bench.report()

    assert (failing.state, failing.reason) == (JobState.FAILING, "the container is gone")
    assert bench.status().state is JobState.RUNNING


def test_a_job_that_others_run_is_running_while_it_reports(bench: CaptureBench) -> None:
    """The reports decide, not who started it."""
    bench.capture()
    silent = bench.status().state
    bench.report()
    heard = bench.status().state
    bench.now += 31

    assert (silent, heard, bench.status().state) == (
        JobState.UNSUPERVISED,
        JobState.RUNNING,
        JobState.UNSUPERVISED,
    )


def test_a_hub_is_starting_until_the_job_captures_it(bench: CaptureBench) -> None:
    """A job that reports may still wait for Spark's processes, for all hubs or for this one."""
    states = []
    bench.capture()
    for is_starting, job in ((True, JobReport(state="starting")), (True, JOB), (False, JOB), (True, JOB)):
        bench.report(is_starting=is_starting, job=job)
        states.append((bench.captures.job_status(bench.now).state, bench.status().state))

    assert states == [
        (JobState.STARTING, JobState.STARTING),
        (JobState.RUNNING, JobState.STARTING),
        (JobState.RUNNING, JobState.RUNNING),
        (JobState.RUNNING, JobState.STARTING),
    ]


def test_a_hub_that_fails_to_start_says_why(bench: CaptureBench) -> None:
    """The same failure at every start must not look like a long start."""
    bench.capture()

    bench.report(is_starting=True, error="no answer", job=JobReport(state="starting"))

    assert (bench.status().state, bench.status().reason) == (JobState.FAILING, "no answer")


def test_a_hub_that_no_report_has_named_yet_is_starting(bench: CaptureBench) -> None:
    """Captured while the job runs for others."""
    bench.capture()
    bench.captures.supervision = Supervision(state=JobState.RUNNING)

    assert bench.status().state is JobState.STARTING


def test_a_hub_that_is_not_captured_has_nothing_to_show(bench: CaptureBench) -> None:
    """It has no lag either."""
    bench.publish(3)

    status = bench.status()

    assert (status.state, status.lag_events, status.url, status.last_file) == (JobState.OFF, 0, "", None)


# --- retention -------------------------------------------------------------------------------------------------------


def test_events_past_retention_wait_until_they_are_captured(bench: CaptureBench) -> None:
    """The hold ends with the job's report, and the alarm with it."""
    bench.capture()
    bench.publish(40)
    late = NOW_MS + 200 * HOUR_MS

    first = bench.broker.upkeep.apply_retention(bench.hub.view, 0, late)
    second = bench.broker.upkeep.apply_retention(bench.hub.view, 0, late)
    held_bytes = bench.status().held_bytes
    bench.report(PartitionReport(partition=0, captured=40, files=1))
    last = bench.broker.upkeep.apply_retention(bench.hub.view, 0, late)

    assert (first.deleted_segments, first.is_newly_held, second.is_newly_held) == (0, True, False)
    assert held_bytes == first.held_bytes > 0
    assert last.deleted_segments > 0
    assert (last.held_bytes, bench.status().held_bytes) == (0, 0)
    assert not last.lost
    assert bench.hub.counters.capture_lost_messages == 0


@pytest.mark.parametrize("hold_bytes", [None, 0])
def test_events_that_go_before_they_are_captured_are_named(hold_bytes: int | None) -> None:
    """Without a hold, or beyond its size, retention deletes; the range is reported and counted."""
    bench = CaptureBench(capture_hold_bytes=hold_bytes, segment_bytes=1_000)
    bench.publish(2)
    bench.capture()
    bench.publish(38)
    bench.report(PartitionReport(partition=0, captured=10, files=1))

    report = bench.broker.upkeep.apply_retention(bench.hub.view, 0, NOW_MS + 200 * HOUR_MS)
    lost = bench.hub.counters.capture_lost_messages
    bench.close()

    assert (report.lost, lost) == (range(10, 40), 30)


def test_a_hub_that_is_not_captured_holds_nothing(bench: CaptureBench) -> None:
    """Retention is as it always was."""
    bench.publish(40)

    report = bench.broker.upkeep.apply_retention(bench.hub.view, 0, NOW_MS + 200 * HOUR_MS)

    assert report.deleted_segments > 0
    assert (report.held_bytes, list(report.lost)) == (0, [])
    assert bench.hub.log(0).state.log_start == 40


# --- when work is due ------------------------------------------------------------------------------------------------

WINDOW_START_MS = NOW_MS - NOW_MS % 1000


def a_window(bench: CaptureBench, *, start_ms: int = WINDOW_START_MS, captured: int = 0) -> None:
    """The job reports an open window of each partition."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    parts = range(bench.hub.entity.partition_count)
    bench.report(*(PartitionReport(partition=one, captured=captured, window_start=start) for one in parts))


def test_work_is_due_while_the_windows_are_not_known(bench: CaptureBench) -> None:
    """A hub that was just captured, or a node that was restarted: the job must run and say."""
    bench.capture(skip_empty=True)

    assert bench.captures.next_due_ms() == 0


def test_nothing_is_due_in_a_hub_without_waiting_events(bench: CaptureBench) -> None:
    """The job need not run at all, unless it has to write files without events."""
    bench.capture(skip_empty=True)
    a_window(bench)
    without_files = bench.captures.next_due_ms()
    described = bench.capture(skip_empty=False).entity.capture

    assert described is not None
    assert without_files is None
    assert bench.captures.next_due_ms() == WINDOW_START_MS + described.interval_s * 1000


def test_work_is_due_at_the_end_of_the_window_of_the_first_waiting_event(bench: CaptureBench) -> None:
    """Windows follow each other from the reported one, also while nothing happens."""
    described = bench.capture(skip_empty=True).entity.capture
    assert described is not None
    interval_ms = described.interval_s * 1000
    a_window(bench)
    bench.publish(1, now_ms=WINDOW_START_MS + 7 * interval_ms + 1)
    bench.publish(1, now_ms=WINDOW_START_MS + 9 * interval_ms)

    assert bench.captures.next_due_ms() == WINDOW_START_MS + 8 * interval_ms


def test_work_is_due_at_once_when_the_size_is_reached(bench: CaptureBench) -> None:
    """A window ends by size before its time."""
    described = bench.capture(skip_empty=True).entity.capture
    assert described is not None
    a_window(bench)
    count = described.size_limit_bytes // 1_000_000 + 1

    for _ in range(count):
        assert bench.captures.next_due_ms() != 0
        bench.publish(1, size=1_000_000)

    assert bench.captures.next_due_ms() == 0


def test_work_is_due_while_a_hub_fails(bench: CaptureBench) -> None:
    """What has failed is tried again."""
    bench.capture(skip_empty=True)
    a_window(bench)

    bench.report(error="the destination is gone")

    assert bench.captures.next_due_ms() == 0


def test_windows_of_an_earlier_capture_are_not_those_of_the_next(bench: CaptureBench) -> None:
    """A capture that is switched off and on starts at the event and the second of the second switch."""
    bench.capture(skip_empty=True)
    a_window(bench)
    bench.capture(enabled=False)

    bench.capture(skip_empty=True)

    assert bench.captures.next_due_ms() == 0
