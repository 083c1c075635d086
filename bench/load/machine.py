"""Limits of the machine, as baselines of the tables, and resources of a process."""

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

MB = 1_000_000
# The prefix of private memory in the summary of a process's memory map.
_PRIVATE = "Private_"


def raw_write_mb_per_s(folder: Path, block: bytes, *, seconds: float, sync: bool) -> float:
    """Megabytes per second when a block is written repeatedly to one file, with or without a flush after each write."""
    path = folder / "raw"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    began, written = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        written += os.write(fd, block)
        if sync:
            os.fdatasync(fd)
    took = time.perf_counter() - began
    os.close(fd)
    path.unlink()
    return written / MB / took


def fdatasync_p50_ms(folder: Path, *, count: int, interval_s: float) -> float:
    """Median time to flush one small append, at the rate of the measurement that it is compared with."""
    path = folder / "sync"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        os.write(fd, b"x" * 200)
        os.fdatasync(fd)
        waits.append(time.perf_counter() - began)
        time.sleep(max(0.0, interval_s - waits[-1]))
    os.close(fd)
    path.unlink()
    return statistics.median(waits) * 1000


def send_cost_s_per_gb(folder: Path, block_bytes: int, *, total_bytes: int) -> float:
    """CPU time of the minimal work for a reader: read a file from the page cache and send it."""
    path = folder / "sent"
    path.write_bytes(os.urandom(block_bytes) * 16)
    reader = (
        "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\nwhile c.recv(1 << 20): pass"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, path.open("rb", buffering=0) as file:
        child = subprocess.Popen([sys.executable, "-c", reader, str(server.getsockname()[1])])
        connection, _ = server.accept()
        buffer, began, sent = bytearray(block_bytes), time.process_time(), 0
        with connection:
            while sent < total_bytes:
                os.preadv(file.fileno(), [buffer], sent % (block_bytes * 16))
                connection.sendall(buffer)
                sent += block_bytes
            used = time.process_time() - began
        child.wait()
    path.unlink()
    return used / sent * 1e9


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far: user and system time of all threads."""
    # The clock id of a process's CPU clock on Linux; Python does not offer clock_getcpuclockid(3).
    return time.clock_gettime((~pid << 3) | 2)


def private_bytes(pid: int) -> int:
    """Private memory of a process, without the kernel's memory for its sockets."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE))


def load_average() -> float:
    """The load average of the last minute; results of a busy machine are unreliable."""
    return os.getloadavg()[0]
