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


def test_second_task_of_a_worker_exempts_imported_modules_from_collection() -> None:
    """Spark collects garbage after every task; garbage of the first task, which imports modules, must not stay."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=600)

    first, second, third = map(int, found.stdout.split())

    assert first == 0
    assert second > 10_000
    assert third <= second
