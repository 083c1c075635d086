"""Loads the settings: flags override the environment, which overrides the file, which overrides the defaults.

All problems are reported together. Each `Problem` names the setting, its source, its value and what was expected. Only
the effective value is checked: an overridden one cannot be wrong. Reads the configuration file and nothing else; opens
no port, creates no folder.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hubmere.model.errors import InvalidArgument
from hubmere.model.tier import limits_for
from hubmere.settings.capture import TABLE as CAPTURE_TABLE
from hubmere.settings.capture import TARGETS, read_targets
from hubmere.settings.declaration import ENV_PREFIX, Setting
from hubmere.settings.hubs import read_emulator_hubs, read_hubs
from hubmere.settings.identity import TABLE as IDENTITY_TABLE
from hubmere.settings.identity import IdentityTables, read_identity
from hubmere.settings.kinds import PORT
from hubmere.settings.partners import TABLE as PARTNERS_TABLE
from hubmere.settings.partners import read_partners
from hubmere.settings.problems import BadSettings, Problem
from hubmere.settings.tables import HubSetting, PartnerSetting
from hubmere.settings.tree import BY_KEY, SETTINGS, Settings

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
LIMITS_PREFIX = ENV_PREFIX + "LIMITS_"
_DEFAULT = "the default"
_TABLES = ("hubs", "limits", CAPTURE_TABLE, IDENTITY_TABLE, PARTNERS_TABLE)
# Settings of the data folder, which a gateway does not have; and settings that only a gateway has.
_OF_LOCAL_STORE = (
    "data",
    "memory",
    "durability",
    "retention_check_interval_s",
    "disk_warn_percent",
    "disk_reserve_bytes",
)
_OF_CLUSTER = tuple(setting.key for setting in SETTINGS if setting.field_name.startswith("cluster_"))


def load(flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None = None) -> Settings:
    """The settings of a node; raises BadSettings with every problem found.

    `flags` are raw values by key (`BY_KEY`), None if a flag was not given. `config` is the value of `--config`; it may
    also come from HUBMERE_CONFIG.
    """
    sources = _Sources()
    if config is not None:
        sources.add_file(config, "flag --config")
    elif environ.get(CONFIG_VARIABLE):
        sources.add_file(Path(environ[CONFIG_VARIABLE]).expanduser(), f"environment variable {CONFIG_VARIABLE}")
    sources.add_environment(environ)
    sources.add_flags(flags)
    return sources.build()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What was expected instead of an unknown name: the closest known one, or where all are listed."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"a known name; did you mean {near[0]}?" if near else "a known name; docs/reference/settings.md lists them"


@dataclass(frozen=True, slots=True)
class _RawValue:
    """A raw value and a description of its source."""

    value: object
    origin: str


class _Sources:
    """Collects raw values, lowest precedence first, then builds the Settings; used once."""

    def __init__(self) -> None:
        self._given: dict[str, _RawValue] = {}
        self._limits: dict[str, _RawValue] = {}
        self._hubs: tuple[HubSetting, ...] = ()
        self._partners: tuple[PartnerSetting, ...] = ()
        self._identity = IdentityTables()
        self._targets: object = {}
        self._targets_origin = _DEFAULT
        self._environ: Mapping[str, str] = {}
        self._is_emulator = False
        self._problems: list[Problem] = []

    def add_file(self, path: Path, named_by: str) -> None:
        """Add the file, the lowest precedence: TOML, or the official emulator's Config.json."""
        try:
            text = path.read_text(encoding="utf-8-sig")
            if path.suffix.lower() == ".json" or text.lstrip().startswith("{"):
                self._add_emulator(json.loads(text), f"file {path}")
            else:
                import tomllib  # a start without a file need not load the parser

                self._add_toml(tomllib.loads(text), f"file {path}")
        except OSError as error:
            self._refuse("config", named_by, str(path), f"a readable file ({error.strerror})")
        except ValueError as error:  # UnicodeDecodeError, JSONDecodeError and TOMLDecodeError are all ValueErrors
            self._refuse("config", named_by, str(path), f"a TOML file or an emulator Config.json ({error})")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Add the environment; an empty variable counts as not set.

        Unknown names are ignored: container platforms set variables such as HUBMERE_SERVICE_HOST for every process next
        to a service called hubmere.
        """
        self._environ = environ
        for setting in SETTINGS:
            if value := environ.get(setting.variable):
                self._given[setting.key] = _RawValue(value, f"environment variable {setting.variable}")
        for name, value in environ.items():
            if name.startswith(LIMITS_PREFIX) and value:
                self._limits[name.removeprefix(LIMITS_PREFIX).lower()] = _RawValue(
                    value, f"environment variable {name}"
                )

    def add_flags(self, flags: Mapping[str, object]) -> None:
        """Add the flags, the highest precedence; None and an empty list are flags that were not given."""
        for key, value in flags.items():
            if value is not None and value != []:
                self._given[key] = _RawValue(value, f"flag {BY_KEY[key].flag}")

    def build(self) -> Settings:
        """Parse every value, check them against each other, and build the Settings."""
        values = {BY_KEY[key].field_name: self._read(BY_KEY[key], given) for key, given in self._given.items()}
        limits = {name: self._read_limit(name, given) for name, given in self._limits.items()}
        settings = Settings(
            **values,
            limits=MappingProxyType(limits),
            hubs=self._hubs,
            partners=self._partners,
            identity=self._identity,
            capture_targets=read_targets(self._targets, self._environ, self._targets_origin, self._problems),
            is_emulator=self._is_emulator,
        )
        self._check_tls(settings)
        self._check_ports(settings)
        self._check_consumer_groups(settings)
        self._check_local_identity(settings)
        self._check_cluster(settings)
        if self._problems:
            raise BadSettings(self._problems)
        return settings

    def _refuse(self, setting: str, origin: str, value: object, allowed: str) -> None:
        self._problems.append(Problem(setting=setting, origin=origin, value=value, allowed=allowed))

    def _add_emulator(self, document: object, origin: str) -> None:
        namespace, self._hubs = read_emulator_hubs(document, origin, self._problems)
        self._is_emulator = True
        if namespace is not None:
            self._given["namespace"] = _RawValue(namespace, origin)

    def _add_toml(self, document: dict[str, Any], origin: str) -> None:
        self._hubs = read_hubs(document.pop("hubs", []), origin, self._problems)
        self._partners = read_partners(document.pop(PARTNERS_TABLE, {}), origin, self._problems)
        self._identity = read_identity(document.pop(IDENTITY_TABLE, {}), origin, self._problems)
        self._add_capture(document, origin)
        limits = document.pop("limits", {})
        if isinstance(limits, dict):
            self._limits.update({str(name): _RawValue(value, origin) for name, value in limits.items()})
        else:
            self._refuse("limits", origin, limits, "a table [limits] of names and numbers")
        for key, value in document.items():
            if key in BY_KEY:
                self._given[key] = _RawValue(value, origin)
            else:
                self._refuse(key, origin, value, did_you_mean(key, [*BY_KEY, *_TABLES]))

    def _add_capture(self, document: dict[str, Any], origin: str) -> None:
        """Add the table [capture]: the settings whose names begin with `capture_`, and the targets."""
        table = document.pop(CAPTURE_TABLE, {})
        if not isinstance(table, dict):
            self._refuse(CAPTURE_TABLE, origin, table, f"a table [{CAPTURE_TABLE}]")
            return
        self._targets, self._targets_origin = table.pop(TARGETS, {}), origin
        document.update({f"{CAPTURE_TABLE}_{key}": value for key, value in table.items()})

    def _read(self, setting: Setting, given: _RawValue) -> Any:
        try:
            return setting.kind.read(given.value)
        except ValueError:
            self._refuse(setting.key, given.origin, given.value, setting.kind.allowed)
            return setting.default

    def _read_limit(self, name: str, given: _RawValue) -> Any:
        try:
            limits_for(overrides={name: given.value})  # type: ignore[dict-item]  # judged there, whatever it is
        except InvalidArgument as refusal:
            self._refuse(f"limits.{name}", given.origin, given.value, refusal.allowed)
        return given.value

    def _origin(self, key: str) -> str:
        given = self._given.get(key)
        return given.origin if given else _DEFAULT

    def _check_tls(self, settings: Settings) -> None:
        if (settings.tls_certificate is None) == (settings.tls_key is None):
            return
        given, missing = ("tls_certificate", "tls_key")
        if settings.tls_certificate is None:
            given, missing = missing, given
        self._refuse(missing, _DEFAULT, None, f"a path, because {given} is given by {self._origin(given)}")

    def _check_local_identity(self, settings: Settings) -> None:
        """Identity libraries accept an issuer over https only."""
        if settings.local_identity and settings.https_port is None:
            allowed = f"a port, because local_identity is given by {self._origin('local_identity')}"
            self._refuse("https_port", self._origin("https_port"), "off", allowed)

    def _check_consumer_groups(self, settings: Settings) -> None:
        """The heartbeat interval must be shorter than the session timeout, or members would be removed all the time."""
        interval_s, session_s = (
            settings.group_consumer_heartbeat_interval_s,
            settings.group_consumer_session_timeout_s,
        )
        if interval_s < session_s:
            return
        interval, session = "group_consumer_heartbeat_interval_s", "group_consumer_session_timeout_s"
        if interval in self._given:
            self._refuse(interval, self._origin(interval), interval_s, f"less than {session} ({session_s:g})")
        else:
            self._refuse(session, self._origin(session), session_s, f"more than {interval} ({interval_s:g})")

    def _check_cluster(self, settings: Settings) -> None:
        """A gateway needs its cluster and its secret, and has no data folder."""
        if settings.store != "cluster":
            for key in _OF_CLUSTER:
                if key in self._given:
                    self._refuse(key, self._origin(key), self._given[key].value, "only with store = cluster")
            return
        for key in _OF_LOCAL_STORE:
            if key in self._given and self._given[key].value is not False:
                self._refuse(key, self._origin(key), self._given[key].value, "no value with store = cluster")
        if not settings.cluster_kafka:
            self._refuse("cluster_kafka", _DEFAULT, None, "the addresses of Kafka brokers, with store = cluster")
        self._check_secret("cluster_secret_file", settings.cluster_secret_file, is_needed=True)
        signs_in = settings.cluster_sasl != "none"
        self._check_secret("cluster_sasl_password_file", settings.cluster_sasl_password_file, is_needed=signs_in)

    def _check_secret(self, key: str, path: Path | None, *, is_needed: bool) -> None:
        if path is None:
            if is_needed:
                self._refuse(key, _DEFAULT, None, "a file that is not empty")
            return
        try:
            is_good = bool(path.read_bytes().strip())
        except OSError:
            is_good = False
        if not is_good:
            self._refuse(key, self._origin(key), str(path), "a readable file that is not empty")

    def _check_ports(self, settings: Settings) -> None:
        taken: dict[int, str] = {}
        for setting in SETTINGS:
            port = getattr(settings, setting.field_name) if setting.kind is PORT else None
            if not port:
                continue
            if port in taken:
                allowed = f"a port of its own; {taken[port]} has this one"
                self._refuse(setting.key, self._origin(setting.key), port, allowed)
            taken.setdefault(port, setting.key)
        for entry in settings.advertised_listeners:
            if getattr(settings, f"{entry.listener}_port") is None:
                allowed = f"listeners that are on; {entry.listener}_port is off"
                self._refuse("advertised_listeners", self._origin("advertised_listeners"), entry.listener, allowed)
