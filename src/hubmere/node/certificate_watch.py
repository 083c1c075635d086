"""Watches the certificate files of the settings, and uses a renewed pair without a restart.

Every few seconds a worker thread reads the state of the files. When one of them has changed, it builds a TLS context
from the new files, which fails unless certificate and key belong together. New connections then use that context; open
connections keep the old certificate. While the new files are broken or incomplete, the old certificate stays in use,
the node has a condition that says why, and the files are read again each time.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from hubmere.broker.monitoring.conditions import CERTIFICATE, Condition, Conditions, ConditionSeverity
from hubmere.endpoints.certificates import server_context

log = logging.getLogger("hubmere.tls")

# Programs that renew certificates do so days before the old one expires.
CHECK_SECONDS: Final = 10.0
_REMEDY: Final = "Put a certificate and its key into these files. They are read again every few seconds."

# Modification time, size and inode of each file; None if it cannot be read.
_State = tuple[tuple[int, int, int] | None, ...]


class CertificateWatch:
    """The TLS context of the certificate in the settings. Thread rule: the loop's thread only, but for `_load`.

    `context` is that of the listeners. A handshake takes the newest one from it, because OpenSSL can replace the
    context of a connection as a whole, but not a certificate and a key at once.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._files = (certificate, key) if client_ca is None else (certificate, key, client_ca)
        self._loaded = self._read_state()
        self.context = server_context(*self._files)
        self.context.sni_callback = self._on_client_hello
        self._current = self.context

    def _on_client_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._current is not self.context:
            connection.context = self._current

    async def run(self, conditions: Conditions) -> None:
        """Check the files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check(conditions)

    async def check(self, conditions: Conditions) -> None:
        """Use the files if they have changed since they were last loaded; set or clear the condition."""
        try:
            fresh = await asyncio.to_thread(self._load)
        except (OSError, ValueError) as error:
            # OpenSSL's errors are OSErrors; they name no content of a file.
            self._report(conditions, error)
            return
        if fresh is not None:
            self._loaded, self._current = fresh
            log.warning("the certificate in %s was loaded; new connections use it", self._files[0])
        if conditions.clear(CERTIFICATE) and fresh is None:
            log.warning("the certificate in %s is again the one that is used", self._files[0])

    def _load(self) -> tuple[_State, ssl.SSLContext] | None:
        """The state of the files and a context with them; None if they have not changed. Runs in a worker thread."""
        state = self._read_state()
        if state == self._loaded:
            return None
        return state, server_context(*self._files)

    def _read_state(self) -> _State:
        return tuple(map(_state_of, self._files))

    def _report(self, conditions: Conditions, error: Exception) -> None:
        text = (
            f"The changed certificate in {self._files[0]} with the key in {self._files[1]} cannot be used: {error}. "
            "The previous certificate stays in use."
        )
        known = conditions.find(CERTIFICATE)
        condition = Condition(name=CERTIFICATE, severity=ConditionSeverity.WARNING, text=text, remedy=_REMEDY)
        if conditions.set(condition) or known is None or known.text != text:
            log.error("%s", text)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
