"""A process that writes to logs and prints what was acknowledged, until it is killed.

Each line of output is one acknowledgement: log number, sequence number, the writer's own count, and the checksum of
the stored batch. A line is written with one call after the receipt completed, so every line is an acknowledged batch.
"""

import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from hubmere.model.receipt import Receipt
from hubmere.records.header import read_header
from hubmere.store.engine import LogConfig, log_id
from hubmere.store.local import LocalEngine
from store.builders import a_batch, open_log

LOGS = 3
CONFIG = LogConfig(segment_bytes=60_000, retention_ms=None)
IN_FLIGHT = 20


def main(root: Path, seed: int) -> None:
    """Write until killed."""
    random = Random(seed)
    turns: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    engine = LocalEngine(root, post=turns.put)

    def run_until(is_done: Callable[[], bool]) -> None:
        while not is_done():
            turns.get()()

    logs = [open_log(engine, log_id("torture", number), CONFIG, run_until) for number in range(LOGS)]
    counts = [log.producer_last_sequence(1) for log in logs]
    following = [0 if count is None else count[1] + 1 for count in counts]

    def publish(number: int) -> None:
        batch = a_batch([random.randbytes(random.randint(1, 3_000))], producer=(1, 0, following[number]))
        count = following[number]
        following[number] += 1

        def acknowledged(receipt: Receipt) -> None:
            line = f"{number} {receipt.sequence_number} {count} {read_header(batch).crc}\n"
            os.write(sys.stdout.fileno(), line.encode("ascii"))
            publish(number)

        logs[number].append(batch, 1_000, acknowledged)

    for number in range(LOGS):
        for _ in range(IN_FLIGHT):
            publish(number)
    while True:
        turns.get()()
        if random.random() < 0.02:
            engine.maintain(1_000)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
