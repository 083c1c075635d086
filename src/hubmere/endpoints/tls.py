"""The TLS context of the listeners, with a certificate that follows the names of the node.

A namespace that is created while the node runs has a host name of its own. When a client first asks for a name that the
certificate does not have (server name indication, RFC 6066 section 3) and the node has it by now, a certificate for all
names is issued by the same authority: this handshake and all later ones use it, open connections keep theirs. A name
that the node does not have changes nothing, whoever asks.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from hubmere.endpoints.certificates import covers, folded_names, server_context

log = logging.getLogger("hubmere.tls")

Names = tuple[str, ...]


class FollowingTls:
    """Keeps the certificate. Thread rule: the node's loop only, on which all handshakes run.

    `names` gives the names of the node as they are now, `issue` the files of a certificate and its key for names.
    `is_label` says at little cost whether a namespace or an alias has a name: anybody may ask for any number of names.
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
        self._covered = folded_names(first)
        self.context = server_context(*issue(first), client_ca)
        self.context.sni_callback = self._on_server_name

    def _on_server_name(self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name is None or covers(self._covered, name) or not self._is_label(name.partition(".")[0]):
            return
        try:
            self._follow(connection, name)
        except Exception:  # the top of a callback: the client gets the certificate that there is, and judges it
            log.exception("no certificate could be issued for the names of the node")

    def _follow(self, connection: ssl.SSLObject, name: str) -> None:
        wanted = self._names()
        folded = folded_names(wanted)
        if not covers(folded, name):
            return
        files = self._issue(wanted)
        # A context that has handed out this connection has no influence on it any more: it takes one that is new.
        fresh = server_context(*files, self._client_ca)
        self.context.load_cert_chain(*files)
        connection.context = fresh
        self._covered = folded
        log.info("the certificate has new names; the first that was asked for is %s", name)
