"""Metrics of the process, under the names that Prometheus client libraries use: CPU, memory, files, start time.

Read from Linux's /proc and from the operating system's accounting. Metrics that the operating system does not provide
are left out.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from hubmere.endpoints.http.metrics.exposition import COUNTER, GAUGE, Family, Metric, Sample

PROCESS_METRICS = (
    Metric("process_cpu_seconds_total", COUNTER, "CPU time of the process in user and system mode in seconds."),
    Metric("process_resident_memory_bytes", GAUGE, "Memory of the process that is in RAM, in bytes."),
    Metric("process_virtual_memory_bytes", GAUGE, "Address space of the process in bytes."),
    Metric("process_open_fds", GAUGE, "Open file descriptors, sockets included."),
    Metric("process_max_fds", GAUGE, "Maximum number of open file descriptors."),
    Metric("process_start_time_seconds", GAUGE, "Start time of the process, in seconds since 1970."),
)
_PROC = Path("/proc/self")
_STAT = Path("/proc/stat")
# Field of /proc/self/stat after the name of the program: start time in clock ticks since the machine started (proc(5)).
_START_FIELD = 19


def process_families() -> Iterator[Family]:
    """The metrics with their values now."""
    values = _values()
    for metric in PROCESS_METRICS:
        if metric.name in values:
            yield metric, (Sample((), values[metric.name]),)


def _values() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values: dict[str, float] = {
        "process_cpu_seconds_total": round(usage.ru_utime + usage.ru_stime, 3),
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    try:
        total, resident, *_ = map(int, (_PROC / "statm").read_text().split())
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        values["process_virtual_memory_bytes"] = total * page_bytes
        values["process_resident_memory_bytes"] = resident * page_bytes
        values["process_open_fds"] = len(os.listdir(_PROC / "fd"))  # noqa: PTH208  only their number is wanted
        values["process_start_time_seconds"] = _start_time_s()
    except (OSError, ValueError, IndexError):
        # Another system than Linux.
        return values
    return values


def _start_time_s() -> float:
    ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[_START_FIELD])
    boot_s = next(int(line.split()[1]) for line in _STAT.read_text().splitlines() if line.startswith("btime "))
    return round(boot_s + ticks / os.sysconf("SC_CLK_TCK"), 2)
