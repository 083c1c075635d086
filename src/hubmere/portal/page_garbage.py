"""Frees the objects of closed pages after every few pages: those of many pages would stop the event loop for long.

The objects of a page refer to each other, so only a full garbage collection frees them. The node starts one rarely
(`node.runtime.collector`); with the objects of fifty pages it would take more than half a second.
"""

import gc
from typing import Final

PAGES: Final = 5


class PageGarbage:
    """Counts opened pages. Thread rule: the loop's thread only."""

    def __init__(self) -> None:
        self._opened = 0

    def count_page(self) -> None:
        """A page is opened: with every fifth one, free the objects of the pages that were closed before."""
        self._opened += 1
        if self._opened % PAGES == 0:
            gc.collect()
