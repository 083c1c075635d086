"""Checks that this machine can use the addresses that a running node advertises (`hubmere doctor --clients`).

Clients connect where a connection string, or for Kafka the metadata of the node, sends them: a name that only the
node's own network resolves makes them fail after a successful first contact.
"""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from hubmere.model.addresses import LISTENERS

# A listener answers at once; a name server may take longer.
_CONNECT_SECONDS = 10.0
_SETTING = "advertised_listeners"


def read_ready_file(path: Path) -> Mapping[str, str | None]:
    """The addresses of a running node; FileNotFoundError if there is none."""
    found: Mapping[str, str | None] = json.loads(path.read_text(encoding="utf-8"))
    return found


def check_addresses(
    ready: Mapping[str, str | None], connect: Callable[[str, int], None] | None = None
) -> Iterator[tuple[str, str]]:
    """Each advertised address, and its problem as seen from this machine; the empty text if a client can use it."""
    for listener in LISTENERS:
        advertised = ready.get(listener)
        if advertised is None:
            continue
        place = urlsplit(advertised if "://" in advertised else f"//{advertised}")
        assert place.hostname is not None, "a ready file has complete addresses"
        assert place.port is not None, "a ready file has complete addresses"
        address = f"{listener} clients use {place.hostname}:{place.port}"
        yield address, _problem(listener, place.hostname, place.port, connect or _connect)


def _problem(listener: str, host: str, port: int, connect: Callable[[str, int], None]) -> str:
    remedy = f"set {_SETTING} to an address that clients can use, such as {listener}://NAME:{port}"
    try:
        connect(host, port)
    except socket.gaierror as error:
        return f"this machine cannot resolve the name ({error.strerror}); {remedy}"
    except OSError as error:
        return f"this machine cannot connect ({error.strerror or error}); {remedy}"
    return ""


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
