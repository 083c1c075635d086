"""The TLS context of the listeners, with a certificate that is renewed when the node gets new host names.

A namespace that is created while the node runs has its own host name. When a client first connects to a name that the
certificate does not contain (server name indication, RFC 6066 section 3) and the node has that name now, the node's CA
issues a certificate for all names. This handshake and all later ones use it; open connections keep the old one. A name
that the node does not have changes nothing.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from hubmere.endpoints.certificates import covers, fold_names, server_context

log = logging.getLogger("hubmere.tls")

Names = tuple[str, ...]


class RenewingTls:
    """Owns the TLS context and renews its certificate. Thread rule: the node's loop only; all handshakes run on it.

    `names` returns the current names of the node, and `issue` the files of a certificate and its key for given names.
    `is_label` is a cheap test whether a namespace or an alias has a name, because clients may ask for any name.
    """

    def __init__(
        self,
        names: Callable[[], Names],
        is_label: Callable[[str], bool],
        issue: Callable[[Names], tuple[Path, Path]],
        client_ca: Path | None,
    ) -> None:
        self._names = names
        self._is_label = is_label
        self._issue = issue
        self._client_ca = client_ca
        first = names()
        self._covered = fold_names(first)
        self.context = server_context(*issue(first), client_ca)
        self.context.sni_callback = self._on_server_name

    def _on_server_name(self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name is None or covers(self._covered, name) or not self._is_label(name.partition(".")[0]):
            return
        try:
            self._renew(connection, name)
        except Exception:  # the top of a callback: the client gets the old certificate
            log.exception("no certificate could be issued for the new names of the node")

    def _renew(self, connection: ssl.SSLObject, name: str) -> None:
        wanted = self._names()
        folded = fold_names(wanted)
        if not covers(folded, name):
            return
        files = self._issue(wanted)
        # The context of this connection was chosen before this callback: the connection needs a new one.
        fresh = server_context(*files, self._client_ca)
        self.context.load_cert_chain(*files)
        connection.context = fresh
        self._covered = folded
        log.info("issued a certificate with new host names; %s was requested first", name)
