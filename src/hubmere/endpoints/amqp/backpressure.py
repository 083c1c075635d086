"""Back-pressure of one connection: when its socket is read, and when its links may write.

The socket is not read while one of these holds:
1. too many publications of the connection wait for their commit (`hold`, `release`);
2. the peer does not read what is written for it (`on_written`, `on_writable`);
3. the node's memory budget is used up and the connection holds a part of a message.

Links write while the socket accepts more and the memory budget allows it. A link that has to stop registers with
`retry_when_writable` and is called when both are true again.
"""

from collections.abc import Callable

from hubmere.endpoints.amqp.links.link_handler import LinkHandler
from hubmere.endpoints.memory import UNCOUNTED_BYTES, Account, MemoryBudget
from hubmere.endpoints.stream import SCRATCH, Wire
from hubmere.wire.amqp import Connection

# Publications of one connection that may wait for their commit; more are left in the socket.
MAX_WAITING_BYTES = 16 << 20
# Bytes queued beyond the socket's high-water mark for a peer that does not read; with more it is not read either.
MAX_OVERRUN_BYTES = 1 << 20
# From this size on, publications that wait for their commit count against the node's memory; fewer bytes are committed
# within milliseconds.
_COUNTED_WAITING_BYTES = 64 << 10


def _do_nothing() -> None:
    """The callback of a closed connection."""


def _refuse_nothing(_why: str) -> None:
    """The callback of a closed connection."""


class Backpressure:
    """Pauses and resumes one connection, and counts its memory (`memory.Holder`).

    `flush` writes what the engine has queued. `on_memory_refused` ends the connection, because the node's memory is
    used up. Thread rule: the loop's thread only.
    """

    __slots__ = (
        "_account",
        "_blocked",
        "_engine",
        "_flush",
        "_is_paused",
        "_is_waiting_for_memory",
        "_on_memory_refused",
        "_overrun_bytes",
        "_wire",
        "waiting_bytes",
    )

    def __init__(
        self,
        wire: Wire,
        engine: Connection,
        memory: MemoryBudget,
        *,
        flush: Callable[[], None],
        on_memory_refused: Callable[[str], None],
    ) -> None:
        self._wire = wire
        self._engine = engine
        self._flush = flush
        self._on_memory_refused = on_memory_refused
        self._account: Account = memory.account(self)
        self._blocked: list[LinkHandler] | None = None
        self._is_paused = False
        self._is_waiting_for_memory = False
        self._overrun_bytes = 0
        # Publications that wait for their commit.
        self.waiting_bytes = 0

    def close(self) -> None:
        """The connection is gone; nothing is called any more."""
        self._blocked = None
        self._account.close()
        self._flush = _do_nothing
        self._on_memory_refused = _refuse_nothing

    # --- reading

    @property
    def read_buffer(self) -> memoryview:
        """Buffer for the next read: small while the node's memory is used up."""
        return SCRATCH[: self._account.read_bytes] if self._account.is_tight else SCRATCH

    def on_read(self) -> None:
        """Bytes from the peer were handled."""
        if self._engine.input_bytes or self._account.held_bytes:
            self._count_memory()

    def hold(self, size_bytes: int) -> None:
        """A publication of this size waits for its commit."""
        self.waiting_bytes += size_bytes
        if self.waiting_bytes > MAX_WAITING_BYTES:
            self._pause_reading()

    def release(self, size_bytes: int) -> None:
        """A publication is committed or refused."""
        self.waiting_bytes -= size_bytes
        if self._is_paused:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._wire.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_waiting_for_memory or self._overrun_bytes:
            return
        if self._is_paused and self.waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._is_paused = False
            self._wire.resume_reading()

    # --- writing

    @property
    def may_send(self) -> bool:
        """Whether the socket and the node's memory allow more output."""
        wire = self._wire
        if self._account.is_tight and wire.unsent_bytes > UNCOUNTED_BYTES:
            return False
        return wire.is_writable

    def retry_when_writable(self, handler: LinkHandler) -> None:
        """Call `on_flow` of a link once `may_send` is true again."""
        self._blocked = self._blocked or []
        if handler not in self._blocked:
            self._blocked.append(handler)
        if self._wire.is_writable:
            self._wait_for_memory()

    def on_written(self, size_bytes: int) -> None:
        """Bytes were given to the socket."""
        if not self._wire.is_writable:
            self._overrun_bytes += size_bytes
            if self._overrun_bytes > MAX_OVERRUN_BYTES:
                self._pause_reading()
        if size_bytes > UNCOUNTED_BYTES or self._account.held_bytes:
            self._count_memory()

    def on_writable(self) -> None:
        """The socket accepts more again."""
        self._overrun_bytes = 0
        self._count_memory()
        self._resume()

    def _resume(self) -> None:
        self._resume_reading()
        blocked, self._blocked = self._blocked, None
        for handler in blocked or ():
            handler.on_flow()
        self._flush()

    # --- the node's memory (memory.Holder)

    def held_bytes(self) -> int:
        """Unfinished and uncommitted deliveries, and what the peer has not read."""
        held = self._engine.input_bytes + self._wire.unsent_bytes
        return held + self.waiting_bytes if self.waiting_bytes > _COUNTED_WAITING_BYTES else held

    def refuse_memory(self, why: str) -> None:
        """Discard unfinished messages and end the connection."""
        self._engine.discard_partial_deliveries()
        self._on_memory_refused(why)

    def _count_memory(self) -> None:
        self._account.set(self.held_bytes())
        if self._account.is_tight and self._engine.input_bytes:
            self._pause_reading()
            self._wait_for_memory()

    def _wait_for_memory(self) -> None:
        if not self._is_waiting_for_memory:
            self._is_waiting_for_memory = True
            self._account.wait(self._on_memory)

    def _on_memory(self) -> None:
        self._is_waiting_for_memory = False
        if not self._engine.is_closed:
            self._resume()
