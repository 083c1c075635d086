"""The management node `$management`: answers questions about hubs and partitions.

Every request is authorized on its own, by the token that it carries or by a claim of the connection; two SDKs put no
token on the claims node before they ask (reference: AMQP 3). A request with a bad token is refused in any case: it is
where a client notices first that its user has changed the credential. Keys and types of the answers are those of the
service.
"""

from collections.abc import Callable, Mapping

from hubmere.broker import BearerToken, Caller, Credential, KeysPending, LogOpening, SharedAccessSignature, Waiting
from hubmere.endpoints.amqp.errors import row_of, with_tracking
from hubmere.endpoints.amqp.links.service_links import PendingAnswer, Reply, reply_to, text_property
from hubmere.model.clock import Clock
from hubmere.model.errors import NotSupported, Refusal, Unauthorized
from hubmere.wire.amqp import array_of
from hubmere.wire.amqp.codec.message import AmqpValue, Annotations, Message
from hubmere.wire.amqp.codec.types import Int, Long, Symbol, Timestamp

_OK = 200
# What the service reports for a partition that never had an event: 0001-01-01, which every SDK can represent.
_NEVER_MS = -62_135_596_800_000
# Where such a partition begins.
_NEVER_WRITTEN = -1
# Sequence numbers of a hub that was never restored or replicated have no epoch.
_NO_EPOCH = -1

_SAS_SCHEME = "SharedAccessSignature"
_HUB_TYPE = "com.microsoft:eventhub"
_PARTITION_TYPE = "com.microsoft:partition"


class ManagementNode:
    """Answers the management requests of one connection."""

    __slots__ = ("_caller", "_clock", "_on_authorized")

    def __init__(self, caller: Caller, clock: Clock, on_authorized: Callable[[], None]) -> None:
        self._caller = caller
        self._clock = clock
        self._on_authorized = on_authorized

    def answer(self, request: Message, reply: Reply) -> PendingAnswer | None:
        """Answer a request, with the requested information or with a refusal.

        The answer may have to wait for a log, or for the keys of the issuer of the request's token.
        """
        try:
            reply(self._answer(request))
        except LogOpening as opening:
            return self._answer_later(opening, request, reply)
        except KeysPending as pending:
            return pending.wait(lambda: self._answer_with_keys(request, reply))
        return None

    def _answer_with_keys(self, request: Message, reply: Reply) -> None:
        try:
            answer = self._answer(request)
        except (LogOpening, KeysPending) as refusal:
            answer = self._refusal(request, refusal)
        reply(answer)

    def _answer(self, request: Message) -> Message:
        """The answer; raises LogOpening or KeysPending if it has to wait."""
        try:
            body = self._read(request)
        except (LogOpening, KeysPending):
            raise
        except Refusal as refusal:
            return self._refusal(request, refusal)
        return reply_to(request, _status(_OK, "OK"), AmqpValue(body))

    def _answer_later(self, opening: LogOpening, request: Message, reply: Reply) -> Waiting | None:
        def on_done() -> None:
            try:
                answer = self._answer(request)
            except LogOpening as refusal:
                answer = self._refusal(request, refusal)
            reply(answer)

        try:
            return opening.wait(on_done, self._clock.monotonic())
        except LogOpening as refusal:
            reply(self._refusal(request, refusal))
            return None

    def _read(self, request: Message) -> Annotations:
        operation = text_property(request, "operation")
        kind = text_property(request, "type")
        read = _READERS.get((operation.upper(), kind.lower()))
        if read is None:
            raise NotSupported(f"The operation '{operation[:80]}' on '{kind[:80]}'")
        body = read(self, request, text_property(request, "name"))
        self._on_authorized()
        return body

    def _hub(self, request: Message, hub: str) -> Annotations:
        info = self._caller.hub_info(hub, _token_in(request), now=self._clock.monotonic(), now_s=self._now_s)
        return {
            "name": info.name,
            "type": _HUB_TYPE,
            "created_at": Timestamp(info.created_ms),
            "partition_count": Int(len(info.partition_ids)),
            # Two SDKs accept only an array here.
            "partition_ids": array_of(info.partition_ids, str),
            "georeplication_factor": Int(1),
            "runtime_info_retrieval_time_utc": Timestamp(self._clock.now_ms()),
        }

    def _partition(self, request: Message, hub: str) -> Annotations:
        partition = text_property(request, "partition")
        info = self._caller.partition_info(
            hub, partition, _token_in(request), now=self._clock.monotonic(), now_s=self._now_s
        )
        return {
            "name": info.hub,
            "type": _PARTITION_TYPE,
            "partition": partition,
            "begin_sequence_number_epoch": Int(_NO_EPOCH),
            "begin_sequence_number": Long(_NEVER_WRITTEN if info.last_sequence < 0 else info.begin_sequence),
            "last_enqueued_sequence_number_epoch": Int(_NO_EPOCH),
            "last_enqueued_sequence_number": Long(info.last_sequence),
            "last_enqueued_offset": str(info.last_offset),
            "last_enqueued_time_utc": Timestamp(_NEVER_MS if info.last_enqueued_ms < 0 else info.last_enqueued_ms),
            "is_partition_empty": info.is_empty,
            "runtime_info_retrieval_time_utc": Timestamp(self._clock.now_ms()),
        }

    @property
    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000

    def _refusal(self, request: Message, refusal: Refusal) -> Message:
        row = row_of(refusal)
        hub = (request.application_properties or {}).get("name")
        text = with_tracking(
            refusal.text(), self._caller.namespace.name, hub if isinstance(hub, str) else "", self._clock.now_ms()
        )
        status = 401 if isinstance(refusal, Unauthorized) else row.status
        condition = Symbol(row.condition.value)
        properties = _status(status, text) | {"error-condition": condition, "errorCondition": condition}
        return reply_to(request, properties, AmqpValue(None))


def _token_in(request: Message) -> Credential | None:
    """The token that a request carries, of either kind; it counts for this request alone. An empty one is none."""
    token = (request.application_properties or {}).get("security_token")
    if not isinstance(token, str) or not token:
        return None
    return SharedAccessSignature(token) if token.startswith(_SAS_SCHEME) else BearerToken(token)


_READERS: Mapping[tuple[str, str], Callable[[ManagementNode, Message, str], Annotations]] = {
    ("READ", _HUB_TYPE): ManagementNode._hub,
    ("READ", _PARTITION_TYPE): ManagementNode._partition,
}


def _status(code: int, description: str) -> Annotations:
    """Status in both spellings: each SDK looks for one of them first, and one mixes them (reference: AMQP 3.2)."""
    return {
        "status-code": Int(code),
        "statusCode": Int(code),
        "status-description": description,
        "statusDescription": description,
    }
