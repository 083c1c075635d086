"""A WebSocket on a connection that began as HTTP: uvicorn's, which tells when it is gone.

Loaded with the first upgrade and not before: most nodes never see one, and the library behind it is not small.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]  # uvicorn ships no types that we follow
    """uvicorn's WebSocket with a call at its end."""

    def __init__(self, *args: Any, on_lost: Callable[[], None], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_lost = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self._on_lost()
