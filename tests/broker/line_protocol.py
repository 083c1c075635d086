"""A sixth protocol on the broker's surface: commands as lines of text. Refusals are answered with ERROR and a text.

SIGN-IN <connection string>             -> OK <authorization rule>
PUBLISH <hub> <key, or -> <text>        -> OK <sequence number>
READ <hub> <consumer group> <partition> -> <sequence number> <text> for each event, then OK <number of events>
QUIT                                    -> OK bye, and the connection is closed
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from hubmere.broker import Broker, ConnectionStringCredential
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.position import Position
from hubmere.model.receipt import Receipt
from hubmere.model.security.connection_string import ConnectionString
from hubmere.translate import HttpEvent, events, publication_from_http

READ_BYTES = 64 * 1024
MAX_EVENTS = 1000


class LineConnection:
    """One client connection. Only the owner's event loop calls it."""

    def __init__(self, broker: Broker, clock: Clock, address: str) -> None:
        self._broker, self._clock, self._address = broker, clock, address
        self._caller = broker.connect(None, address)
        self._commands: dict[str, tuple[int, Callable[..., Awaitable[list[str]]]]] = {  # arguments, handler
            "SIGN-IN": (1, self._sign_in),
            "PUBLISH": (3, self._publish),
            "READ": (3, self._read),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer commands until the client quits or disconnects."""
        while (line := (await reader.readline()).decode().strip()) and line != "QUIT":
            writer.writelines(f"{response}\n".encode() for response in await self.respond(line))
            await writer.drain()
        writer.write(b"OK bye\n")
        writer.close()

    async def respond(self, line: str) -> list[str]:
        """The response lines to one command."""
        name, _, rest = line.partition(" ")
        count, handler = self._commands.get(name, (0, None))
        arguments = rest.split(" ", count - 1) if count else []
        if handler is None or len(arguments) != count:
            return [f"ERROR unknown command or wrong number of arguments: {name}"]
        try:
            return await handler(*arguments)
        except Refusal as refusal:
            return [f"ERROR {refusal.text()}"]

    async def _sign_in(self, text: str) -> list[str]:
        host, credential = ConnectionString.parse(text).host, ConnectionStringCredential(text)
        self._caller = self._broker.sign_in(host, credential, address=self._address, now_s=self._now_s)
        return [f"OK {self._caller.principal.rule}"]

    async def _publish(self, hub: str, key: str, text: str) -> list[str]:
        publisher = self._caller.publisher(hub, self._now_s)
        event = HttpEvent(body=text.encode(), partition_key=None if key == "-" else key)
        publication = publication_from_http([event], resolve_key=publisher.resolve_key)
        committed: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        publisher.publish(
            publication.batch,
            count=publication.count,
            size_bytes=publication.size_bytes,
            key=publication.partition_key,
            now=self._clock.monotonic(),
            now_ms=self._clock.now_ms(),
            callback=committed.set_result,
        )
        receipt = await committed
        if receipt.error is not None:
            raise receipt.error
        return [f"OK {receipt.sequence_number}"]

    async def _read(self, hub: str, group: str, partition: str) -> list[str]:
        open_reader = partial(self._caller.reader, hub, self._now_s, on_ready=_ignore, on_closed=_ignore)
        reader = open_reader(group=group, partition=partition, position=Position.first())
        lines: list[str] = []
        while (chunk := reader.read(READ_BYTES)) is not None and len(lines) < MAX_EVENTS:
            found = events(chunk.data, chunk.offset, reader.next_sequence, limit=MAX_EVENTS)
            lines += [f"{event.sequence} {(event.body or b'').decode(errors='replace')}" for event in found]
            reader.advance(chunk.next_sequence, len(found), len(chunk.data), self._clock.monotonic())
        reader.close()
        return [*lines, f"OK {len(lines)}"]

    @property
    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def _ignore(*_: object) -> None:
    """A callback that does nothing: a read ends with its command."""
