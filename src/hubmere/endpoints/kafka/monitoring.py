"""Snapshot of a Kafka connection for monitoring: the client, and the topics and partitions that it uses."""

from collections.abc import Iterator
from itertools import islice

from hubmere.broker import MAX_LINK_VIEWS, Caller, ConnectionView, LinkRole, LinkView, display_text
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.wire.kafka.messages.fetch import FetchPartition


def connection_view(session: KafkaSession, number: int, opened_ms: int) -> ConnectionView:
    """The connection as it is now."""
    caller = session.caller if session.is_signed_in else None
    return ConnectionView(
        number=number,
        protocol="Kafka",
        client=display_text(session.client_id),
        software=display_text(session.software),
        rule="" if caller is None else caller.principal.rule,
        peer=session.wire.peer,
        namespace="" if caller is None else caller.namespace_key,
        is_secure=session.is_secure,
        opened_ms=opened_ms,
        idle_s=session.idle_s,
        links=() if caller is None else tuple(islice(_links(session, caller), MAX_LINK_VIEWS)),
    )


def _links(session: KafkaSession, caller: Caller) -> Iterator[LinkView]:
    """The topics that the client has published to, and the partitions of its last fetch."""
    for topic in caller.published_hubs:
        yield LinkView(role=LinkRole.PUBLISHES, address=topic, hub=topic)
    for fetched in session.fetched_partitions:
        yield _read_link(caller, fetched.topic, fetched.partition)


def _read_link(caller: Caller, topic: str, partition: FetchPartition) -> LinkView:
    hub = caller.find_readable(topic)
    index, offset = partition.index, partition.fetch_offset
    lag = hub.lag(index, offset) if hub is not None and 0 <= index < hub.partition_count else None
    return LinkView(
        role=LinkRole.READS, address=f"{topic}/{index}", hub=topic, partition=index, position=offset, lag=lag
    )
