"""Publishes an event for a signed-in person, with the rights and quotas of the credential."""

import asyncio

from hubmere.broker import Publisher
from hubmere.model.receipt import Receipt
from hubmere.portal.events.search import FoundEvent
from hubmere.portal.sign_in.portal_session import PageContext, PortalSession
from hubmere.translate import HttpEvent, Publication, publication_from_http, publication_from_view


async def publish(context: PageContext, hub: str, event: HttpEvent, partition: str | None = None) -> Receipt:
    """Publish an event and wait until it is durable; needs the Send right."""
    publisher = context.caller.open_publisher(hub, context.session.now_s, partition=partition)
    publication = publication_from_http([event], resolve_key=publisher.resolve_key)
    return await _publish(context.session, publisher, publication)


async def publish_again(
    context: PageContext, hub: str, original: FoundEvent, changed: HttpEvent | None = None, *, keep_partition: bool
) -> Receipt:
    """Publish an event of a hub again: as it is, or `changed`. Needs the Send right.

    With `keep_partition` it gets the partition of the original, although it may have a key: a Kafka producer may have
    chosen the partition by another rule than the node, and all events of a key belong together.
    """
    session = context.session
    publisher = context.caller.open_publisher(hub, session.now_s)
    if changed is None:
        publication = publication_from_view(original.event, session.clock.now_ms())
    else:
        publication = publication_from_http([changed], resolve_key=publisher.resolve_key)
    return await _publish(session, publisher, publication, original.partition if keep_partition else None)


async def _publish(
    session: PortalSession, publisher: Publisher, publication: Publication, partition: int | None = None
) -> Receipt:
    waiting: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def on_settled(receipt: Receipt) -> None:
        # Nobody waits any more if the person has closed the page.
        if waiting.done():
            return
        if receipt.error is None:
            waiting.set_result(receipt)
        else:
            waiting.set_exception(receipt.error)

    publisher.publish(
        publication.batch,
        count=publication.count,
        size_bytes=publication.size_bytes,
        key=publication.partition_key,
        partition=partition,
        now=session.clock.monotonic(),
        now_ms=session.clock.now_ms(),
        callback=on_settled,
    )
    return await waiting
