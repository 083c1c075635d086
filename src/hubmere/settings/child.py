"""The settings of a node that another program starts: its file, and an environment that does not change them."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hubmere.settings.hubs import HUB_KEYS
from hubmere.settings.load import CONFIG_VARIABLE, LIMITS_PREFIX
from hubmere.settings.tables import HubSetting
from hubmere.settings.tree import SETTINGS

_VARIABLES = {CONFIG_VARIABLE, *(setting.variable for setting in SETTINGS)}


def environment_without_settings() -> dict[str, str]:
    """The environment of this process without settings of a node."""
    return {name: value for name, value in os.environ.items() if not _is_setting(name)}


def _is_setting(variable: str) -> bool:
    """Whether a variable would change a node."""
    return variable in _VARIABLES or variable.startswith(LIMITS_PREFIX)


def settings_file(settings: Mapping[str, object], hubs: Iterable[HubSetting]) -> str:
    """The text of a TOML file with these settings. JSON's texts, numbers, switches and lists are TOML's too."""
    lines = [f"{key} = {_value(value)}" for key, value in settings.items()]
    for hub in hubs:
        lines.append("[[hubs]]")
        given = ((key, getattr(hub, field_name)) for key, (field_name, _) in HUB_KEYS.items())
        lines.extend(f"{key} = {_value(value)}" for key, value in given if value)
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
