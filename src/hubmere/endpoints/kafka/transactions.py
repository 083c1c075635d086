"""Handlers for producer ids and transactions: requests become calls of the coordinator (reference: kafka 2.12, 2.13).

A producer id needs the right to send. A transaction may write to hubs with that right, and commit offsets of groups
with the right to listen. Clients before 2.7 know another error code for a fenced producer.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import repeat
from typing import Final

from hubmere.broker import Commit, PartitionView, PendingOffset, Phase, Transaction, refusals
from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.groups.access import require_group
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.endpoints.kafka.slices import Steps, WaitingSteps, in_slices, until_open
from hubmere.model.entity import Rights
from hubmere.model.errors import ClaimMissing, Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionTopic,
    TxnOffsetCommitPartition,
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResponse,
)

# The versions since which clients know PRODUCER_FENCED (KIP-588); TxnOffsetCommit never returns it.
_FENCED_SINCE: Final[Mapping[int, int]] = {
    INIT_PRODUCER_ID.key: 4,
    ADD_PARTITIONS_TO_TXN.key: 2,
    ADD_OFFSETS_TO_TXN.key: 2,
    END_TXN.key: 2,
}
_NEVER: Final = 1 << 15

Codes = list[tuple[str, list[tuple[int, ErrorCode]]]]


def _code(request: Request, refusal: Refusal) -> ErrorCode:
    is_fenced = isinstance(refusal, refusals.TransactionalProducerFenced)
    if is_fenced and request.version < _FENCED_SINCE.get(request.api.key, _NEVER):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(refusal, refusals.StaleMemberEpoch):
        # As in Kafka: producers do not know member epochs.
        return ErrorCode.ILLEGAL_GENERATION
    return code_of(refusal)


# --- InitProducerId --------------------------------------------------------------------------------------------------


def init_producer_id(session: KafkaSession, request: Request) -> None:
    """A new producer id, or the id and the next epoch of a transactional id."""
    body: InitProducerIdRequest = request.body
    has_id, has_epoch = body.producer_id >= 0, body.producer_epoch >= 0

    def reply(answer: tuple[int, int] | Refusal) -> None:
        if isinstance(answer, Refusal):
            session.respond(request, InitProducerIdResponse(error_code=_code(request, answer)))
        else:
            number, epoch = answer
            session.respond(
                request, InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=number, producer_epoch=epoch)
            )

    if has_id is not has_epoch or body.transactional_id == "":
        session.respond(request, InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST))
    elif not session.principal.rights.allows(Rights.SEND):
        is_plain = body.transactional_id is None
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_plain else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        session.respond(request, InitProducerIdResponse(error_code=code))
    elif body.transactional_id is None:
        # A producer that asks again after an error gets a new id too: its old sequence numbers stay with the old id.
        take = session.context.broker.coordinators.producer_ids.take
        take(lambda number, refusal: reply((number, 0) if refusal is None else refusal))
    else:
        expected = (body.producer_id, body.producer_epoch) if has_id else None
        try:
            session.coordinator.transactions.initialise(
                body.transactional_id, body.transaction_timeout_ms, expected, session.now, session.now_ms, reply
            )
        except Refusal as refusal:
            reply(refusal)
        session.context.watch_deadlines()


# --- partitions and offsets of a transaction -------------------------------------------------------------------------


@in_slices
def add_partitions_to_txn(session: KafkaSession, request: Request) -> WaitingSteps:
    """Add partitions to a transaction: all of them, or none with an error for each.

    Waits for logs that are being opened: a transaction that the partition still has open must end first.
    """
    body: AddPartitionsToTxnRequest = request.body
    partitions: list[tuple[str, int]] = []
    views: list[PartitionView] = []
    codes: Codes = []
    for topic in body.topics:
        parts: list[tuple[int, ErrorCode]] = []
        for index in topic.partitions:
            parts.append((index, _enlist(session, topic.name, index, partitions, views)))
            yield None
        codes.append((topic.name, parts))

    def on_done(refusal: Refusal | None) -> None:
        failed = ErrorCode.NONE if refusal is None else _code(request, refusal)
        session.respond(request, _add_response(codes, failed))

    if any(code for _, parts in codes for _, code in parts):
        session.respond(request, _add_response(codes, ErrorCode.OPERATION_NOT_ATTEMPTED))
        return
    for view in views:
        with suppress(Refusal):
            yield from until_open(view)
    producer = (body.producer_id, body.producer_epoch)
    try:
        session.coordinator.transactions.add_partitions(
            body.transactional_id, producer, partitions, session.now, session.now_ms, on_done
        )
    except Refusal as refusal:
        on_done(refusal)
    session.context.watch_deadlines()


def _enlist(
    session: KafkaSession, topic: str, index: int, partitions: list[tuple[str, int]], views: list[PartitionView]
) -> ErrorCode:
    try:
        hub = session.caller.hub(topic, Rights.SEND, session.now_s)
        views.append(hub.require_partition(index))
    except Refusal as refusal:
        return code_of(refusal)
    partitions.append((hub.uid, index))
    hub.open_ahead(index)
    return ErrorCode.NONE


def _add_response(codes: Codes, failed: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        topics=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic,
                partitions=tuple(
                    AddPartitionsToTxnPartitionResult(index=index, error_code=code or failed) for index, code in parts
                ),
            )
            for topic, parts in codes
        )
    )


def add_offsets_to_txn(session: KafkaSession, request: Request) -> None:
    """Add a group whose offsets are committed with the transaction."""
    body: AddOffsetsToTxnRequest = request.body

    def on_done(refusal: Refusal | None) -> None:
        code = ErrorCode.NONE if refusal is None else _code(request, refusal)
        session.respond(request, AddOffsetsToTxnResponse(error_code=code))

    producer = (body.producer_id, body.producer_epoch)
    try:
        require_group(session, body.group_id)
        session.coordinator.transactions.add_group(
            body.transactional_id, producer, body.group_id, session.now, session.now_ms, on_done
        )
    except Refusal as refusal:
        on_done(refusal)
    session.context.watch_deadlines()


@in_slices
def txn_offset_commit(session: KafkaSession, request: Request) -> Steps:
    """Offsets that become visible with the transaction; a member id must be of a current member (KIP-447)."""
    body: TxnOffsetCommitRequest = request.body
    pending: list[PendingOffset] = []
    codes: Codes = []
    for topic in body.topics:
        parts: list[tuple[int, ErrorCode]] = []
        for part in topic.partitions:
            parts.append((part.index, _check_offset(session, body, topic.name, part, pending)))
            yield
        codes.append((topic.name, parts))

    def on_done(refusal: Refusal | None) -> None:
        failed = ErrorCode.NONE if refusal is None else _code(request, refusal)
        session.respond(request, _offset_response(codes, failed))

    producer = (body.producer_id, body.producer_epoch)
    try:
        require_group(session, body.group_id)
        if body.generation_id >= 0 or body.member_id:
            session.coordinator.groups.require_commit(
                body.group_id, body.member_id, body.group_instance_id, body.generation_id, session.now
            )
        session.coordinator.transactions.commit_offsets(
            body.transactional_id, producer, body.group_id, pending, session.now, session.now_ms, on_done
        )
    except Refusal as refusal:
        on_done(refusal)


def _check_offset(
    session: KafkaSession,
    body: TxnOffsetCommitRequest,
    topic: str,
    part: TxnOffsetCommitPartition,
    pending: list[PendingOffset],
) -> ErrorCode:
    metadata = part.committed_metadata or ""
    try:
        hub = session.caller.readable(topic, session.now_s).entity
        commit = Commit(hub, part.index, part.committed_offset, part.committed_leader_epoch, metadata)
        session.coordinator.offsets.check(body.group_id, commit)
    except Refusal as refusal:
        return code_of(refusal)
    pending.append(
        PendingOffset(body.group_id, hub.uid, part.index, part.committed_offset, part.committed_leader_epoch, metadata)
    )
    return ErrorCode.NONE


def _offset_response(codes: Codes, failed: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitTopicResponse(
                name=topic,
                partitions=tuple(
                    TxnOffsetCommitPartitionResponse(index=index, error_code=code or failed) for index, code in parts
                ),
            )
            for topic, parts in codes
        )
    )


# --- EndTxn ----------------------------------------------------------------------------------------------------------


def end_txn(session: KafkaSession, request: Request) -> None:
    """Commit or abort; answered when every partition has its marker."""
    body: EndTxnRequest = request.body

    def on_done(refusal: Refusal | None) -> None:
        code = ErrorCode.NONE if refusal is None else _code(request, refusal)
        session.respond(request, EndTxnResponse(error_code=code))
        session.context.watch_deadlines()

    producer = (body.producer_id, body.producer_epoch)
    try:
        session.coordinator.transactions.end(
            body.transactional_id, producer, session.now, session.now_ms, on_done, commit=body.committed
        )
    except Refusal as refusal:
        on_done(refusal)


# --- describing transactions -----------------------------------------------------------------------------------------


@in_slices
def describe_transactions(session: KafkaSession, request: Request) -> Steps:
    """Transactional ids with their open transactions; one that is named twice is described once."""
    body: DescribeTransactionsRequest = request.body
    described: list[DescribedTransaction] = []
    for transactional_id in dict.fromkeys(body.transactional_ids):
        described.append(_describe(session, transactional_id))
        yield from repeat(None, sum(len(topic.partitions) for topic in described[-1].topics) + 1)
    session.respond(request, DescribeTransactionsResponse(transaction_states=tuple(described)))


def _describe(session: KafkaSession, transactional_id: str) -> DescribedTransaction:
    transaction = session.coordinator.transactions.find(transactional_id)
    refusal: Refusal | None = refusals.TransactionalIdUnknown(transactional_id) if transaction is None else None
    if not session.principal.rights.allows(Rights.SEND):
        refusal = ClaimMissing("Send", transactional_id)
    if refusal is not None or transaction is None:
        transaction = Transaction(transactional_id=transactional_id, producer_id=-1, epoch=-1, timeout_ms=0)
    return DescribedTransaction(
        error_code=ErrorCode.NONE if refusal is None else code_of(refusal),
        transactional_id=transactional_id,
        transaction_state="" if refusal is not None else transaction.phase,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=_topics(session, transaction),
    )


def _topics(session: KafkaSession, transaction: Transaction) -> tuple[TransactionTopic, ...]:
    names = {hub.uid: hub.name for hub in session.namespace.hubs()}
    found: dict[str, list[int]] = {}
    for uid, partition in sorted(transaction.partitions):
        if uid in names:
            found.setdefault(names[uid], []).append(partition)
    return tuple(TransactionTopic(name=name, partitions=tuple(parts)) for name, parts in found.items())


@in_slices
def list_transactions(session: KafkaSession, request: Request) -> Steps:
    """Transactional ids by state, producer id and age of their transaction."""
    body: ListTransactionsRequest = request.body
    phases = {phase.value for phase in Phase}
    unknown = tuple(state for state in body.state_filters if state not in phases)
    may = session.principal.rights.allows(Rights.SEND)
    listed: list[ListedTransaction] = []
    for transaction in session.coordinator.transactions.list() if may else ():
        if _matches(body, transaction, session.now_ms):
            transactional_id, producer_id, phase = (
                transaction.transactional_id,
                transaction.producer_id,
                transaction.phase,
            )
            listed.append(
                ListedTransaction(transactional_id=transactional_id, producer_id=producer_id, transaction_state=phase)
            )
        yield
    answer = ListTransactionsResponse(
        error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=tuple(listed)
    )
    session.respond(request, answer)


def _matches(body: ListTransactionsRequest, transaction: Transaction, now_ms: int) -> bool:
    is_old = body.duration_filter_ms < 0 or 0 <= transaction.started_ms < now_ms - body.duration_filter_ms
    is_state = not body.state_filters or transaction.phase.value in body.state_filters
    return is_old and is_state and (not body.producer_id_filters or transaction.producer_id in body.producer_id_filters)


HANDLERS: Final[Mapping[int, Handler]] = {
    INIT_PRODUCER_ID.key: init_producer_id,
    ADD_PARTITIONS_TO_TXN.key: add_partitions_to_txn,
    ADD_OFFSETS_TO_TXN.key: add_offsets_to_txn,
    END_TXN.key: end_txn,
    TXN_OFFSET_COMMIT.key: txn_offset_commit,
    DESCRIBE_TRANSACTIONS.key: describe_transactions,
    LIST_TRANSACTIONS.key: list_transactions,
}
