"""Kill -9 of the job, of its JVM and of its workers while it captures; `tests/torture` does it many times."""

from pathlib import Path

import pytest

from client.hubs import Hubs
from pipeline.capture.killing import kill_and_verify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found by /proc")
def test_whatever_is_killed_every_event_is_captured_once(hubs: Hubs, tmp_path: Path) -> None:
    """One of each, at random moments."""
    kill_and_verify(hubs, tmp_path, rounds=1, seed=7)
