"""Publishes an event for a signed-in person, with the rights and quotas of the credential."""

import asyncio

from hubmere.model.receipt import Receipt
from hubmere.portal.sign_in.portal_session import PageContext
from hubmere.translate import HttpEvent, publication_from_http


async def publish(context: PageContext, hub: str, event: HttpEvent, partition: str | None = None) -> Receipt:
    """Publish an event and wait until it is durable; needs the Send right."""
    session = context.session
    publisher = context.caller.open_publisher(hub, session.now_s, partition=partition)
    publication = publication_from_http([event], resolve_key=publisher.resolve_key)
    waiting: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def on_settled(receipt: Receipt) -> None:
        if receipt.error is None:
            waiting.set_result(receipt)
        else:
            waiting.set_exception(receipt.error)

    publisher.publish(
        publication.batch,
        count=publication.count,
        size_bytes=publication.size_bytes,
        key=publication.partition_key,
        now=session.clock.monotonic(),
        now_ms=session.clock.now_ms(),
        callback=on_settled,
    )
    return await waiting
