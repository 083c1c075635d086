"""What a client of ours could not do, as types: nobody there, not let in, or told no.

Texts never hold a key. `is_passing` says whether the same call may succeed a moment later; the client tries those again
by itself for as long as it was told to.
"""

from hubmere.wire.kafka.errors import ErrorCode

# Kafka's clients try again after these because metadata may lag behind; one node's metadata does not.
_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class ClientFailure(Exception):
    """Something was asked of a node and did not come about."""

    is_passing = False


class Unreachable(ClientFailure):
    """There is no working connection: refused, broken, silent for too long, or not what it says it is."""

    is_passing = True

    def __init__(self, place: str, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def __str__(self) -> str:
        return f"{self.place} cannot be reached: {self.why}"


class SignInRefused(ClientFailure):
    """The node does not take the connection string."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def __str__(self) -> str:
        return f"{self.place} refuses the connection string: {self.why}"


class Refused(ClientFailure):
    """The node answered with an error code."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(what, code, message)
        self.what = what
        self.code = code
        self.message = message

    @property
    def is_passing(self) -> bool:  # type: ignore[override]  # a table for the class, an answer for the instance
        """Whether Kafka's own table says that trying again may help."""
        known = _KNOWN.get(self.code)
        return known is not None and known.retriable and known not in _FINAL

    def __str__(self) -> str:
        known = _KNOWN.get(self.code)
        name = known.name if known is not None else f"code {self.code}"
        return f"{self.what}: {self.message or (known.message if known is not None else 'refused')} ({name})"


_KNOWN: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}


class RangeLost(ClientFailure):
    """Events that were to be read are gone: retention passed them, or the hub was made anew."""

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
            f"but it is empty and goes on at {self.end}"
        )
