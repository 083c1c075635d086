"""Targets for captured files: `[capture.targets.NAME]` tables of the file; secrets may come from variables or files.

The value of a key is in the file (`account_key`), in another file that the key with the suffix `_file` names, or in a
variable `HUBMERE_CAPTURE_TARGETS_NAME_KEY`, which overrides both. NAME is in capitals there, with `_` for every
character that is not a letter or digit. Each bad key is one problem with its path; its value is never shown.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hubmere.model.capture.targets import CapturePlace, normalize_url
from hubmere.model.errors import InvalidArgument
from hubmere.settings.declaration import ENV_PREFIX
from hubmere.settings.kinds import Kind, read_text
from hubmere.settings.problems import Problem

TABLE = "capture"
TARGETS = "targets"
TARGETS_PREFIX = f"{ENV_PREFIX}CAPTURE_TARGETS_"
_FILE = "_file"
_HIDDEN = "(hidden)"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_URL = "url"


def _read_url(value: object) -> str:
    try:
        return normalize_url(read_text(value))
    except InvalidArgument as refusal:
        raise ValueError("not a location for files") from refusal


# Keys of a target and their kinds. All but the URL are passed on to the destination as they are.
TARGET_KEYS: Mapping[str, Kind[Any]] = {
    _URL: Kind("URL", "file:///folder, az://account[/container[/prefix]] or s3://bucket[/prefix]", _read_url),
    "connection_string": Kind("TEXT", "the connection string of an Azure storage account", read_text),
    "account_key": Kind("TEXT", "a key of an Azure storage account", read_text),
    "sas_token": Kind("TEXT", "a shared access signature of an Azure storage account", read_text),
    "access_key_id": Kind("TEXT", "the id of an S3 access key", read_text),
    "secret_access_key": Kind("TEXT", "the secret of an S3 access key", read_text),
    "session_token": Kind("TEXT", "the session token of a temporary S3 access key", read_text),
    "region": Kind("TEXT", "the region of an S3 bucket", read_text),
    "endpoint": Kind("URL", "the address of the service, if it is not the public one", read_text),
}
_Raw = dict[str, dict[str, object]]


def read_targets(
    table: object, environ: Mapping[str, str], origin: str, problems: list[Problem]
) -> Mapping[str, CapturePlace]:
    """The targets of a file and the environment by name; errors are added to `problems`."""
    raw = _from_file(table, origin, problems)
    for name, key, value in _from_environment(environ, raw):
        raw.setdefault(name, {})[key] = value
        raw[name].pop(key + _FILE, None)
    places = {name: _read_target(name, values, origin, problems) for name, values in raw.items()}
    return MappingProxyType({name: place for name, place in places.items() if place is not None})


def _from_file(table: object, origin: str, problems: list[Problem]) -> _Raw:
    if isinstance(table, dict) and all(isinstance(values, dict) for values in table.values()):
        return {str(name): dict(values) for name, values in table.items()}
    allowed = f"tables [{TABLE}.{TARGETS}.NAME], one per place"
    problems.append(Problem(setting=f"{TABLE}.{TARGETS}", origin=origin, value=_HIDDEN, allowed=allowed))
    return {}


def _from_environment(environ: Mapping[str, str], raw: _Raw) -> Iterator[tuple[str, str, str]]:
    """Target, key and value of each variable; a target that the file does not have is named after the variable."""
    known = {re.sub(r"[^A-Z0-9]", "_", name.upper()): name for name in raw}
    for variable, value in sorted(environ.items()):
        rest = variable.removeprefix(TARGETS_PREFIX)
        key = next((key for key in TARGET_KEYS if rest.endswith(f"_{key.upper()}")), None)
        if rest != variable and key is not None and value:
            word = rest[: -len(key) - 1]
            yield known.get(word, word.lower()), key, value


def _read_target(name: str, values: dict[str, object], origin: str, problems: list[Problem]) -> CapturePlace | None:
    place = f"{TABLE}.{TARGETS}.{name}"
    found = len(problems)

    def refuse(setting: str, allowed: str) -> None:
        problems.append(Problem(setting=setting, origin=origin, value=_HIDDEN, allowed=allowed))

    if not _NAME.fullmatch(name):
        refuse(place, "a name of letters, digits, '.', '-' and '_'")
    read: dict[str, str] = {}
    for key, value in values.items():
        plain, given = _resolve(key, value)
        if plain not in TARGET_KEYS:
            refuse(
                f"{place}.{key}", f"one of the keys {', '.join(TARGET_KEYS)}, each with {_FILE} for a file's content"
            )
        elif not _is_readable(plain, given):
            refuse(
                f"{place}.{key}",
                _allowed_values(plain) if plain == key else f"a readable file with {_allowed_values(plain)}",
            )
        else:
            read[plain] = TARGET_KEYS[plain].read(given)
    if _URL not in values:
        refuse(f"{place}.{_URL}", _allowed_values(_URL))
    if len(problems) > found:
        return None
    return CapturePlace(url=read.pop(_URL), options=MappingProxyType(read))


def _resolve(key: str, value: object) -> tuple[str, object]:
    """A key and its value; with the suffix `_file` the value is read from that file, None if it is not readable."""
    if not key.endswith(_FILE):
        return key, value
    try:
        return key.removesuffix(_FILE), Path(read_text(value)).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError):
        return key.removesuffix(_FILE), None


def _is_readable(key: str, value: object) -> bool:
    try:
        TARGET_KEYS[key].read(value)
    except ValueError:
        return False
    return True


def _allowed_values(key: str) -> str:
    return TARGET_KEYS[key].allowed
