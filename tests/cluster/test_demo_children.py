"""Processes of `hubmere cluster demo` when the demo itself is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hubmere.cli.cluster.brokers import LocalBrokers, WrongSetup

_PARENT = """
import signal, subprocess, sys
from hubmere.cli.cluster.children import end_with_parent
child = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]
subprocess.Popen(child, preexec_fn=end_with_parent(signal.SIGKILL)).wait()
"""
_BROKER = """
import fcntl, sys, time
file = open(sys.argv[1], "rb+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parents")
def test_processes_end_with_a_demo_that_is_killed() -> None:
    """Brokers that stay would hold their ports and folders, and nobody would know of them."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"begun\n"

        parent.send_signal(signal.SIGKILL)

        # The child has the same pipe, which ends when both have ended.
        assert parent.stdout.read() == b""


def test_data_of_a_broker_that_still_runs_is_refused(tmp_path: Path) -> None:
    """A second broker on the same data got as far as to stop the first one, and printed a Java stack trace."""
    lock = tmp_path / "broker-2" / "data" / ".lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    brokers = LocalBrokers(tmp_path)
    brokers.check_unused()
    command = [sys.executable, "-c", _BROKER, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"locked\n"

        with pytest.raises(WrongSetup, match=r"still runs on .*broker-2"):
            brokers.check_unused()

        running.kill()
    brokers.check_unused()
