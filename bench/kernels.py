"""Cost per event of the inner loops, interpreted and compiled; the best of several interleaved rounds.

    python bench/kernels.py [--events 1000] [--rounds 9]

`split` turns an AMQP batch message into a record batch, `singles` a run of single messages, `emit` a record batch into
AMQP messages, and `frame` those into transfers. Compare the ratios; absolute numbers depend on the machine.
"""

import argparse
import ctypes
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import hubmere

SOURCES = Path(hubmere.__file__).parent / "records" / "kernels"
FIRST_SEQUENCE = 1_000_000
OFFSET = 123_456_789
NOW_MS = 1_794_000_000_000
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, KEPT_BYTES = -1, -3, 1 << 30

Work = Callable[[ModuleType], object]


@contextmanager
def both_forms() -> Iterator[list[ModuleType]]:
    """The kernels as copies of the package: interpreted, and compiled by mypyc where that is possible."""
    with tempfile.TemporaryDirectory() as directory:
        sys.path.insert(0, directory)
        try:
            copy_sources(Path(directory, "kernels_interpreted"))
            forms = [importlib.import_module("kernels_interpreted")]
            modules = copy_sources(Path(directory, "kernels_compiled"))
            command = [sys.executable, "-m", "mypyc", *(str(path.relative_to(directory)) for path in modules)]
            built = subprocess.run(command, cwd=directory, capture_output=True, check=False)
            if built.returncode == 0:
                forms.append(importlib.import_module("kernels_compiled"))
            yield forms
        finally:
            sys.path.remove(directory)


def copy_sources(package: Path) -> list[Path]:
    """Copy the package without its compiled form; returns the modules to compile."""
    package.mkdir()
    for source in SOURCES.glob("*.py"):
        shutil.copy(source, package)
    return sorted(package.glob("[!_]*.py"))


def data(body: bytes) -> bytes:
    """A Data section."""
    if len(body) < 256:
        return b"\x00\x53\x75\xa0" + bytes((len(body),)) + body
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


def described_properties(index: int) -> bytes:
    """A properties section (message id, content type) and three application properties."""
    fields = b"\xa1\x08" + b"%08d" % index + b"\x40" * 5 + b"\xa3\x10application/json"
    names = (
        b"\xa1\x06device\xa1\x08dev-%04d" % (index % 10_000) + b"\xa1\x04kind\x54\x05" + b"\xa1\x02at\x83" + bytes(8)
    )
    return (
        b"\x00\x53\x73\xc0"
        + bytes((len(fields) + 1, 7))
        + fields
        + b"\x00\x53\x74\xc1"
        + bytes((len(names) + 1, 6))
        + names
    )


def shapes(events: int) -> dict[str, tuple[list[bytes], bytes | None]]:
    """The messages that are measured, with the partition key of their batch, by name."""
    return {
        "100 B": ([data(bytes(100))] * events, None),
        "100 B + key": ([data(bytes(100))] * events, b"device-0001"),
        "100 B + properties": ([described_properties(index) + data(bytes(100)) for index in range(events)], None),
        "1 KB": ([data(bytes(1024))] * events, None),
    }


def emit(kernels: ModuleType, batch: bytes, count: int) -> list[bytes]:
    """The messages of a batch."""
    messages: list[bytes] = kernels.encode_messages(
        batch, 61, count, count - 1, FIRST_SEQUENCE, OFFSET, len(batch), NOW_MS, True
    )[0]
    return messages


def frame(kernels: ModuleType, messages: list[bytes]) -> bytes:
    """The settled transfers of messages."""
    template = kernels.frame_template(1, 3)
    return b"".join(kernels.frame_messages(messages, 0, len(messages), 1 << 30, 65_536, template, 0, b"")[0])


def jobs(messages: list[bytes], key: bytes | None, kernels: ModuleType) -> dict[str, Work]:
    """The kernel calls over one shape."""
    count = len(messages)
    payload = b"".join(data(message) for message in messages)
    batch = bytes(kernels.split_batch(payload, key, b"", None)[0])
    encoded = emit(kernels, batch, count)
    return {
        "split": lambda k: k.split_batch(payload, key, b"", None),
        "singles": lambda k: k.join_messages(messages, key, b""),
        "emit": lambda k: emit(k, batch, count),
        "frame": lambda k: frame(k, encoded),
        "emit + frame": lambda k: frame(k, emit(k, batch, count)),
    }


def best_us(work: Work, variants: list[ModuleType], rounds: int, events: int) -> list[float]:
    """Microseconds per event of each variant, interleaved, the best round of each."""
    best = [float("inf")] * len(variants)
    for _ in range(rounds):
        for index, variant in enumerate(variants):
            begin = time.perf_counter()
            work(variant)
            best[index] = min(best[index], time.perf_counter() - begin)
    return [seconds / events * 1e6 for seconds in best]


def keep_freed_memory() -> None:
    """Let the C library keep large blocks, as a node does at its start (glibc: mmap and trim thresholds)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def main() -> None:
    """Measure and print one line per kernel and shape."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()

    keep_freed_memory()
    with both_forms() as variants:
        print(f"{'us per event':<34}{'interpreted':>12}{'compiled':>12}{'ratio':>8}")
        for shape, (messages, key) in shapes(options.events).items():
            for name, work in jobs(messages, key, variants[0]).items():
                costs = best_us(work, variants, options.rounds, options.events)
                rest = f"{costs[1]:>12.3f}{costs[0] / costs[1]:>8.1f}" if len(costs) > 1 else f"{'-':>12}{'-':>8}"
                print(f"{name + ', ' + shape:<34}{costs[0]:>12.3f}{rest}")


if __name__ == "__main__":
    main()
