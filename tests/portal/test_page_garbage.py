"""The objects of closed pages are freed a few pages at a time."""

import gc
import weakref

from hubmere.portal.page_garbage import PAGES, PageGarbage


class Element:
    """An object that refers to itself, as the elements of a page do."""

    def __init__(self) -> None:
        self.parent = self


def test_objects_of_closed_pages_are_freed_with_every_fifth_page() -> None:
    """Nobody has to wait until the objects of many pages are freed at once."""
    garbage = PageGarbage()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        closed = weakref.ref(Element())
        for _ in range(PAGES - 1):
            garbage.count_page()
        is_there = closed() is not None
        garbage.count_page()
    finally:
        if was_enabled:
            gc.enable()

    assert is_there
    assert closed() is None
