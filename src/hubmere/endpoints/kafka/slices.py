"""Long requests in slices: their work is done in parts, and other clients are served between two parts.

A few bytes of a request can name thousands of topics, partitions or groups. The handler of such a request is a
generator that yields after each entry:

1. The first slice runs at once. Nearly every request ends in it, and nothing below happens.
2. The rest joins the queue of all long requests of the node. Each turn of the event loop runs one slice of the first
   job, which then goes to the end of the queue. So other clients are served between two slices, and two long requests
   make no turn longer than one.
3. Until the response is complete, the connection is not read and its next requests wait: it has one long request at a
   time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from hubmere.wire.kafka.codegen import encode_struct
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.schema import EncodedStruct

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

T = TypeVar("T")

# Entries of one slice: a few microseconds each, so that a slice takes about a millisecond.
SLICE_ENTRIES: Final = 256

# Names and partitions that one request may have: a namespace of the largest tier has 40,000 partitions.
MAX_ENTRIES: Final = 50_000
# Topics, groups or resources that one request may name: ten times the hubs of the largest tier.
MAX_NAMES: Final = 10_000
TOO_MANY_NAMES: Final = f"More than {MAX_NAMES} names in one request"

# Yields after each entry; the request is answered when it ends.
Steps = Iterator[None]


def run_slice(steps: Steps) -> bool:
    """Do one slice of the work; True when all of it is done."""
    return len(list(islice(steps, SLICE_ENTRIES))) < SLICE_ENTRIES


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Do all of the work at once, if it is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def encode_part(request: Request, value: object) -> EncodedStruct:
    """Encode a part of a response, so that the whole need not be encoded at once."""
    version = request.version
    return encode_struct(type(value), version, request.api.is_flexible(version), value)


def in_slices(handler: "Callable[[KafkaSession, Request], Steps]") -> "Callable[[KafkaSession, Request], None]":
    """Turn a generator into the handler of a request."""

    @wraps(handler)
    def handle(session: "KafkaSession", request: Request) -> None:
        session.run_in_slices(handler(session, request))

    return handle


class Slices:
    """The long requests of all connections, in turns. Thread rule: the loop's thread only."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[KafkaSession, Steps]] = deque()
        self._is_scheduled = False

    def add(self, session: "KafkaSession", steps: Steps) -> None:
        """Queue the rest of a request after its first slice."""
        self._jobs.append((session, steps))
        self._schedule()

    def _schedule(self) -> None:
        if self._jobs and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Run one slice of the first job."""
        self._is_scheduled = False
        session, steps = self._jobs.popleft()
        try:
            if session.run_next_slice(steps):
                self._jobs.append((session, steps))
        except Exception:  # the top of a task: one client's error must not affect the others
            log.exception("a long request of %s failed", session.wire.peer)
            session.disconnect("a long request failed")
        self._schedule()
