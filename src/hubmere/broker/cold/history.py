"""The captured files of hubs with cold reads: which files there are, and the parts of them that are in memory.

Files are listed when a reader needs them: the first time, when retention has deleted events that no known file holds,
and again after `FRESH_SECONDS`, because an operator may add or delete files at any time. A file that cannot be read is
reported, and the files are listed again without it: a damaged file until it changes, any other for a while. Which files
follow each other is worked out by the threads that list them, because there may be very many.
Thread rule: the owner's thread only.
"""

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from hubmere.model.capture.cold import ColdBlock, ColdFile, ColdFiles, ColdHub, ColdSource, Coverage, OnFound
from hubmere.model.capture.targets import CaptureTargets
from hubmere.model.entity import Hub, TimestampType
from hubmere.model.errors import CorruptBatch, InvalidArgument, NotSupported, Refusal
from hubmere.model.position import Position

# Parts of files in memory, of all hubs: a part has about 1 MB, and a reader needs two or three.
MAX_BLOCK_BYTES: Final = 48 * 1024 * 1024
# Files that were listed longer ago are listed again before a position is looked up in them.
FRESH_SECONDS: Final = 30

# Requests that wait for a listing. Requests end after some seconds, so that the oldest are dropped first.
MAX_WAITING_REQUESTS: Final = 10_000

# Called with the partition, the file and why it cannot be read.
OnUnusable = Callable[[int, ColdFile, str], None]


class Blocks:
    """Recently used parts of files, bounded in bytes; one part is kept even if it alone is larger."""

    def __init__(self, max_bytes: int = MAX_BLOCK_BYTES) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0
        # By hub, file and first sequence number; and of each file the first numbers that are here, in order.
        self._blocks: OrderedDict[tuple[str, ColdFile, int], ColdBlock] = OrderedDict()
        self._firsts: dict[tuple[str, ColdFile], list[int]] = {}

    def find(self, hub_id: str, file: ColdFile, sequence: int) -> ColdBlock | None:
        """The part that covers a sequence number."""
        firsts = self._firsts.get((hub_id, file), ())
        index = bisect_right(firsts, sequence) - 1
        if index < 0:
            return None
        key = (hub_id, file, firsts[index])
        found = self._blocks[key]
        if found.end <= sequence:
            return None
        self._blocks.move_to_end(key)
        return found

    def put(self, hub_id: str, file: ColdFile, block: ColdBlock) -> None:
        """Add a part, and drop the least recently used ones."""
        key = (hub_id, file, block.first)
        if key in self._blocks:
            return
        self._blocks[key] = block
        insort(self._firsts.setdefault((hub_id, file), []), block.first)
        self.used_bytes += block.size_bytes
        while self.used_bytes > self._max_bytes and len(self._blocks) > 1:
            (hub, old, first), dropped = self._blocks.popitem(last=False)
            self.used_bytes -= dropped.size_bytes
            firsts = self._firsts[hub, old]
            firsts.remove(first)
            if not firsts:
                del self._firsts[hub, old]


class _Waiting:
    """Who waits for a listing: logs, which wait until they get it, and requests of clients, which may be dropped."""

    def __init__(self) -> None:
        self.logs: list[Callable[[], None]] = []
        self.requests: deque[Callable[[], None]] = deque(maxlen=MAX_WAITING_REQUESTS)

    def __bool__(self) -> bool:
        return bool(self.logs or self.requests)

    def add(self, later: "_Waiting") -> None:
        """Append the callers of a later list, in their order."""
        self.logs += later.logs
        self.requests += later.requests

    def call(self) -> None:
        """Call all of them."""
        for on_listed in (*self.logs, *self.requests):
            on_listed()


class _Unusable(NamedTuple):
    """Why a file cannot be read, and since when, in the seconds that `HubHistory.tick` counts."""

    why: Refusal
    since_s: int


_NO_FILES: Final = Coverage()


class HubHistory:
    """The captured files of one hub."""

    def __init__(self, source: ColdSource, blocks: Blocks, hub: ColdHub, on_unusable: OnUnusable) -> None:
        self.hub = hub
        self._source = source
        self._blocks = blocks
        self._on_unusable = on_unusable
        self._unusable: dict[ColdFile, _Unusable] = {}
        self._files: ColdFiles | None = None
        # Seconds since the history exists, and when the files were listed.
        self._now_s = 0
        self._listed_s = 0
        # Callers of `refresh`: those of the listing that runs, and those that came after it began.
        self._listing: _Waiting | None = None
        self._next = _Waiting()
        # Why the folder cannot be listed, and the number of listings so far.
        self.problem = ""
        self.generation = 0
        # Whether cold reads of the hub were switched off, or changed, since.
        self.is_retired = False

    def retire(self) -> None:
        """End the use of the files: their readers see the log alone, and then switch to the hub's present log."""
        self.is_retired = True

    @property
    def is_fresh(self) -> bool:
        """Whether the files were listed lately."""
        return self._files is not None and self._now_s - self._listed_s < FRESH_SECONDS

    def tick(self) -> None:
        """Called every second: lists the files again if that has failed."""
        self._now_s += 1
        if self._next and self._listing is None:
            self._list()

    def refresh(self, on_listed: Callable[[], None], *, is_request: bool = False) -> None:
        """List the files; `on_listed` is called in a later turn, after a listing that began after this call.

        The caller of a request (`is_request`) may never be called if very many wait: it has a time-out of its own.
        """
        (self._next.requests if is_request else self._next.logs).append(on_listed)
        if self._listing is None and not self.problem:
            self._list()

    def _list(self) -> None:
        self._listing, self._next = self._next, _Waiting()
        # A damaged file stays unusable until it changes; any other failure may be temporary.
        self._unusable = {
            file: found
            for file, found in self._unusable.items()
            if isinstance(found.why, CorruptBatch) or self._now_s - found.since_s < FRESH_SECONDS
        }
        self._source.list_files(self.hub, self._unusable.keys(), self._on_files)

    def _on_files(self, answer: ColdFiles | Refusal) -> None:
        waiting, self._listing = self._listing or _Waiting(), None
        if isinstance(answer, Refusal):
            # It is not known which files exist: readers wait, and `tick` tries again.
            self.problem = answer.text()
            waiting.add(self._next)
            self._next = waiting
            return
        self.problem = ""
        self._files = answer
        self._listed_s = self._now_s
        self.generation += 1
        if self._next:
            self._list()
        waiting.call()

    def coverage(self, partition: int) -> Coverage:
        """The readable files of a partition."""
        return _NO_FILES if self._files is None else self._files.by_partition.get(partition, _NO_FILES)

    def find_block(self, file: ColdFile, sequence: int) -> ColdBlock | None:
        """The part of a file that covers a sequence number, if it is in memory."""
        return self._blocks.find(self.hub.hub_id, file, sequence)

    def load(self, partition: int, file: ColdFile, sequence: int, on_done: Callable[[], None]) -> None:
        """Read the part of a file that covers a sequence number; `on_done` is called in a later turn."""
        self._source.load(self.hub, file, sequence, partial(self._on_block, partition, file, on_done))

    def _on_block(
        self, partition: int, file: ColdFile, on_done: Callable[[], None], answer: ColdBlock | Refusal
    ) -> None:
        if not isinstance(answer, Refusal):
            self._blocks.put(self.hub.hub_id, file, answer)
            on_done()
            return
        if file not in self._unusable:
            self._unusable[file] = _Unusable(answer, self._now_s)
            self._on_unusable(partition, file, answer.text())
        self.refresh(on_done)

    def find(self, files: Sequence[ColdFile], position: Position, on_found: OnFound) -> None:
        """Look up a time or an offset in files."""
        self._source.find(self.hub, files, position, on_found)


class Histories:
    """Cold reads of a node: which hubs may have them, and the memory that they share."""

    def __init__(self, source: ColdSource, targets: CaptureTargets) -> None:
        self._source = source
        self._targets = targets
        self._blocks = Blocks()

    def check(self, hub: Hub) -> None:
        """Refuse a hub whose destination this node cannot read."""
        if hub.has_cold_reads and urlsplit(self._url_of(hub)).scheme != "file":
            raise NotSupported(
                "cold_reads with a capture destination that is not a folder of this node (a file:// target)"
            )

    def _url_of(self, hub: Hub) -> str:
        assert hub.capture is not None
        return self._targets.place_of(hub.capture.destination).url

    def of(self, hub: Hub, on_unusable: OnUnusable) -> HubHistory | None:
        """The history of a hub; None without cold reads, or if its destination is not configured any more."""
        if not hub.has_cold_reads or hub.capture is None:
            return None
        try:
            self.check(hub)
        except (InvalidArgument, NotSupported):
            return None
        cold = ColdHub(
            namespace=hub.namespace,
            hub=hub.name,
            url=self._url_of(hub),
            name_format=hub.capture.destination.archive_name_format,
            hub_id=hub.topic_id,
            capture_id=hub.captured_since.id,
            is_append_time=hub.timestamp_type is TimestampType.LOG_APPEND,
        )
        return HubHistory(self._source, self._blocks, cold, on_unusable)
