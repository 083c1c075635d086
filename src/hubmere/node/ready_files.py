"""Keeps the connection strings in the ready files current: a renewed key takes the place of the old one.

Programs read a ready file once, or each time they start. Without this, a program that starts after a key was renewed
would be refused until the node starts again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from hubmere.model.errors import Refusal
from hubmere.node.ready import Ready, write_ready_file

log = logging.getLogger("hubmere.node")

CHECK_SECONDS: Final = 1.0


class ReadyFiles:
    """The ready files of a node. Thread rule: the loop's thread only.

    `build` gives what the files would contain now. Files that do not exist are not created.
    """

    def __init__(self, ready: Ready, build: Callable[[], Ready], paths: tuple[Path, ...]) -> None:
        self._ready = ready
        self._build = build
        self._paths = paths

    async def run(self) -> None:
        """Follow the keys until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Write the files again if a connection string has changed."""
        try:
            now = self._build()
        except Refusal:
            return  # the namespace or its root rule was deleted
        fresh = replace(
            self._ready,
            connection_string=now.connection_string,
            emulator_connection_string=now.emulator_connection_string,
            blob_connection_string=now.blob_connection_string,
        )
        if fresh != self._ready:
            self._ready = fresh
            await asyncio.to_thread(self._write, fresh)

    def _write(self, ready: Ready) -> None:
        for path in self._paths:
            try:
                if path.exists():
                    write_ready_file(path, ready)
                    log.info("the ready file %s has the renewed keys", path)
            except OSError as error:
                log.error("the ready file %s cannot be written: %s", path, error)
