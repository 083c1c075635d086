"""Entities, names, limits and refusals that all packages share; knows no protocol, no file and no network.

Other packages import the modules and packages listed here; a test checks the list.
"""

__all__ = [
    "addresses",
    "capture",
    "clock",
    "entity",
    "errors",
    "extras",
    "facts",
    "keys",
    "monitoring",
    "names",
    "offsets",
    "position",
    "receipt",
    "security",
    "spec",
    "tier",
]
