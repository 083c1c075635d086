"""Processes that end with the one that started them, also if that one is killed and cannot end them itself.

Only Linux can do this; elsewhere they stay, and `LocalBrokers` refuses to start others on their data.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Final

# prctl(2): the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent(sent: int) -> Callable[[], None] | None:
    """The `preexec_fn` of a process that gets this signal when its parent ends.

    The parent must start it in its main thread: the end of another thread would count as that of the parent.
    """
    if _LIBC is None:
        return None
    prctl, parent = _LIBC.prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, sent)
        if os.getppid() != parent:
            os._exit(1)  # it has ended meanwhile

    return prepare
