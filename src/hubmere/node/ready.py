"""The addresses of a ready node: the ready file for programs and the banner for people.

Both show one `Ready`. The ready file is written by rename, so a reader sees all of it or nothing; it holds keys, hence
mode 0600. Nothing here opens a port.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubmere import __version__

if TYPE_CHECKING:
    from hubmere.model.addresses import Addresses
    from hubmere.model.entity import AccessRule

# Name of the ready file in the data folder, by which commands on the same machine find a running node.
READY_FILE = "ready.json"

# The port that azure-eventhub 5 for Python connects to with TLS, whatever the connection string says.
_USUAL_PORT = ":5671"

# SGR codes of ECMA-48; a banner of a dozen lines does not justify loading a terminal library at every start.
_BOLD, _DIM, _CYAN, _GREEN, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[32m", "\x1b[0m"


class ReadyFileFailed(Exception):
    """The file of --ready-file cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, error)
        self.path = path
        self.error = error

    def __str__(self) -> str:
        """Message for the terminal."""
        why = self.error.strerror or type(self.error).__name__
        return f"cannot write {self.path}: {why}; choose another file by --ready-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyIdentity:
    """The node's own OAuth issuer: with the variables of `env`, libraries get tokens of an application with Data Owner.

    The other two do the same as a managed identity and as a workload identity.
    """

    issuer: str
    token_endpoint: str
    env: dict[str, str]
    managed_identity_env: dict[str, str]
    workload_identity_env: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Addresses and credentials of a node: `host:port` for AMQP and Kafka, URLs for the rest, None if not served.

    `local_http` and `local_https` are for programs on the same machine. The other addresses are those that the node
    advertises, which a port mapping may change.
    """

    pid: int
    version: str
    data: str
    namespace: str
    connection_string: str
    emulator_connection_string: str
    admin_token: str
    ca_file: str | None
    amqp: str | None
    amqps: str | None
    kafka: str | None
    kafkas: str | None
    http: str | None
    https: str | None
    portal: str | None
    blob_connection_string: str | None = None
    identity: ReadyIdentity | None = None
    local_http: str | None = None
    local_https: str | None = None


def build_ready(
    addresses: "Addresses",
    rule: "AccessRule",
    *,
    key: str,
    listen_host: str,
    data: str,
    namespace: str,
    admin_token: str,
    portal_path: str,
    blob_connection_string: str | None = None,
    identity: ReadyIdentity | None = None,
) -> Ready:
    """The `Ready` of this process; `rule` and `key` are what the connection strings contain."""

    def local_url(listener: str) -> str | None:
        address = addresses.bound_address_of(listener, listen_host)
        return None if address is None else f"{listener}://{address}"

    def url(listener: str, path: str = "") -> str | None:
        address = addresses.address_of(listener)
        return None if address is None else f"{listener}://{address}{path}"

    return Ready(
        pid=os.getpid(),
        version=__version__,
        data=data,
        namespace=namespace,
        connection_string=addresses.connection_string(rule, key),
        emulator_connection_string=addresses.emulator_connection_string(rule, key),
        admin_token=admin_token,
        ca_file=addresses.ca_file,
        amqp=addresses.address_of("amqp"),
        amqps=addresses.address_of("amqps"),
        kafka=addresses.address_of("kafka"),
        kafkas=addresses.address_of("kafkas"),
        http=url("http"),
        https=url("https"),
        # Plain HTTP where it is served: browsers do not trust the private CA.
        portal=url("http", portal_path) or url("https", portal_path),
        blob_connection_string=blob_connection_string,
        identity=identity,
        local_http=local_url("http"),
        local_https=local_url("https"),
    )


def read_ready(text: bytes) -> Ready:
    """The `Ready` in a ready file."""
    values = json.loads(text)
    identity = values.pop("identity", None)
    return Ready(**values, identity=None if identity is None else ReadyIdentity(**identity))


def write_ready_file(path: Path, ready: Ready) -> None:
    """Write the ready file, whole or not at all."""
    fresh = path.with_name(f"{path.name}.{ready.pid}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(asdict(ready), file, indent=2)
        file.write("\n")
    fresh.replace(path)


def render_banner(
    ready: Ready, *, is_terminal: bool, ready_file: Path | None = None, warning: str | None = None
) -> str:
    """A dozen lines with the addresses of the node; on a terminal coloured and with a connection string to paste.

    Anywhere else the output may be collected as a log: it names the file that holds the keys and shows none.
    """
    rows = list(_rows(ready) if is_terminal else _rows_without_keys(ready, ready_file))
    rows += [] if warning is None else [("Warning", warning)]
    width = max(len(name) for name, _ in rows)
    title = f"Hubmere {ready.version}"
    if not is_terminal:
        return "\n".join([f"{title} is ready", *(f"{name:<{width}}  {value}" for name, value in rows)])
    lines = [f"  {_DIM}{name:<{width}}{_RESET}  {_CYAN}{value}{_RESET}" for name, value in rows]
    return "\n".join(
        ["", f"  {_GREEN}●{_RESET} {_BOLD}{title}{_RESET} is ready", "", *lines, "", "  Ctrl-C stops.", ""]
    )


def render_line(ready: Ready) -> str:
    """One log line with the addresses of the node and without keys."""
    addresses = ", ".join(f"{name} {value}" for name, value in (*_address_lines(ready), ("data", ready.data)))
    return f"Hubmere {ready.version} is ready: {addresses}"


def _rows(ready: Ready) -> Iterator[tuple[str, str]]:
    yield from _address_lines(ready)
    if ready.portal:
        yield "Portal", ready.portal
    yield from _storage_lines(ready)
    yield "Connect", ready.emulator_connection_string if ready.amqp else ready.connection_string
    if ready.amqp is None and ready.amqps is not None and not ready.amqps.endswith(_USUAL_PORT):
        yield "Python", f"azure-eventhub ignores that port: pass custom_endpoint_address='sb://{ready.amqps}'"


def _rows_without_keys(ready: Ready, ready_file: Path | None) -> Iterator[tuple[str, str]]:
    yield from _address_lines(ready)
    if ready.portal:
        yield "Portal", ready.portal.partition("?")[0]
    yield from _storage_lines(ready)
    where = "shown on a terminal, or written to the file given by --ready-file" if ready_file is None else ready_file
    yield "Keys", f"connection strings and the portal's link: {where}"


def _storage_lines(ready: Ready) -> Iterator[tuple[str, str]]:
    yield "Data", ready.data
    if ready.identity is not None:
        yield "Identity", f"local issuer {ready.identity.issuer}, for development only"
    if ready.ca_file:
        yield "CA", ready.ca_file


def _address_lines(ready: Ready) -> Iterator[tuple[str, str]]:
    served = (
        ("AMQP", ready.amqp, ready.amqps),
        ("Kafka", ready.kafka, ready.kafkas),
        ("HTTP", ready.http, ready.https),
    )
    for name, plain, tls in served:
        if addresses := [place for place in (plain, tls and f"{tls} (TLS)") if place]:
            yield name, "  ".join(addresses)
