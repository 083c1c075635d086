"""`hubmere demo`: everything that it promises happens, and nothing stays behind."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from commands.runner import hears_interrupts
from hubmere.cli.demo.devices import QUANTITIES, Device, fleet

_DEMO = [sys.executable, "-m", "hubmere", "demo", "--no-capture", "--rate", "90"]
_WHO = re.compile(r"^(.+): (\d+) events$", re.MULTILINE)


def counts(printed: str) -> dict[str, int]:
    """What each worker did, by the closing lines."""
    return {who: int(count) for who, count in _WHO.findall(printed)}


def data_folder(printed: str) -> Path:
    found = re.search(r"^\s+data\s+(\S+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return Path(found.group(1))


def test_devices_publish_by_three_protocols_and_two_readers_follow() -> None:
    """It ends by itself when a time is given, and takes its folder along."""
    done = subprocess.run([*_DEMO, "--duration", "6"], capture_output=True, text=True, timeout=90, check=False)

    output = counts(done.stdout)
    published = [output[f"{protocol} devices"] for protocol in ("AMQP", "Kafka", "HTTPS")]

    assert done.returncode == 0, done.stderr
    assert min(published) > 0
    assert 0 < output["AMQP reader, group dashboard"] <= sum(published)
    assert 0 < output["Kafka reader, group billing"] <= sum(published)
    assert not data_folder(done.stdout).exists()


def test_an_interrupt_ends_it_cleanly_and_a_given_folder_stays(tmp_path: Path) -> None:
    """As a person does with Ctrl-C."""
    demo = subprocess.Popen(
        [*_DEMO, "--data", str(tmp_path / "kept")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=hears_interrupts,
    )  # fmt: skip
    assert demo.stdout is not None
    opening = [demo.stdout.readline() for _ in range(7)]

    demo.send_signal(signal.SIGINT)
    printed, errors = demo.communicate(timeout=60)

    assert demo.returncode == 0, errors
    assert counts(printed)["AMQP devices"] > 0, opening
    assert (tmp_path / "kept").is_dir()


def test_readings_stay_between_their_bounds_and_repeat_for_a_seed() -> None:
    """A chart of them looks like weather, not like noise, and a test can count on it."""
    readings = [json.loads(Device(3).measure(now_ms)) for now_ms in range(1)]
    device, same = Device(7), Device(7)

    many = [json.loads(device.measure(now_ms)) for now_ms in range(500)]

    assert readings[0]["site"] in {each.site for each in fleet(4)}
    assert many == [json.loads(same.measure(now_ms)) for now_ms in range(500)]
    for quantity in QUANTITIES:
        assert all(quantity.low <= each[quantity.name] <= quantity.high for each in many)
