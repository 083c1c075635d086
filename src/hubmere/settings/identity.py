"""OAuth issuers, and the test identities of the node's own issuer.

They are `[identity.issuers.NAME]`, `[identity.applications.NAME]` and `[identity.users.NAME]` tables of the file. Each
bad key is one problem, named by its path (`identity.issuers.company.issuer`). Secrets and passwords are never part of
one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hubmere.model.errors import InvalidArgument
from hubmere.model.security.roles import find_role
from hubmere.settings.kinds import OPTIONAL_PATH, TEXT, Kind, list_of, read_text
from hubmere.settings.problems import Problem

TABLE = "identity"
ISSUERS, APPLICATIONS, USERS = "issuers", "applications", "users"
_HIDDEN = "(hidden)"
_SECRETS = ("secret", "password", "client_secret")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSetting:
    """An OAuth issuer whose tokens are accepted."""

    name: str
    issuer: str
    audiences: tuple[str, ...] = ()
    keys_file: Path | None = None  # None: fetched from the issuer
    ca_file: Path | None = None  # None: the authorities that the system trusts
    id_claims: tuple[str, ...] = ("oid", "sub")
    groups_claim: str = "groups"
    client_id: str = ""  # that of the portal; empty: nobody signs in to the portal there
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "https://eventhubs.azure.net/.default")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySetting:
    """A test application or test user of the node's own issuer; None: derived from the name."""

    name: str
    client_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    object_id: str | None = None
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


def _read_issuer(value: object) -> str:
    url = read_text(value)
    parts = urlsplit(url)
    if (
        parts.scheme not in ("https", "http")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError("not an issuer")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("not protected")
    return url


def _read_role(value: object) -> str:
    try:
        return find_role(read_text(value)).name
    except InvalidArgument as refusal:
        raise ValueError("not a role") from refusal


_TEXTS = list_of(TEXT)
_ROLES = list_of(Kind("ROLE", "the name of a role such as Azure Event Hubs Data Sender", _read_role))
ISSUER_KEYS: Mapping[str, Kind[Any]] = {
    "issuer": Kind("URL", "an https address, or http on this machine, exactly as in the claim 'iss'", _read_issuer),
    "audiences": _TEXTS,
    "keys_file": OPTIONAL_PATH,
    "ca_file": OPTIONAL_PATH,
    "id_claims": _TEXTS,
    "groups_claim": TEXT,
    "client_id": TEXT,
    "client_secret": Kind("TEXT", "the client secret", read_text),
    "scopes": _TEXTS,
}
APPLICATION_KEYS: Mapping[str, Kind[Any]] = {
    "client_id": TEXT,
    "secret": Kind("TEXT", "the client secret", read_text),
    "object_id": TEXT,
    "groups": _TEXTS,
    "roles": _ROLES,
}
USER_KEYS: Mapping[str, Kind[Any]] = {
    "password": Kind("TEXT", "the password", read_text),
    "object_id": TEXT,
    "groups": _TEXTS,
    "roles": _ROLES,
}
_TABLES: Mapping[str, tuple[Mapping[str, Kind[Any]], str]] = {
    ISSUERS: (ISSUER_KEYS, "issuer"),
    APPLICATIONS: (APPLICATION_KEYS, "secret"),
    USERS: (USER_KEYS, "password"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityTables:
    """The tables below `[identity]`."""

    issuers: tuple[IssuerSetting, ...] = ()
    applications: tuple[IdentitySetting, ...] = ()
    users: tuple[IdentitySetting, ...] = ()


def read_identity(table: object, origin: str, problems: list[Problem]) -> IdentityTables:
    """The table [identity] of a TOML file; errors are added to `problems`."""
    if not isinstance(table, dict) or not set(table) <= set(_TABLES):
        allowed = f"tables {', '.join(f'[{TABLE}.{kind}.NAME]' for kind in _TABLES)}"
        problems.append(Problem(setting=TABLE, origin=origin, value=_HIDDEN, allowed=allowed))
        return IdentityTables()
    read = {kind: _read_tables(kind, table.get(kind, {}), origin, problems) for kind in _TABLES}
    issuers = tuple(IssuerSetting(**values) for values in read[ISSUERS])
    _check_distinct([one.issuer for one in issuers], origin, problems)
    return IdentityTables(
        issuers=issuers,
        applications=tuple(IdentitySetting(**values) for values in read[APPLICATIONS]),
        users=tuple(IdentitySetting(**values) for values in read[USERS]),
    )


def _check_distinct(issuers: list[str], origin: str, problems: list[Problem]) -> None:
    for issuer in {one for one in issuers if issuers.count(one) > 1}:
        place = f"{TABLE}.{ISSUERS}"
        problems.append(Problem(setting=place, origin=origin, value=issuer, allowed="each issuer in one table"))


def _read_tables(kind: str, tables: object, origin: str, problems: list[Problem]) -> list[dict[str, Any]]:
    if not isinstance(tables, dict):
        allowed = f"tables [{TABLE}.{kind}.NAME]"
        problems.append(Problem(setting=f"{TABLE}.{kind}", origin=origin, value=_HIDDEN, allowed=allowed))
        return []
    read = [_read_table(kind, str(name), values, origin, problems) for name, values in tables.items()]
    return [values for values in read if values is not None]


def _read_table(kind: str, name: str, table: object, origin: str, problems: list[Problem]) -> dict[str, Any] | None:
    keys, required = _TABLES[kind]
    place = f"{TABLE}.{kind}.{name}"
    found = len(problems)

    def refuse(setting: str, value: object, allowed: str) -> None:
        problems.append(Problem(setting=setting, origin=origin, value=value, allowed=allowed))

    if not 1 <= len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable():
        refuse(place, name, f"a name of 1 to {_MAX_NAME_CHARACTERS} printable characters")
    if not isinstance(table, dict) or required not in table:
        refuse(place, _HIDDEN, f"a table with {required}; its keys are {', '.join(keys)}")
        return None
    values: dict[str, Any] = {"name": name}
    for key, value in table.items():
        if key not in keys:
            refuse(f"{place}.{key}", _HIDDEN, f"one of the keys {', '.join(keys)}")
            continue
        try:
            values[key] = keys[key].read(value)
        except ValueError:
            refuse(f"{place}.{key}", _HIDDEN if key in _SECRETS else value, keys[key].allowed)
    return values if len(problems) == found else None
