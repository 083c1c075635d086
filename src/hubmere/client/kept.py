"""Clients that a process keeps: taken for one piece of work, given back signed in, taken again for the next.

A Spark worker reads one task after another. To connect and to sign in takes four round trips and, at the node, more
time than a small task's events. Whoever takes a client owns it alone: a second taker of the same account gets another.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hubmere.client.connection import Account, Client

# Idle clients of a process: one for each hub that a query joins, and few queries share a worker.
MAX_KEPT: Final = 8

_idle: Final[OrderedDict[Account, Client]] = OrderedDict()
# A child has the same sockets: two processes must not speak on one.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def kept_client(account: Account) -> Iterator[Client]:
    """A client for as long as the block lasts; kept for the next taker unless the block fails."""
    client = _idle.pop(account, None) or Client(account)
    client.close_if_stale()
    try:
        yield client
    except BaseException:
        # Answers may be on their way that the next taker must not take for theirs.
        client.close()
        raise
    _keep(account, client)


def _keep(account: Account, client: Client) -> None:
    replaced = _idle.pop(account, None)
    _idle[account] = client
    if replaced is None and len(_idle) > MAX_KEPT:
        _, replaced = _idle.popitem(last=False)
    if replaced is not None:
        replaced.close()
