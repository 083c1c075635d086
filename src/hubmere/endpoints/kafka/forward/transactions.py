"""Handlers that pass transactions on to the cluster: producer ids, partitions and offsets of a transaction, its end.

A producer id needs the right to send. A transaction may write to hubs with that right, and commit offsets of groups
with the right to listen. Transactional ids belong to a namespace.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.forward.forwarded import (
    FORBIDDEN,
    UNAVAILABLE,
    ForwardedRequest,
    forwarded_handler,
    split_topics,
)
from hubmere.model.entity import Rights
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
    ListTransactionsResponse,
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResponse,
)

_NOT_YOURS: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _code(code: ErrorCode) -> ErrorCode:
    """The code of a credential without the right to send."""
    return _NOT_YOURS if code == FORBIDDEN else code


# --- producer ids ----------------------------------------------------------------------------------------------------


async def _producer_id(forwarded: ForwardedRequest) -> object:
    body: InitProducerIdRequest = forwarded.body
    if not forwarded.session.principal.rights.allows(Rights.SEND):
        is_plain = body.transactional_id is None
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_plain else _NOT_YOURS)
    if body.transactional_id == "":
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    if body.transactional_id is not None:
        return await forwarded.ask_transaction(body.transactional_id, body)
    number, epoch = await forwarded.port.new_producer_id()
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=number, producer_epoch=epoch)


# --- what belongs to a transaction -----------------------------------------------------------------------------------


def _refused_partitions(topic: Any, code: ErrorCode) -> AddPartitionsToTxnTopicResult:
    parts = tuple(AddPartitionsToTxnPartitionResult(index=index, error_code=code) for index in topic.partitions)
    return AddPartitionsToTxnTopicResult(name=topic.name, partitions=parts)


async def _add_partitions(forwarded: ForwardedRequest) -> object:
    body: AddPartitionsToTxnRequest = forwarded.body
    good, bad = await split_topics(forwarded, body.topics, _refused_partitions, right=Rights.SEND)
    if bad:
        # All of them, or none.
        skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
        named = (replace(topic, name=forwarded.local_topic(topic.name)) for topic in good)
        return AddPartitionsToTxnResponse(topics=(*(_refused_partitions(topic, skipped) for topic in named), *bad))
    return await forwarded.ask_transaction(body.transactional_id, replace(body, topics=tuple(good)))


def _failed_partitions(forwarded: ForwardedRequest, code: ErrorCode) -> object:
    topics = (_refused_partitions(topic, _code(code)) for topic in forwarded.body.topics)
    return AddPartitionsToTxnResponse(topics=tuple(topics))


async def _add_offsets(forwarded: ForwardedRequest) -> object:
    body: AddOffsetsToTxnRequest = forwarded.body
    if not forwarded.session.principal.rights.allows(Rights.LISTEN):
        return AddOffsetsToTxnResponse(error_code=FORBIDDEN)
    return await forwarded.ask_transaction(body.transactional_id, body)


async def _end(forwarded: ForwardedRequest) -> object:
    body: EndTxnRequest = forwarded.body
    return await forwarded.ask_transaction(body.transactional_id, body)


def _refused_offsets(topic: Any, code: ErrorCode) -> TxnOffsetCommitTopicResponse:
    parts = tuple(TxnOffsetCommitPartitionResponse(index=part.index, error_code=code) for part in topic.partitions)
    return TxnOffsetCommitTopicResponse(name=topic.name, partitions=parts)


async def _commit_offsets(forwarded: ForwardedRequest) -> object:
    body: TxnOffsetCommitRequest = forwarded.body
    good, bad = await split_topics(forwarded, body.topics, _refused_offsets)
    answer: TxnOffsetCommitResponse = await forwarded.ask(body.group_id, replace(body, topics=tuple(good)))
    return replace(answer, topics=(*answer.topics, *bad))


def _failed_offsets(forwarded: ForwardedRequest, code: ErrorCode) -> object:
    return TxnOffsetCommitResponse(topics=tuple(_refused_offsets(topic, code) for topic in forwarded.body.topics))


# --- looking at transactions -----------------------------------------------------------------------------------------


async def _describe(forwarded: ForwardedRequest) -> object:
    body: DescribeTransactionsRequest = forwarded.body
    found: list[DescribedTransaction] = []
    for transactional_id in dict.fromkeys(body.transactional_ids):
        name = forwarded.transaction(transactional_id)
        asked = replace(body, transactional_ids=(name,))
        answer = await forwarded.port.ask_transaction(forwarded.client, name, asked, forwarded.version)
        found += [
            replace(forwarded.to_client(each), transactional_id=transactional_id) for each in answer.transaction_states
        ]
    return DescribeTransactionsResponse(transaction_states=tuple(found))


def _not_described(forwarded: ForwardedRequest, code: ErrorCode) -> object:
    states = (
        DescribedTransaction(
            error_code=_code(code),
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=-1,
            producer_id=-1,
            producer_epoch=-1,
            topics=(),
        )
        for transactional_id in forwarded.body.transactional_ids
    )
    return DescribeTransactionsResponse(transaction_states=tuple(states))


async def _list(forwarded: ForwardedRequest) -> object:
    answers = await forwarded.port.ask_all(forwarded.body, forwarded.version)
    found = []
    for listed in (listed for answer in answers for listed in answer.transaction_states):
        name = forwarded.local_transaction(listed.transactional_id)
        if name is not None:
            found.append(replace(listed, transactional_id=name))
    return replace(answers[0], transaction_states=tuple(found))


HANDLERS: Final[Mapping[int, Handler]] = {
    INIT_PRODUCER_ID.key: forwarded_handler(
        _producer_id, lambda _, code: InitProducerIdResponse(error_code=code), needs=None
    ),
    ADD_PARTITIONS_TO_TXN.key: forwarded_handler(_add_partitions, _failed_partitions, needs=Rights.SEND),
    ADD_OFFSETS_TO_TXN.key: forwarded_handler(
        _add_offsets, lambda _, code: AddOffsetsToTxnResponse(error_code=_code(code)), needs=Rights.SEND
    ),
    END_TXN.key: forwarded_handler(_end, lambda _, code: EndTxnResponse(error_code=_code(code)), needs=Rights.SEND),
    TXN_OFFSET_COMMIT.key: forwarded_handler(_commit_offsets, _failed_offsets),
    DESCRIBE_TRANSACTIONS.key: forwarded_handler(_describe, _not_described, needs=Rights.SEND),
    LIST_TRANSACTIONS.key: forwarded_handler(
        _list,
        lambda _, code: ListTransactionsResponse(
            error_code=code if code == UNAVAILABLE else ErrorCode.NONE, unknown_state_filters=(), transaction_states=()
        ),
        needs=Rights.SEND,
    ),
}
