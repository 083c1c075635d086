"""Entities, names, limits and refusals that all packages share; knows no protocol, no file and no network.

Other packages import the modules listed here; a test checks the list.
"""

__all__ = [
    "addresses",
    "capture",
    "captured_files",
    "clock",
    "connection_string",
    "damage",
    "entity",
    "errors",
    "extras",
    "facts",
    "histogram",
    "history",
    "keys",
    "names",
    "offsets",
    "position",
    "receipt",
    "rights",
    "roles",
    "sas",
    "sign_in",
    "spec",
    "tier",
]
