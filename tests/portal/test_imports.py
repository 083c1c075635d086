"""What the pages import: everything before the first page is built, because building happens on the node's loop."""

import re
from pathlib import Path

import hubmere.portal
from hubmere.portal.nicegui_app import PARTS_IN_USE


def test_parts_of_nicegui_are_imported_with_the_pages() -> None:
    """The library imports an element with its first use, and that takes 50 ms for the elements of a page."""
    sources = Path(hubmere.portal.__file__).parent.rglob("*.py")

    used = {name for source in sources for name in re.findall(r"\bui\.([a-z_]+)", source.read_text(encoding="utf-8"))}

    assert used == set(PARTS_IN_USE)
