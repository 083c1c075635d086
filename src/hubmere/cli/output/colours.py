"""Colours for people at a terminal; a pipe, a file and NO_COLOR (no-color.org) get plain text."""

import os
import sys
from typing import TextIO

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


def has_colours(stream: TextIO | None = None) -> bool:
    """Whether colours are wanted on a stream; standard output unless another is given."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, *, is_on: bool) -> str:
    """A text in a colour, if colours are on."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if is_on and text else text
