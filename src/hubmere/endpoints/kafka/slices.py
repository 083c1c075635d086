"""Long requests in slices: their work is done in parts, and other clients are served between two parts.

A few bytes of a request can name thousands of topics, partitions or groups. The handler of such a request is a
generator that yields after each entry:

1. The first slice runs at once. Nearly every request ends in it, and nothing below happens.
2. The rest joins the queue of all long requests of the node. Each turn of the event loop runs one slice of the first
   job, which then goes to the end of the queue. So other clients are served between two slices, and two long requests
   make no turn longer than one.
3. Until the response is complete, the connection is not read and its next requests wait: it has one long request at a
   time.
4. A request that needs a log which is still being opened yields a `Wait` (`until_open`). It joins the queue again when
   the log is open, or when it has waited long enough: then the log refuses.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from hubmere.broker import MAX_OPENING_WAIT_S, HubView, LogOpening, PartitionView
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.codegen import encode_struct
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.schema import EncodedStruct

if TYPE_CHECKING:
    from hubmere.endpoints.kafka.session import KafkaSession

log = logging.getLogger("hubmere.kafka")

T = TypeVar("T")

# How long a request waits for leader epochs: enough for logs that are new, not for one that is being recovered.
_MAX_EPOCH_WAIT_S: Final = 1.0

# Waits for captured files: they are listed, a position is looked up, and events are loaded.
_MAX_LOOKS: Final = 4

# Entries of one slice: most take a few microseconds each, so that a slice takes about a millisecond.
SLICE_ENTRIES: Final = 256
# A slice of entries that take longer, as those that create hubs do, ends after this time.
SLICE_SECONDS: Final = 0.005

# Names and partitions that one request may have: a namespace of the largest tier has 40,000 partitions.
MAX_ENTRIES: Final = 50_000
# Topics, groups or resources that one request may name: ten times the hubs of the largest tier.
MAX_NAMES: Final = 10_000
TOO_MANY_NAMES: Final = f"More than {MAX_NAMES} names in one request"


class Wait(NamedTuple):
    """A request cannot continue before a log is open; `max_wait_s` counts from the first wait of the request."""

    opening: LogOpening
    max_wait_s: float


# Yields after each entry; the request is answered when it ends.
Steps = Iterator[None]
# As `Steps`, and yields a `Wait` where the request has to wait.
WaitingSteps = Iterator[Wait | None]


def run_slice(steps: WaitingSteps) -> bool | Wait:
    """Do one slice of the work; True when all of it is done, or what it has to wait for."""
    count, until = 0, time.perf_counter() + SLICE_SECONDS
    for wait in islice(steps, SLICE_ENTRIES):
        if wait is not None:
            return wait
        count += 1
        if time.perf_counter() > until:
            return False
    return count < SLICE_ENTRIES


def open_ahead(hub: HubView, partitions: Iterable[int]) -> Steps:
    """Begin to open all logs that a request needs, before it waits for the first of them."""
    for number in hub.unopened_partitions(partitions):
        hub.open_ahead(number)
        yield


def until_open(partition: PartitionView, max_wait_s: float = MAX_OPENING_WAIT_S) -> WaitingSteps:
    """Wait until the log of a partition is open, or until it is time that the log refuses.

    Raises why a log cannot be opened.
    """
    try:
        partition.require_open()
    except LogOpening as opening:
        yield Wait(opening, max_wait_s)


def until_known(partition: PartitionView, look: Callable[[PartitionView], None]) -> WaitingSteps:
    """Wait until captured files have told what `look` needs; it then raises why they cannot."""
    for _ in range(_MAX_LOOKS):
        try:
            look(partition)
        except LogOpening as opening:
            yield Wait(opening, MAX_OPENING_WAIT_S)
        else:
            return
    look(partition)


def open_for_epochs(hub: HubView, partitions: Iterable[int]) -> WaitingSteps:
    """Open logs for their leader epochs; the epoch of a log that takes longer than a moment is left out.

    Clients do not check an epoch that they do not know.
    """
    yield from open_ahead(hub, partitions)
    for number in partitions:
        with suppress(Refusal):
            yield from until_open(hub.partition(number), _MAX_EPOCH_WAIT_S)


def run_to_end(steps: Generator[Wait | None, None, T]) -> T:
    """Do all of the work at once, if it is known to be short; it does not wait for logs."""
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


def in_slices(handler: "Callable[[KafkaSession, Request], WaitingSteps]") -> "Callable[[KafkaSession, Request], None]":
    """Turn a generator into the handler of a request."""

    @wraps(handler)
    def handle(session: "KafkaSession", request: Request) -> None:
        session.run_in_slices(handler(session, request))

    return handle


class LongRequest:
    """A request that is handled in slices. Thread rule: the loop's thread only."""

    __slots__ = ("_steps", "_waits_since", "session")

    def __init__(self, session: "KafkaSession", steps: WaitingSteps) -> None:
        self.session = session
        self._steps = steps
        # When the request began to wait for its first log.
        self._waits_since: float | None = None

    def start(self) -> None:
        """Do the first slice; nearly every request ends in it."""
        session, progress = self.session, run_slice(self._steps)
        if progress is not True and not session.is_closing:
            session.pressure.is_slicing = session.pressure.is_check_due = True
            self._continue(progress)

    def run_next(self) -> None:
        """Do the next slice."""
        session = self.session
        progress: bool | Wait = True

        def work() -> None:
            nonlocal progress
            progress = run_slice(self._steps)
            session.pressure.is_slicing = progress is not True

        if not session.is_closing:
            session.resume(work)
            if progress is not True:
                self._continue(progress)

    def _continue(self, progress: bool | Wait) -> None:
        """Join the queue of long requests again, now or when a log is open."""
        slices, wait = self.session.context.slices, progress
        if not isinstance(wait, Wait):
            slices.add(self)
            return
        try:
            self._wait(wait)
        except LogOpening:  # it has waited long enough, or too many requests wait: now the log refuses
            slices.add(self)

    def _wait(self, wait: Wait) -> None:
        session, now = self.session, self.session.now
        if self._waits_since is None:
            self._waits_since = now
        left_s = self._waits_since + wait.max_wait_s - now
        if left_s <= 0:
            raise wait.opening

        def on_done() -> None:
            session.end_wait(waiting)
            session.context.slices.add(self)

        waiting = wait.opening.wait(on_done, now, max_wait_s=left_s)
        session.begin_wait(waiting)


class Slices:
    """The long requests of all connections, in turns. Thread rule: the loop's thread only."""

    def __init__(self) -> None:
        self._requests: deque[LongRequest] = deque()
        self._is_scheduled = False

    def add(self, request: LongRequest) -> None:
        """Queue the rest of a request after a slice."""
        self._requests.append(request)
        self._schedule()

    def _schedule(self) -> None:
        if self._requests and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Run one slice of the first request."""
        self._is_scheduled = False
        request = self._requests.popleft()
        try:
            request.run_next()
        except Exception:  # the top of a task: one client's error must not affect the others
            log.exception("a long request of %s failed", request.session.wire.peer)
            request.session.disconnect("a long request failed")
        self._schedule()
