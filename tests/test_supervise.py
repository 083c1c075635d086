"""The supervisor of the capture job, with real child processes: started, monitored, restarted and stopped."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.builders import BrokerHarness, a_batch
from hubmere.broker.management.capture import HubReport, JobReport, JobState, PartitionReport, Supervision
from hubmere.capture.java import CannotRun
from hubmere.capture.service import CaptureJob
from hubmere.capture.supervisor import JobCommand, Lease, Patience, Retries, Sleep, Supervisor
from hubmere.model.addresses import Addresses
from hubmere.model.clock import SystemClock
from hubmere.model.entity import CaptureDescription
from hubmere.model.spec import HubSpec
from hubmere.settings import Settings

# Short where a test waits for it, long where it must not happen.
PATIENCE = Patience(tick=0.01, first_report=60, silence=60, first_retry=0.01, last_retry=0.02, stop=120, last_stop=120)
PATIENT_S = 240.0

FAILS = "print('the disk is full'); raise SystemExit(3)"
OBEYS = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
IGNORES = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)
# The job has child processes, Java and Python workers, in its process group.
HAS_CHILDREN = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('child', child.pid, flush=True); child.wait()"
)


class SupervisorHarness:
    """A supervisor of the captured hubs of a real broker; a script plays the role of the job."""

    def __init__(self, folder: Path, script: str) -> None:
        self.broker_harness = BrokerHarness()
        self.script = script
        self.folder = folder
        self.log_file = folder / "job.log"
        self.starts = 0

    async def prepare(self) -> JobCommand:
        self.starts += 1
        return JobCommand(
            arguments=(sys.executable, "-c", self.script), environment=dict(os.environ), folder=self.folder / "work"
        )

    def supervisor(
        self, patience: Patience = PATIENCE, prepare: Callable[[], Awaitable[JobCommand]] | None = None
    ) -> Supervisor:
        return Supervisor(
            self.broker_harness.broker.captures, SystemClock(), prepare or self.prepare, self.log_file, patience
        )

    def capture(self, *, enabled: bool = True) -> None:
        described = CaptureDescription(enabled=enabled, skip_empty=True)
        spec = replace(HubSpec.of(self.broker_harness.hub.entity), capture=described)
        self.broker_harness.do(
            lambda done: self.broker_harness.manager.update_hub(
                "hubmere", "orders", spec, self.broker_harness.actor(), done
            )
        )

    def report(self, state: str = "running") -> None:
        """Report a state, as the job does every few seconds."""
        captures, now = self.broker_harness.broker.captures, SystemClock().monotonic()
        self.broker_harness.do(
            lambda done: captures.record_report(JobReport(pid=1, state=state), [], now=now, now_ms=0, on_done=done)
        )

    def report_windows(self) -> None:
        """Report that no hub has waiting events, as the job does after its first check."""
        captures, clock, entity = self.broker_harness.broker.captures, SystemClock(), self.broker_harness.hub.entity
        start = datetime.now(UTC).isoformat()
        parts = tuple(
            PartitionReport(
                partition=one, captured=self.broker_harness.hub.log(one).state.committed, window_start=start
            )
            for one in range(entity.partition_count)
        )
        hub = HubReport(namespace="hubmere", hub="orders", id=entity.captured_since.id, partitions=parts)
        job, now = JobReport(pid=1, state="running"), clock.monotonic()
        self.broker_harness.do(lambda done: captures.record_report(job, [hub], now=now, now_ms=0, on_done=done))

    @property
    def supervision(self) -> Supervision:
        return self.broker_harness.broker.captures.supervision

    def log_text(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[[str], SupervisorHarness]]:
    made: list[SupervisorHarness] = []

    def harness(script: str) -> SupervisorHarness:
        made.append(SupervisorHarness(tmp_path, script))
        return made[-1]

    yield harness
    for one in made:
        one.broker_harness.close()


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def supervised(supervisor: Supervisor, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario while the supervisor runs, then stop it as a node does."""

    async def both() -> None:
        task = asyncio.create_task(supervisor.run())
        try:
            await scenario()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(both())


def is_there(pid: int) -> bool:
    """Whether a process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_gone(*pids: int) -> None:
    """Wait until a killed process has ended."""
    deadline = time.monotonic() + PATIENT_S
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_job_runs_while_a_hub_is_captured(keep: Callable[[str], SupervisorHarness]) -> None:
    """It is started with the first captured hub, stopped after the last one, and shown as running after its report."""
    harness = keep(OBEYS)
    states: list[JobState] = []

    async def scenario() -> None:
        await asyncio.sleep(0.05)
        states.append(harness.supervision.state)
        harness.capture()
        await until(lambda: "up" in harness.log_text())
        states.append(harness.supervision.state)
        pid = harness.supervision.pid
        harness.report("starting")
        await asyncio.sleep(0.05)
        states.append(harness.supervision.state)
        harness.report()
        await until(lambda: harness.supervision.state is JobState.RUNNING)
        harness.capture(enabled=False)
        await until(lambda: harness.supervision.state is JobState.OFF)
        assert pid is not None
        await_gone(pid)

    supervised(harness.supervisor(), scenario)

    assert states == [JobState.OFF, JobState.STARTING, JobState.STARTING]
    assert (harness.starts, harness.supervision.restarts) == (1, 0)


def test_failed_job_is_restarted_and_its_last_output_is_the_reason(
    keep: Callable[[str], SupervisorHarness],
) -> None:
    """A repeated failure becomes an alarm."""
    harness = keep(FAILS)
    harness.capture()

    async def scenario() -> None:
        await until(lambda: harness.supervision.is_alarmed and harness.supervision.state is JobState.BACKING_OFF)

    supervised(harness.supervisor(replace(PATIENCE, alarm_after=3)), scenario)

    assert harness.starts >= 3
    assert harness.log_text().count("the disk is full") >= 3


def test_the_reason_of_a_failure_is_shown(keep: Callable[[str], SupervisorHarness]) -> None:
    """It is one line that helps an operator."""
    harness = keep(FAILS)
    harness.capture()
    reasons: list[str] = []

    async def scenario() -> None:
        await until(lambda: harness.supervision.state is JobState.BACKING_OFF)
        reasons.append(harness.supervision.reason)

    supervised(harness.supervisor(replace(PATIENCE, first_retry=60)), scenario)

    assert reasons == ["it ended with exit code 3: the disk is full"]


@pytest.mark.parametrize("has_reported", [False, True])
def test_silent_job_is_killed_and_restarted(keep: Callable[[str], SupervisorHarness], has_reported: bool) -> None:
    """A running process is not enough: the job must report progress."""
    harness = keep(IGNORES)
    harness.capture()
    patience = replace(PATIENCE, silence=0.3) if has_reported else replace(PATIENCE, first_report=0.3)

    async def scenario() -> None:
        await until(lambda: harness.supervision.state is JobState.STARTING)
        if has_reported:
            harness.report()
        await until(lambda: harness.supervision.restarts >= 1)

    supervised(harness.supervisor(replace(patience, last_stop=0.1)), scenario)

    assert harness.starts >= 2


def test_killed_job_leaves_no_processes(keep: Callable[[str], SupervisorHarness]) -> None:
    """Java and Python workers are in the job's process group and are killed with it."""
    harness = keep(HAS_CHILDREN)
    harness.capture()
    pids: list[int] = []

    async def scenario() -> None:
        await until(lambda: "child" in harness.log_text())
        pids.extend((harness.supervision.pid or 0, int(harness.log_text().split()[1])))

    supervised(harness.supervisor(replace(PATIENCE, last_stop=0.1)), scenario)

    assert len(pids) == 2
    await_gone(*pids)


def test_job_that_ignores_signals_is_killed_when_the_node_stops(keep: Callable[[str], SupervisorHarness]) -> None:
    """A stop has a time limit."""
    harness = keep(IGNORES)
    harness.capture()
    pids: list[int] = []

    async def scenario() -> None:
        await until(lambda: "up" in harness.log_text())
        pids.append(harness.supervision.pid or 0)

    supervised(harness.supervisor(replace(PATIENCE, last_stop=0.1)), scenario)

    await_gone(*pids)
    assert harness.supervision.state is JobState.OFF


def test_job_of_an_earlier_node_is_ended_before_another_is_started(
    keep: Callable[[str], SupervisorHarness],
) -> None:
    """Two jobs must never write to the same checkpoints; the lock belongs to the job, not to the node."""
    harness = keep(OBEYS)
    harness.capture()
    lease = Lease(harness.log_file.with_name("job.lock"))
    fd = lease.acquire()
    left = subprocess.Popen(
        [sys.executable, "-c", IGNORES], stdout=subprocess.PIPE, pass_fds=(fd,), start_new_session=True
    )
    lease.hand_over(fd, left.pid)
    assert left.stdout is not None
    assert left.stdout.readline() == b"up\n"

    async def scenario() -> None:
        await until(lambda: harness.supervision.state is JobState.STARTING)

    supervised(harness.supervisor(), scenario)

    assert left.wait(PATIENT_S) == -signal.SIGKILL
    left.stdout.close()


def test_node_that_cannot_run_the_job_shows_the_reason_and_tries_again(
    keep: Callable[[str], SupervisorHarness],
) -> None:
    """Java may be installed while the node runs."""
    harness = keep(OBEYS)
    harness.capture()
    results: list[Supervision] = []

    async def prepare() -> JobCommand:
        if not results:
            raise CannotRun("Java is not installed")
        return await harness.prepare()

    async def scenario() -> None:
        await until(lambda: harness.supervision.state is JobState.BLOCKED)
        results.append(harness.supervision)
        await until(lambda: harness.supervision.state is JobState.STARTING)

    supervised(harness.supervisor(replace(PATIENCE, blocked=0.05), prepare), scenario)

    assert results[0].reason == "Java is not installed"


def test_failure_of_the_supervisor_is_shown_and_tried_again(
    keep: Callable[[str], SupervisorHarness], caplog: pytest.LogCaptureFixture
) -> None:
    """An error of Capture must not stop the node."""
    harness = keep(OBEYS)
    harness.capture()
    results: list[Supervision] = []

    async def prepare() -> JobCommand:
        if not results:
            raise RuntimeError("a bug")
        return await harness.prepare()

    async def scenario() -> None:
        await until(lambda: harness.supervision.state is JobState.BLOCKED)
        results.append(harness.supervision)
        await until(lambda: harness.supervision.state is JobState.STARTING)

    supervised(harness.supervisor(replace(PATIENCE, blocked=0.05), prepare), scenario)

    assert results[0].reason == "RuntimeError: a bug"
    assert "supervising the capture job failed" in caplog.text


def test_pauses_grow_up_to_a_limit_and_are_reset_after_a_good_run() -> None:
    """This is an exponential back-off; after a long run the restart is quick."""
    retries = Retries(Patience(first_retry=1, last_retry=5, well=100, alarm_after=3))

    waits = [retries.record_failure("same", 1) for _ in range(5)]
    alarmed = retries.is_alarming
    after_good_run = retries.record_failure("same", 100)

    assert waits == [1, 2, 4, 5, 5]
    assert alarmed
    assert (after_good_run, retries.is_alarming) == (1, False)


def test_different_failures_cause_no_alarm() -> None:
    """Only a repeated failure does."""
    retries = Retries(Patience(alarm_after=2))

    retries.record_failure("one", 0)
    retries.record_failure("two", 0)

    assert not retries.is_alarming


# --- sleeping --------------------------------------------------------------------------------------------------------

DROWSY = replace(PATIENCE, sleep_after=0.2, due_check=0.01, least_lead=0.05, most_lead=0.05)


def test_job_without_work_is_stopped_and_restarted_when_a_window_is_full(
    keep: Callable[[str], SupervisorHarness],
) -> None:
    """The stopped job uses no resources, and its starts do not count as restarts."""
    harness = keep(OBEYS)
    shown: list[Supervision] = []

    async def scenario() -> None:
        harness.capture()
        await until(lambda: "up" in harness.log_text())
        pid = harness.supervision.pid
        harness.report_windows()
        await until(lambda: harness.supervision.state is JobState.SLEEPING)
        shown.append(harness.supervision)
        assert pid is not None
        assert not is_there(pid)
        described = harness.broker_harness.hub.entity.capture
        assert described is not None
        for _ in range(described.size_limit_bytes // 1_000_000 + 1):
            harness.broker_harness.hub.log(0).append(a_batch(body=b"x" * 1_000_000), SystemClock().now_ms())
        harness.broker_harness.turn.run()
        await until(lambda: harness.starts == 2 and harness.supervision.state is JobState.STARTING)
        shown.append(harness.supervision)

    supervised(harness.supervisor(DROWSY), scenario)

    assert (shown[0].reason, shown[0].pid, shown[0].restarts) == ("no events are waiting", None, 0)
    assert shown[1].restarts == 0


def test_job_without_known_windows_keeps_running(keep: Callable[[str], SupervisorHarness]) -> None:
    """The job has not read a position yet, so that the time of its next work is unknown."""
    harness = keep(OBEYS)

    async def scenario() -> None:
        harness.capture()
        await until(lambda: "up" in harness.log_text())
        harness.report("running")
        await until(lambda: harness.supervision.state is JobState.RUNNING)
        await asyncio.sleep(3 * DROWSY.sleep_after)
        assert harness.supervision.state is JobState.RUNNING

    supervised(harness.supervisor(DROWSY), scenario)


def test_job_is_stopped_only_after_a_longer_time_without_work() -> None:
    """A start costs seconds of CPU time, so a short stop is not worth it."""
    sleep = Sleep(Patience(sleep_after=60, least_lead=10, most_lead=40))

    sleep.record_due(100.0, now=0.0)
    at_once = sleep.may_stop(0.0)
    sleep.record_due(40.0, now=60.0)
    short = sleep.may_stop(60.0)
    sleep.record_due(None, now=80.0)
    sleep.record_due(300.0, now=140.0)

    assert not at_once
    assert not short
    assert sleep.may_stop(140.0)


def test_job_is_started_early_enough_for_its_next_window() -> None:
    """It is started by the duration of its last start before the window ends."""
    sleep = Sleep(Patience(sleep_after=60, least_lead=10, most_lead=40))
    sleep.record_due(25.0, now=0.0)
    usual = sleep.must_run

    sleep.record_start(took_s=30.0)

    assert not usual
    assert sleep.must_run


def test_job_is_not_stopped_when_it_would_be_started_again_at_once() -> None:
    """With a short `capture_sleep_after_s` a start takes longer than the time without work that stops the job."""
    sleep = Sleep(Patience(sleep_after=5, least_lead=10, most_lead=60))
    sleep.record_start(took_s=40.0)

    sleep.record_due(30.0, now=0.0)

    assert sleep.must_run
    assert not sleep.may_stop(10.0)


def test_job_that_must_not_sleep_always_runs() -> None:
    """The setting is 0."""
    sleep = Sleep(Patience(sleep_after=0))

    sleep.record_due(None, now=0.0)

    assert sleep.must_run
    assert not sleep.may_stop(1e9)


# --- put together with a node ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("captured_later", [False, True], ids=["before the start", "while the node runs"])
def test_job_is_supervised_from_the_first_captured_hub_on(
    keep: Callable[[str], SupervisorHarness], tmp_path: Path, captured_later: bool
) -> None:
    """A hub may have been captured before the start of the node, or later."""
    harness = keep("")
    settings = Settings(capture_java=tmp_path / "no-java-here")
    addresses = Addresses(namespace="hubmere", kafka=1)
    job = CaptureJob(settings=settings, addresses=addresses, base=tmp_path, admin_token="t")
    if not captured_later:
        harness.capture()
    work = job.supervise(harness.broker_harness.broker.captures, SystemClock())
    results: list[object] = []

    async def scenario() -> None:
        assert work is not None
        task = asyncio.create_task(work)
        if captured_later:
            await asyncio.sleep(0)
            results.append(harness.supervision.state)
            harness.capture()
        await until(lambda: harness.supervision.state is JobState.BLOCKED)
        results.append(harness.supervision.reason)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(scenario())

    assert "no-java-here" in str(results[-1])
    assert results[:-1] == ([JobState.OFF] if captured_later else [])


def test_rarely_needed_modules_are_not_loaded_at_start() -> None:
    """Only captured hubs, WebSockets or management requests need them."""
    late = ("hubmere.capture.supervisor", "wsproto", "starlette.responses", "pydantic", "nicegui", "pyspark")
    asked = f"import sys, hubmere.node.node; print([name for name in {late!r} if name in sys.modules])"

    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=300)

    assert said.stdout.strip() == "[]"
