"""`hubmere demo` does what it announces, and leaves nothing behind."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from commands.runner import hears_interrupts
from hubmere.cli.commands import pipeline
from hubmere.cli.demo import stage
from hubmere.cli.demo.devices import QUANTITIES, Device, fleet
from hubmere.cli.exit_codes import CommandFailed
from pipeline.processes import family

_DEMO = [sys.executable, "-m", "hubmere", "demo", "--no-capture", "--no-pipeline", "--rate", "90"]
_WHO = re.compile(r"^(.+): (\d+) events$", re.MULTILINE)


def counts(printed: str) -> dict[str, int]:
    """The counts of each worker, from the last lines of output."""
    return {who: int(count) for who, count in _WHO.findall(printed)}


def data_folder(printed: str) -> Path:
    found = re.search(r"^\s+data\s+(\S+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return Path(found.group(1))


def test_devices_publish_over_three_protocols_and_two_readers_follow() -> None:
    """With a given time it ends by itself and deletes its folder."""
    done = subprocess.run([*_DEMO, "--duration", "20"], capture_output=True, text=True, timeout=600, check=False)

    output = counts(done.stdout)
    published = [output[f"{protocol} devices"] for protocol in ("AMQP", "Kafka", "HTTPS")]

    assert done.returncode == 0, done.stderr
    assert min(published) > 0
    assert 0 < output["AMQP reader, group dashboard"] <= sum(published)
    assert 0 < output["Kafka reader, group billing"] <= sum(published)
    assert not data_folder(done.stdout).exists()


def test_an_interrupt_ends_it_cleanly_and_a_given_folder_stays(tmp_path: Path) -> None:
    """A user presses Ctrl-C."""
    demo = subprocess.Popen(
        [*_DEMO, "--data", str(tmp_path / "kept")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=hears_interrupts,
    )  # fmt: skip
    assert demo.stdout is not None
    opening: list[str] = []
    while not re.search(r"AMQP devices: [1-9]", line := demo.stdout.readline()):
        opening.append(line)
        assert line, "".join(opening)

    demo.send_signal(signal.SIGINT)
    printed, errors = demo.communicate(timeout=300)

    assert demo.returncode == 0, errors
    assert counts(printed)["AMQP devices"] > 0, opening
    assert (tmp_path / "kept").is_dir()


def test_readings_stay_within_their_limits_and_repeat_for_a_seed() -> None:
    """The values change slowly, like a temperature, and a test can rely on them."""
    readings = [json.loads(Device(3).measure(now_ms)) for now_ms in range(1)]
    device, same = Device(7), Device(7)

    many = [json.loads(device.measure(now_ms)) for now_ms in range(500)]

    assert readings[0]["site"] in {each.site for each in fleet(4)}
    assert many == [json.loads(same.measure(now_ms)) for now_ms in range(500)]
    for quantity in QUANTITIES:
        measured = [each[quantity.name] for each in many if each[quantity.name] is not None]
        assert all(quantity.low <= value <= quantity.high for value in measured)


def test_sensor_fails_now_and_then() -> None:
    """So a pipeline has something for its quarantine; every other reading is complete and has a time."""
    device = Device(1)

    readings = [json.loads(device.measure(now_ms)) for now_ms in range(80)]

    assert [each["number"] for each in readings if each["temperature"] is None] == [40, 80]
    assert readings[0]["time"] == "1970-01-01T00:00:00.000+00:00"


def test_pipeline_that_cannot_run_is_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for, it is an error; otherwise the demo runs without it and says why."""
    monkeypatch.setattr(pipeline, "find_spec", lambda _: None)

    with pytest.raises(CommandFailed, match="Spark is not installed"):
        stage.run(stage.Plan(has_pipeline=True, duration_s=0))
    assert "Spark is not installed" in (stage._why_no_pipeline(stage.Plan()) or "")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pipeline_publishes_results_and_reports_its_progress(tmp_path: Path) -> None:
    """Each step has a consumer group with committed offsets, and closed windows arrive in the result hub; all processes
    end with the demo.
    """
    command = [part for part in _DEMO if part != "--no-pipeline"]
    demo = subprocess.Popen(
        [*command, "--pipeline", "--data", str(tmp_path / "kept")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, preexec_fn=hears_interrupts,
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        printed = []
        while not re.search(r"pipeline to telemetry-minutes: [1-9]", line := demo.stdout.readline()):
            printed.append(line)
            assert line, "".join(printed)
        groups = {name: shown_group(tmp_path / "kept", name) for name in ("bronze", "silver", "gold")}
        processes = family(demo.pid)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=600)

    assert demo.returncode == 0
    for name, group in groups.items():
        assert sum(each["committedOffset"] for each in group["positions"]) > 0, name
    tables = tmp_path / "kept" / "demo-pipeline" / "data" / "tables"
    assert {path.name for path in tables.iterdir()} >= {"bronze", "silver", "minutes"}
    assert any("java" in command for command in processes.values())
    assert left_of(processes) == []


def left_of(processes: Iterable[int]) -> list[int]:
    """The processes that do not end: Spark's workers notice the end of their JVM by themselves."""
    deadline = time.monotonic() + 300
    while (left := [pid for pid in processes if Path(f"/proc/{pid}/exe").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def shown_group(data: Path, name: str) -> dict[str, Any]:
    """A group as `hubmere group describe` gives it, once its step has reported something."""
    command = [sys.executable, "-m", "hubmere", "group", "describe", name, "--data", str(data), "--output", "json"]
    deadline = time.monotonic() + 300
    while True:
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        if shown.returncode == 0:
            found: dict[str, Any] = json.loads(shown.stdout)
            return found
        assert time.monotonic() < deadline, shown.stderr
        time.sleep(1)
