"""The limits of the machine, and the resources of a process: the baselines of the tables."""

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
    """Writing a block again and again to one file, each time made durable or not."""
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
    """What it takes to make one small append durable, at the pace of the measurement that it is compared with."""
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
    """Processor time of the least that a broker does for a reader: read a file that is in memory and send it."""
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
    """Time on a processor so far, in the program and in the kernel for it, of all threads."""
    # Linux's number for the processor clock of a process: clock_getcpuclockid(3), which Python does not have.
    return time.clock_gettime((~pid << 3) | 2)


def private_bytes(pid: int) -> int:
    """Private memory of a process, without the kernel's memory for its sockets."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PRIVATE))


def load_average() -> float:
    """How busy the machine was in the last minute; numbers taken on a busy one say little."""
    return os.getloadavg()[0]
