"""Failures of our clients as types: unreachable, not authenticated, or refused.

Messages never contain a key. `is_transient` says whether the same call may succeed a moment later; the client retries
such calls itself, up to its time limit.
"""

from hubmere.wire.kafka.errors import ErrorCode

# Kafka's clients retry these because metadata may be stale in a cluster; on a single node it is not.
_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class ClientFailure(Exception):
    """A call to a node failed."""

    is_transient = False


class Unreachable(ClientFailure):
    """There is no working connection: refused, broken, timed out, or the certificate is not trusted."""

    is_transient = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why

    def __str__(self) -> str:
        return f"{self.address} cannot be reached: {self.why}"


class SignInRefused(ClientFailure):
    """The node does not accept the connection string."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(address, why)
        self.address = address
        self.why = why

    def __str__(self) -> str:
        return f"{self.address} refuses the connection string: {self.why}"


class Refused(ClientFailure):
    """The node answered with an error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(what, code, message)
        self.what = what
        self.code = code
        self.message = message

    @property
    def is_transient(self) -> bool:  # type: ignore[override]  # a table for the class, an answer for the instance
        """Whether the error code is retriable in Kafka's table."""
        known = _KNOWN.get(self.code)
        return known is not None and known.retriable and known not in _FINAL

    def __str__(self) -> str:
        known = _KNOWN.get(self.code)
        name = known.name if known is not None else f"code {self.code}"
        return f"{self.what}: {self.message or (known.message if known is not None else 'refused')} ({name})"


_KNOWN: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}


class RangeLost(ClientFailure):
    """Events that were to be read no longer exist: retention deleted them, or the hub was re-created."""

    def __init__(self, hub: str, partition: int, wanted: int, first: int, end: int) -> None:
        super().__init__(hub, partition, wanted, first, end)
        self.hub = hub
        self.partition = partition
        self.wanted = wanted
        self.first = first
        self.end = end

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of '{self.hub}' was to be read from sequence number {self.wanted}, "
            f"but it holds {self.first} to {self.end - 1}"
            if self.end > self.first
            else f"partition {self.partition} of '{self.hub}' was to be read from sequence number {self.wanted}, "
            f"but it is empty and continues at {self.end}"
        )
