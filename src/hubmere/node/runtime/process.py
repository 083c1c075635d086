"""The process of `hubmere up`: event loop, signals, memory settings, and the announcement that the node is ready."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from hubmere.node.node import Node
from hubmere.node.ready import READY_FILE, Ready, ReadyFileFailed, render_banner, render_line, write_ready_file
from hubmere.node.runtime.collector import Collector
from hubmere.node.runtime.logging import configure_logging
from hubmere.node.runtime.memory import keep_large_buffers, memory_budget_bytes
from hubmere.node.runtime.stall_watch import StallWatch
from hubmere.settings import Settings

log = logging.getLogger("hubmere.node")

_UNSAFE = "cluster_unsafe is on: a lost broker can lose acknowledged events"


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    configure_logging(settings.log_format, settings.log_level)
    keep_large_buffers(memory_budget_bytes(settings.memory_budget_bytes))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node, watch, collector = Node(settings), StallWatch.of_environment(), Collector()
    try:
        ready = await node.start()
        _announce(settings, ready)
        if settings.ready_file is not None:
            _write_ready_file(settings.ready_file, ready)
        # The first collection takes about 5 % of the processor time of a start; clients can connect meanwhile.
        collector.start()
        if watch is not None:
            watch.start()
        await node.run_until(stopping)
    finally:
        if watch is not None:
            watch.stop()
        collector.stop()
        await node.stop()


def _write_ready_file(path: Path, ready: Ready) -> None:
    try:
        write_ready_file(path, ready)
    except OSError as error:
        raise ReadyFileFailed(path, error) from error


def _announce(settings: Settings, ready: Ready) -> None:
    """Print the banner, or log one line without keys when the log is JSON: collected logs must hold no secrets."""
    warning = _UNSAFE if settings.is_gateway and settings.cluster_unsafe else None
    if settings.log_format == "json":
        log.info("%s", render_line(ready))
        if warning is not None:
            log.warning("%s", warning)
    else:
        ready_file = settings.ready_file or (settings.data / READY_FILE if settings.has_data_folder else None)
        banner = render_banner(ready, is_terminal=sys.stdout.isatty(), ready_file=ready_file, warning=warning)
        try:
            print(banner, flush=True)  # noqa: T201 - the banner is the output
        except OSError as error:
            log.warning("standard output cannot be written: %s", error.strerror)
            # Python writes what is buffered again at the end of the process, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("HUBMERE_LOOP") == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
