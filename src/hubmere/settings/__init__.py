"""The configuration of a node: one frozen `Settings` tree from flags, environment, file and defaults.

Precedence is the same everywhere: a flag overrides the environment, the environment overrides the file, the file
overrides the default. Each setting is declared once, in `tree.py`; flag, variable, file key, help text and the
reference page are derived from the declaration. Other packages do not see this one: `node/node.py` passes them plain
arguments.
"""

from hubmere.settings.declaration import Setting
from hubmere.settings.identity import IdentitySetting, IdentityTables, IssuerSetting
from hubmere.settings.load import load
from hubmere.settings.problems import BadSettings, Problem
from hubmere.settings.tables import HubSetting, PartnerSetting
from hubmere.settings.tree import (
    SETTINGS,
    Durability,
    LogFormat,
    LogLevel,
    Settings,
    Tier,
)

__all__ = [
    "Settings",
    "HubSetting",
    "IdentitySetting",
    "IdentityTables",
    "IssuerSetting",
    "PartnerSetting",
    "load",
    "BadSettings",
    "Problem",
    "SETTINGS",
    "Setting",
    "Tier",
    "Durability",
    "LogFormat",
    "LogLevel",
]
