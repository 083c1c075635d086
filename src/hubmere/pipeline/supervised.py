"""Entry point of the capture job that a node starts: starts a JVM, then runs the job on it.

    python -m hubmere.pipeline.supervised --java JAVA --heap-mb MB --spark NAME=VALUE ... -- ARGUMENTS OF THE JOB

The node holds the other end of standard input. When the node ends, the job ends itself and the JVM; until the job runs,
this module does so.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from hubmere.pipeline.jvm import NoGateway, a_gateway


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(prog="hubmere.pipeline.supervised")
    parser.add_argument("--java", required=True)
    parser.add_argument("--heap-mb", type=int, required=True)
    parser.add_argument("--spark", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("job", nargs="*")
    given = parser.parse_args(arguments)
    settings = dict(word.split("=", 1) for word in given.spark)
    has_begun = threading.Event()
    threading.Thread(target=_end_when_alone, args=(has_begun,), name="node", daemon=True).start()
    try:
        with a_gateway(given.java, given.heap_mb, settings):
            from hubmere.pipeline.capture.job import main as run_job

            has_begun.set()
            return run_job(given.job)
    except NoGateway as failure:
        print(f"hubmere: {failure}", file=sys.stderr)  # noqa: T201  the last words of a process
        return 1


def _end_when_alone(has_begun: threading.Event) -> None:
    """End with the node while Spark is still starting; there is nothing to finish yet."""
    while os.read(0, 4096):
        pass
    if not has_begun.is_set() and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
