"""Finds the node that a command uses, and the credential for it.

A node is named by flags, else by a profile (`--profile`, HUBMERE_PROFILE), else by other variables, else by the profile
in use, else it is the node on the default data folder. Flags and variables hold a connection string, a URL with a
token, or a data folder, where a node keeps its ready file while it runs. A node on this machine is used at the address
that it listens on; it only checks whether that address accepts connections. No text contains a credential.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.profiles import Profiles
from hubmere.node.ready import READY_FILE
from hubmere.settings import Settings, load

URL_VARIABLE = "HUBMERE_URL"
TOKEN_VARIABLE = "HUBMERE_TOKEN"  # noqa: S105  the name of a variable, not a token
CONNECTION_VARIABLE = "HUBMERE_CONNECTION_STRING"
CA_VARIABLE = "HUBMERE_CA_FILE"
DATA_VARIABLE = "HUBMERE_DATA"
PROFILE_VARIABLE = "HUBMERE_PROFILE"

# A token is renewed at half its lifetime, so that it never expires during a request.
_TOKEN_LIFE_S = 3600
# A listener of this machine accepts at once.
_CONNECT_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EMULATOR_SCHEME, _SCHEME = "http", "https"


class Credential(Protocol):
    """Makes the value of the Authorization header."""

    def header(self) -> str:
        """The header's value, which is valid now."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """The administrator's token."""

    token: str = field(repr=False)

    def header(self) -> str:
        """The header as ARM clients write it."""
        return f"Bearer {self.token}"


@dataclass(frozen=True, slots=True)
class SharedAccessSignature:
    """A ready-made shared access signature."""

    text: str = field(repr=False)

    def header(self) -> str:
        """The signature itself."""
        return self.text


class RuleKey:
    """A rule and its key: creates tokens and renews them."""

    def __init__(self, uri: str, rule: str, key: str) -> None:
        self._uri, self._rule, self._key = uri, rule, key
        self._token, self._renew_at_s = "", 0.0

    def header(self) -> str:
        """A token that is valid for at least half its lifetime."""
        now_s = time.time()
        if now_s >= self._renew_at_s:
            from hubmere.model.security.sas import make_token

            self._token = make_token(self._uri, self._rule, self._key, expires_at_s=int(now_s) + _TOKEN_LIFE_S)
            self._renew_at_s = now_s + _TOKEN_LIFE_S / 2
        return self._token


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTarget:
    """A node and its credential. `namespace` and `hub` are defaults for names that are not given. `host` selects the
    namespace if the host of the URL does not.
    """

    url: str
    host: str | None = None
    credential: Credential = field(repr=False)
    ca_file: str | None = None
    namespace: str | None = None
    hub: str | None = None
    # Whether the port of `url` is the default one, since a connection string names no port of HTTP.
    is_port_assumed: bool = False
    # The content of the ready file of a node on this machine.
    ready: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlags:
    """The flags of a command that name the node."""

    data: Path | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    connection_string: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    profile: str | None = None

    @property
    def names_a_node(self) -> bool:
        """Whether a node is named without a profile."""
        return bool(self.data or self.url or self.connection_string)


def find_node(given: NodeFlags, environ: Mapping[str, str]) -> NodeTarget:
    """Find the node; CommandFailed when there is none, or no credential."""
    if given.profile and given.names_a_node:
        raise CommandFailed(Exit.USAGE, "give either --profile or --data, --url or --connection-string")
    _check_token(given, environ)
    if not given.names_a_node and (name := given.profile or environ.get(PROFILE_VARIABLE)):
        return _by_profile(name, environ)
    named = (CONNECTION_VARIABLE, URL_VARIABLE, DATA_VARIABLE)
    if not given.names_a_node and not any(map(environ.get, named)) and (used := Profiles(environ).used):
        return _by_profile(used, environ)
    return _by_flags(given, environ)


def check_flags(given: NodeFlags) -> None:
    """Refuse flags that cannot name a node; the node of a data folder need not run."""
    _check_token(given, {})
    if given.url or given.connection_string:
        _by_flags(given, {})


def _check_token(given: NodeFlags, environ: Mapping[str, str]) -> None:
    """Refuse a token that no request would carry: profiles, connection strings and data folders have a credential."""
    others = (given.data, given.profile, environ.get(PROFILE_VARIABLE), environ.get(CONNECTION_VARIABLE))
    is_url_used = bool(given.url) or (bool(environ.get(URL_VARIABLE)) and not any(others))
    if given.token and (given.connection_string or not is_url_used):
        raise CommandFailed(
            Exit.USAGE,
            f"--token needs the address of its node: --url or {URL_VARIABLE}, without a connection string",
            "a profile, a connection string and a data folder bring a credential of their own",
        )


def _by_profile(name: str, environ: Mapping[str, str]) -> NodeTarget:
    """The node of a profile. Only a missing token or CA is taken from the environment."""
    profile = Profiles(environ).get(name)
    flags = NodeFlags(
        data=None if profile.data is None else Path(profile.data),
        url=profile.url,
        token=profile.token,
        connection_string=profile.connection_string,
        ca_file=profile.ca_file,
    )
    kept = {variable: environ[variable] for variable in (TOKEN_VARIABLE, CA_VARIABLE) if variable in environ}
    return _by_flags(flags, kept)


def _by_flags(given: NodeFlags, environ: Mapping[str, str]) -> NodeTarget:
    ca_file = given.ca_file or environ.get(CA_VARIABLE) or None
    token = given.token or environ.get(TOKEN_VARIABLE) or None
    if given.connection_string:
        return _by_connection_string(given.connection_string, given.url or environ.get(URL_VARIABLE), ca_file)
    if given.url:
        return _by_url(given.url, token, environ.get(CONNECTION_VARIABLE), ca_file)
    if given.data is None and (text := environ.get(CONNECTION_VARIABLE)):
        return _by_connection_string(text, environ.get(URL_VARIABLE), ca_file)
    if given.data is None and (url := environ.get(URL_VARIABLE)):
        return _by_url(url, token, None, ca_file)
    return _local(load({"data": given.data}, environ).data, ca_file)


def _by_url(url: str, token: str | None, connection_string: str | None, ca_file: str | None) -> NodeTarget:
    if token:
        return NodeTarget(url=_check_url(url), credential=BearerToken(_check_characters(token)), ca_file=ca_file)
    if connection_string:
        return _by_connection_string(connection_string, url, ca_file)
    raise CommandFailed(Exit.USAGE, f"--url needs --token or {TOKEN_VARIABLE}, or a --connection-string")


def _check_characters(token: str) -> str:
    """The token without the line end of the file it came from; CommandFailed if no header can carry it."""
    plain = token.strip()
    if not plain.isascii() or not plain.isprintable() or " " in plain:
        raise CommandFailed(Exit.USAGE, "the token has spaces, line breaks or other characters that no token has")
    return plain


def _check_url(url: str) -> str:
    scheme, colon, rest = url.rstrip("/").partition("://")
    if not colon or scheme.lower() not in ("http", "https") or not rest or "/" in rest or "@" in rest:
        raise CommandFailed(Exit.USAGE, f"--url {url} is not a URL such as https://events.example.org:5301")
    try:
        urlsplit(url).port  # noqa: B018 - parsed by being read
    except ValueError:
        raise CommandFailed(Exit.USAGE, f"--url {url}: expected a port from 0 to 65535") from None
    return f"{scheme.lower()}://{rest}"


def _by_connection_string(text: str, url: str | None, ca_file: str | None) -> NodeTarget:
    from hubmere.model.errors import InvalidArgument
    from hubmere.model.security.connection_string import ConnectionString

    try:
        parsed = ConnectionString.parse(text)
    except InvalidArgument as refusal:
        raise CommandFailed(Exit.USAGE, str(refusal)) from None
    credential: Credential
    if parsed.signature is not None:
        credential = SharedAccessSignature(parsed.signature)
    elif parsed.key_name is not None and parsed.key is not None:
        credential = RuleKey(f"sb://{parsed.host}/{parsed.entity_path or ''}", parsed.key_name, parsed.key)
    else:
        raise CommandFailed(Exit.USAGE, "the connection string holds neither a rule with its key nor a signature")
    scheme = _EMULATOR_SCHEME if parsed.is_emulator else _SCHEME
    port = Settings().http_port if parsed.is_emulator else Settings().https_port
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return NodeTarget(
        url=_check_url(url) if url else f"{scheme}://{host}:{port}",
        host=host,
        credential=credential,
        ca_file=ca_file,
        hub=parsed.entity_path,
        is_port_assumed=not url,
    )


def ready_node(data: Path) -> dict[str, Any]:
    """The ready file of the node that runs on a data folder (`ready.Ready`)."""
    try:
        ready: dict[str, Any] = json.loads((data / READY_FILE).read_bytes())
    except FileNotFoundError:
        raise _nobody(data) from None
    except (OSError, ValueError) as error:
        raise CommandFailed(Exit.FAILED, f"{data / READY_FILE} cannot be read: {error}") from None
    if not _is_alive(ready["pid"]):
        raise _nobody(data)
    return ready


def _local(data: Path, ca_file: str | None) -> NodeTarget:
    """The node that runs on a data folder."""
    ready = ready_node(data)
    url = _nearest_way(ready, ca_file)
    if not url:
        raise CommandFailed(Exit.FAILED, f"the node on {data} serves neither HTTP nor HTTPS, which commands use")
    return NodeTarget(
        url=url,
        credential=BearerToken(ready["admin_token"]),
        ca_file=ca_file or ready["ca_file"],
        namespace=ready["namespace"],
        ready=ready,
    )


def _nearest_way(ready: Mapping[str, Any], ca_file: str | None) -> str | None:
    """Plain HTTP if it listens on loopback only, else TLS if the CA is known, else whatever the node serves.

    A node may advertise addresses that only its clients can use; the address that it listens on is better here. If the
    data folder of a node in a container is mounted here, only the advertised addresses can be used.
    """
    plain: str | None = ready["http"]
    secure: str | None = ready["https"]
    local: str | None = ready.get("local_http") or (ready.get("local_https") if ready["ca_file"] else None)
    is_near = plain is not None and urlsplit(plain).hostname in _LOOPBACK
    if is_near and (local is None or urlsplit(plain).port == urlsplit(local).port):
        return plain
    if local and _accepts_connections(local):
        return local
    if is_near:
        return plain
    return secure if secure and (ca_file or ready["ca_file"]) else plain or secure


def _accepts_connections(url: str) -> bool:
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _nobody(data: Path) -> CommandFailed:
    return CommandFailed(
        Exit.FAILED,
        f"no node runs on the data folder {data}",
        "start one with `hubmere up`, or name another by --data, by --url and --token, or by --connection-string",
    )


def _is_alive(pid: int) -> bool:
    """Whether a process exists: a node that was killed leaves its ready file behind."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
