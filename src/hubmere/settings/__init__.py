"""The configuration of a node: one frozen `Settings` tree from flags, environment, file and defaults.

Precedence, everywhere the same: a flag stands over the environment, the environment over the file, the file over the
default. Each setting is declared once, in `tree.py`; flag, variable, file key, help text and the reference page follow
from the declaration. Rooms never see this package: `node/node.py` hands them plain arguments.
"""

from hubmere.settings.load import load
from hubmere.settings.problems import BadSettings, Problem
from hubmere.settings.tree import (
    SETTINGS,
    Durability,
    HubSetting,
    LogFormat,
    LogLevel,
    PartnerSetting,
    Setting,
    Settings,
    Tier,
)

__all__ = [
    "Settings",
    "HubSetting",
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
