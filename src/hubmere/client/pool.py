"""A pool of authenticated clients for one process, reused from task to task.

A Spark worker runs one task after another. Connecting and authenticating takes four round trips and, on the node, more
time than the events of a small task. A client has one user at a time: a second user of the same account gets another.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hubmere.client.connection import Account, Client

# Idle clients of a process: one for each hub that a query joins, and few queries share a worker.
MAX_IDLE: Final = 8

_idle: Final[OrderedDict[Account, Client]] = OrderedDict()
# A forked child has the same sockets: two processes must not use one.
os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def pooled_client(account: Account) -> Iterator[Client]:
    """A client for the length of the block; it goes back to the pool unless the block fails."""
    client = _idle.pop(account, None) or Client(account)
    client.close_if_stale()
    try:
        yield client
    except BaseException:
        # Responses may be in flight that the next user must not read.
        client.close()
        raise
    _keep(account, client)


def _keep(account: Account, client: Client) -> None:
    replaced = _idle.pop(account, None)
    _idle[account] = client
    if replaced is None and len(_idle) > MAX_IDLE:
        _, replaced = _idle.popitem(last=False)
    if replaced is not None:
        replaced.close()
