"""The capture job is killed many times at random: every event is in the files once."""

from pathlib import Path

import pytest

from client.hubs import a_node_with_hubs
from pipeline.capture.killing import kill_and_verify

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_of_the_capture_job_lose_no_event(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Ten workers, ten JVMs and ten jobs are killed."""
    if not request.config.getoption("--torture", default=False):
        pytest.skip("takes many minutes; --torture runs it")

    with a_node_with_hubs() as hubs:
        kill_and_verify(hubs, tmp_path, rounds=ROUNDS, seed=11)
