"""Long answers in slices: work that is larger than its request is done in parts, with other clients served between.

A few bytes of a request can name thousands of topics, partitions or groups. The handler of such a request is a
generator that yields after each entry:

1. The first slice runs at once. Nearly every request ends in it, and nothing below happens.
2. What is left joins the queue of all long answers of the node. Each turn of the event loop runs one slice of the
   first job, which then goes to the end of the queue; so other clients are served between two slices, and a second
   long answer takes no longer turns than one.
3. Until its answer is complete, a connection is not read and its next requests wait: it has one long answer at a time.
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

# Yields after each entry; has answered the request when it ends.
Steps = Iterator[None]


def run_slice(steps: Steps) -> bool:
    """Do one slice of the work; whether all of it is done."""
    return len(list(islice(steps, SLICE_ENTRIES))) < SLICE_ENTRIES


def result_of(steps: Generator[None, None, T]) -> T:
    """Do work at once that is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def encoded(request: Request, value: object) -> EncodedStruct:
    """A part of an answer as it goes out, so that the whole need not be encoded at once."""
    version = request.version
    return encode_struct(type(value), version, request.api.is_flexible(version), value)


def in_slices(handler: "Callable[[KafkaSession, Request], Steps]") -> "Callable[[KafkaSession, Request], None]":
    """The handler for a request whose work is given as a generator."""

    @wraps(handler)
    def handle(session: "KafkaSession", request: Request) -> None:
        session.run_in_slices(handler(session, request))

    return handle


class Slices:
    """The long answers of all connections, in turns. Thread rule: the loop's thread only."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[KafkaSession, Steps]] = deque()
        self._is_planned = False

    def add(self, session: "KafkaSession", steps: Steps) -> None:
        """Take over what is left of an answer after its first slice."""
        self._jobs.append((session, steps))
        self._plan()

    def _plan(self) -> None:
        if self._jobs and not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """One slice of the first job."""
        self._is_planned = False
        session, steps = self._jobs.popleft()
        try:
            if session.run_next_slice(steps):
                self._jobs.append((session, steps))
        except Exception:  # the top of a task: one client's fault must not stop the others' answers
            log.exception("an answer to %s failed", session.wire.peer)
            session.disconnect("an answer failed")
        self._plan()
