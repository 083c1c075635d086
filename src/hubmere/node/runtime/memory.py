"""Memory of the process: the default budget for buffers, and how much freed memory the C library keeps.

By default glibc returns large buffers to the kernel, and every batch pays for new pages. With higher thresholds it
keeps them (measured in docs/design.md: 1.4 to 2.9 times the throughput on 1 KB events). What it keeps is bounded by a
share of the budget, and is returned after the budget was exhausted.
"""

import contextlib
import ctypes
import functools
import gc
import os
from pathlib import Path

# Options of mallopt: malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Freed buffers up to this size are kept, if that is a small share of the budget; small budgets use glibc's default.
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT_SHARE = 16
_SMALL_BUDGET_BYTES = 512 * 1024 * 1024
_LEAST_KEPT_BYTES = 128 * 1024
# The part of the machine's memory that buffers of connections may take.
_BUDGET_SHARE = 4
_LEAST_BUDGET_BYTES = 64 * 1024 * 1024
# Limits of control groups, version 2 and 1; a file that is missing or says "max" limits nothing.
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_budget_bytes(wanted: int | None) -> int:
    """The budget: the setting, else a share of the machine's or the control group's memory."""
    return wanted or max(available_bytes() // _BUDGET_SHARE, _LEAST_BUDGET_BYTES)


def available_bytes(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """The memory of the machine, or of the control group if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in limits:
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(path.read_text()))
    return min(sizes)


@functools.cache
def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None


def keep_large_buffers(budget_bytes: int) -> None:
    """Keep glibc from returning large buffers to the kernel; other C libraries have no such option and need none."""
    is_small = budget_bytes < _SMALL_BUDGET_BYTES
    kept = _LEAST_KEPT_BYTES if is_small else min(_KEPT_BYTES, budget_bytes // _KEPT_SHARE)
    with contextlib.suppress(AttributeError):
        libc = _libc()
        if libc is not None:
            libc.mallopt(_M_MMAP_THRESHOLD, kept)
            libc.mallopt(_M_TRIM_THRESHOLD, 2 * kept)


def trim_memory() -> None:
    """Collect garbage, and return free memory to the system."""
    gc.collect()
    with contextlib.suppress(AttributeError):
        libc = _libc()
        if libc is not None:
            libc.malloc_trim(0)
