"""Refusals of requests: invalid values, too large, too much, or not decodable."""

from hubmere.model.errors.base import Refusal, lifting_hint

# The limits that throughput units set for publications, as fields of `Limits`.
_INGRESS = ("ingress_bytes_per_unit", "ingress_events_per_unit")
# Longest part of a caller's text that an error repeats: enough to recognise it, too little to flood a log.
_SHOWN_CHARACTERS = 80


class InvalidArgument(Refusal):
    """A value is not valid: the text names it and says what is allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(name, value, allowed)
        self.name = name
        self.value = value
        self.allowed = allowed

    def text(self) -> str:
        return f"'{_shorten(self.value)}' is not a valid {self.name}: {self.allowed}."


class InvalidName(InvalidArgument):
    """A name does not follow the naming rules."""


class PartitionCountFixed(InvalidArgument):
    """The tier does not allow the partition count to change (service sub-code 40000)."""


class PartitionKeyMismatch(Refusal):
    """The partition key of a publisher's events must be the publisher's name."""

    def __init__(self, publisher: str, key: str) -> None:
        super().__init__(publisher, key)
        self.publisher = publisher
        self.key = key

    def text(self) -> str:
        return f"The partition key '{_shorten(self.key)}' must equal the publisher's name '{self.publisher}'."


class PositionBeyondEnd(Refusal):
    """The start position of a reader is after the last event."""

    def __init__(self, kind: str, supplied: str, last: str) -> None:
        super().__init__(kind, supplied, last)
        self.kind = kind
        self.supplied = supplied
        self.last = last

    def text(self) -> str:
        return (
            f"The supplied {self.kind} '{self.supplied}' is invalid. "
            f"The last {self.kind} in the system is '{self.last}'"
        )


class NotSupported(Refusal):
    """The operation is not supported."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def text(self) -> str:
        return f"{self.what} is not supported."


class PublicationTooLarge(Refusal):
    """A publication is larger than the tier, the event hub or the endpoint allows; `hint` says what changes that."""

    def __init__(self, size_bytes: int, limit_bytes: int, hint: str) -> None:
        super().__init__(size_bytes, limit_bytes, hint)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.hint = hint

    def text(self) -> str:
        return (
            f"The received message (size:{self.size_bytes} bytes) exceeds the limit ({self.limit_bytes} bytes) "
            f"currently allowed. {self.hint}"
        )


class ServerBusy(Refusal):
    """The namespace is over its throughput units; the client should retry later."""

    def __init__(self, retry_after_s: float, *, code: int = 50002, limits: tuple[str, ...] = _INGRESS) -> None:
        super().__init__(retry_after_s, code)
        self.retry_after_s = retry_after_s
        self.code = code
        self.limits = limits  # the fields of `Limits` that set the rate

    def text(self) -> str:
        return (
            f"The request was terminated because the entity is being throttled. Error code : {self.code}. "
            f"Please wait 4 seconds and try again. {lifting_hint(*self.limits)}"
        )


class ThrottledTooLong(ServerBusy):
    """A client has to pause longer for the throughput it has used than it is willing to wait."""

    def __init__(self, delay_s: float, max_delay_s: float) -> None:
        super().__init__(delay_s)
        self.max_delay_s = max_delay_s

    def text(self) -> str:
        return (
            f"The namespace is over its throughput units: publishing is delayed by {self.retry_after_s:.1f} s, "
            f"which is longer than the request may take ({self.max_delay_s:.1f} s). {lifting_hint(*self.limits)}"
        )


class ApplicationGroupThrottled(ServerBusy):
    """The client is over the rate of its application group; other clients are not affected."""

    def __init__(self, group: str, policy: str) -> None:
        super().__init__(4.0, code=50004)
        self.group = group
        self.policy = policy

    def text(self) -> str:
        return (
            f"The request was terminated because the application group '{self.group}' is throttled by its policy "
            f"'{self.policy}'. Error code : {self.code}. SubCode:50013. Please wait 4 seconds and try again."
        )


class InvalidBatch(Refusal):
    """A record batch violates the format; `record_index` is set if a single record does."""

    def __init__(self, why: str, record_index: int | None = None) -> None:
        super().__init__(why, record_index)
        self.why = why
        self.record_index = record_index

    def text(self) -> str:
        return f"The record batch is not valid: {self.why}."


class UndecodableMessage(Refusal):
    """A published message, or one inside a batch, cannot be decoded."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return f"The message cannot be decoded: {self.why}."


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
