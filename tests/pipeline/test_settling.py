"""Exempting modules from the garbage collection of a worker."""

import subprocess
import sys

SCRIPT = """
import gc
from hubmere.pipeline.ranges import settle

frozen = []
for _ in range(3):
    settle()
    frozen.append(gc.get_freeze_count())
print(*frozen)
"""


def test_second_task_of_a_worker_spares_what_was_imported_from_being_collected() -> None:
    """Spark collects after every task; it imports its last parts during the first, whose garbage must not stay."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)

    first, second, third = map(int, found.stdout.split())

    assert first == 0
    assert second > 10_000
    assert third <= second
