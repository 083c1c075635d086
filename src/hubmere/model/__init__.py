"""The nouns and refusals that every room shares; knows no protocol, no file and no network.

Neighbours import the modules listed here by name; a test holds the list.
"""

__all__ = [
    "capture",
    "clock",
    "connection_string",
    "damage",
    "emulator",
    "entity",
    "errors",
    "keys",
    "names",
    "offsets",
    "position",
    "receipt",
    "spec",
    "steady",
    "tier",
]
