"""Options of an engine: what it announces to its peer, and its limits. Limits that are not meant to be changed are
constants in the modules that enforce them."""

from __future__ import annotations

from dataclasses import dataclass

from hubmere.wire.amqp import sasl
from hubmere.wire.amqp.codec.frames import MAX_FRAME_BYTES, MIN_MAX_FRAME_BYTES
from hubmere.wire.amqp.codec.performatives import Open
from hubmere.wire.amqp.codec.types import Value
from hubmere.wire.amqp.errors import LocalProtocolError
from hubmere.wire.amqp.sasl import ClientCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Announced values and limits; all connections can share one object. The defaults are those of the service."""

    container_id: str = "hubmere"
    hostname: str | None = None
    max_frame_size: int = 65536
    channel_max: int = 4999
    idle_timeout_ms: int = 120_000
    incoming_window: int = 5000
    # The service announces 255 on its bus and more elsewhere; Python clients stop allocating links above it.
    handle_max: int = 8191
    # Links of all sessions together: 5000 sessions of 8192 links each would exhaust the memory.
    max_links: int = 10_000
    # The largest message of any tier; a link may announce less.
    max_message_bytes: int = 20 << 20
    # Partial deliveries of all links together.
    max_held_bytes: int = 64 << 20
    # From the first byte to the open.
    handshake_seconds: float = 60.0
    mechanisms: tuple[str, ...] = sasl.OFFERED
    # A client without credentials omits the SASL layer.
    credentials: ClientCredentials | None = None
    properties: dict[Value, Value] | None = None

    def __post_init__(self) -> None:
        if not MIN_MAX_FRAME_BYTES <= self.max_frame_size <= MAX_FRAME_BYTES:
            raise LocalProtocolError(f"max_frame_size lies between {MIN_MAX_FRAME_BYTES} and {MAX_FRAME_BYTES}")

    def open_frame(self) -> Open:
        """Our open frame."""
        return Open(
            container_id=self.container_id,
            hostname=self.hostname,
            max_frame_size=self.max_frame_size,
            channel_max=self.channel_max,
            idle_time_out=self.idle_timeout_ms or None,
            properties=self.properties,
        )
