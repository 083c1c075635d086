"""Free space of a disk: two thresholds, each with some hysteresis."""

from pathlib import Path

import pytest

from hubmere.store.disk import DiskLevel, DiskMonitor
from hubmere.store.files import Files

MB = 1024 * 1024
GB = 1024 * MB


class Disk(Files):
    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self.free = total_bytes

    def free_bytes(self, path: Path) -> int:
        return self.free

    def total_bytes(self, path: Path) -> int:
        return self._total_bytes


def a_watch(disk: Disk) -> DiskMonitor:
    return DiskMonitor(disk, Path("/data"), warn_percent=10, reserve_bytes=64 * MB)


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (2 * GB, DiskLevel.NORMAL),
        (GB, DiskLevel.LOW),
        (65 * MB, DiskLevel.LOW),
        (64 * MB, DiskLevel.FULL),
        (0, DiskLevel.FULL),
    ],
)
def test_disk_is_reported_as_low_before_it_is_full(free: int, level: DiskLevel) -> None:
    """With ten gigabytes there is a warning at one gigabyte, and a refusal at the reserve."""
    disk = Disk(10 * GB)
    disk.free = free

    assert a_watch(disk).measure().level is level


def test_small_disk_has_a_small_reserve() -> None:
    """The reserve must not use most of a volume of 100 MB."""
    disk = Disk(100 * MB)
    watch = a_watch(disk)
    disk.free = 6 * MB

    assert watch.measure().level is DiskLevel.LOW
    disk.free = 5 * MB
    assert watch.measure().level is DiskLevel.FULL


def test_state_does_not_alternate_at_a_threshold() -> None:
    """A state ends when there is a quarter more free space."""
    disk = Disk(10 * GB)
    watch = a_watch(disk)
    levels = []
    for free in (64 * MB, 70 * MB, 81 * MB, GB + 100 * MB, GB + 300 * MB):
        disk.free = free
        levels.append(watch.measure().level)

    assert levels == [DiskLevel.FULL, DiskLevel.FULL, DiskLevel.LOW, DiskLevel.LOW, DiskLevel.NORMAL]


def test_message_names_the_free_space() -> None:
    """Operators and refused clients get the same text."""
    disk = Disk(10 * GB)
    disk.free = 12 * MB

    text = a_watch(disk).measure().text

    assert text == "the disk of the data folder is full: 12 of 10,240 MB are free, and 64 MB are reserved"
