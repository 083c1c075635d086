"""One request on its way to the cluster: its names are translated, its rights are checked, and it is answered later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hubmere.endpoints.kafka.context import Handler
from hubmere.endpoints.kafka.errors import code_of
from hubmere.endpoints.kafka.forward.names import map_names
from hubmere.endpoints.kafka.forward.port import Coordination, CoordinationFailed
from hubmere.endpoints.kafka.session import KafkaSession
from hubmere.model.entity import Rights
from hubmere.model.errors import Refusal
from hubmere.wire.kafka.connection import Request
from hubmere.wire.kafka.errors import ErrorCode

log = logging.getLogger("hubmere.kafka")

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
FORBIDDEN: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ForwardedRequest:
    """One request on its way to the cluster: how names of its namespace and of the cluster translate."""

    def __init__(self, session: KafkaSession, request: Request) -> None:
        assert session.context.coordination is not None
        self.session = session
        self.request = request
        self.body: Any = request.body
        self.version = request.version
        self.port: Coordination = session.context.coordination
        self.client = f"client-{id(session)}"
        self._namespace = session.caller.namespace_key
        self._hubs = {hub.uid: hub.name for hub in session.namespace.hubs()}
        if self.client not in session.forwarded:
            session.forwarded.add(self.client)
            self.port.begin_client(self.client, request.client_id or "")
            session.cleanups[partial(self.port.end_client, self.client)] = None

    def group(self, group_id: str) -> str:
        """The cluster's name of a group."""
        return self.port.group_of(self._namespace, group_id)

    def transaction(self, transactional_id: str) -> str:
        """The cluster's name of a transactional id."""
        return self.port.transaction_of(self._namespace, transactional_id)

    def local_transaction(self, name: str) -> str | None:
        """The client's name of a transactional id; None for one of another namespace."""
        return self.port.local_transaction_of(self._namespace, name)

    def topic(self, name: str, right: Rights = Rights.LISTEN) -> str:
        """The cluster's name of a hub that exists and may be read, or another right; raises a refusal otherwise."""
        caller, now_s = self.session.caller, self.session.now_s
        hub = caller.readable(name, now_s) if right is Rights.LISTEN else caller.hub(name, right, now_s)
        return self.port.topic_of(hub.uid)

    def subscribed_topic(self, name: str) -> str:
        """As `topic`, for subscriptions: a hub that does not exist keeps its name."""
        try:
            return self.topic(name)
        except Refusal:
            return name

    def local_topic(self, topic: str) -> str:
        """The hub of a topic of the cluster; a topic of another namespace keeps its name."""
        uid = self.port.uid_of(topic)
        return topic if uid is None else self._hubs.get(uid, topic)

    def local_group(self, group: str) -> str:
        """The client's name of a group."""
        return self.port.local_group_of(self._namespace, group) or group

    def is_foreign(self, topic: str) -> bool:
        """Whether a hub is not the caller's to read."""
        return not self.session.caller.covers(topic)

    def to_client(self, answer: Any) -> Any:
        """An answer with the client's names."""
        return map_names(answer, topic=self.local_topic, group=self.local_group, transaction=_same)

    def respond(self, body: object) -> None:
        """Answer the client."""
        self.session.respond(self.request, body)

    async def ask(self, group_id: str, body: Any) -> Any:
        """Ask a group's coordinator; the answer has the client's names."""
        renamed = map_names(body, topic=_same, group=self.group, transaction=self.transaction)
        answer = await self.port.ask_coordinator(self.client, self.group(group_id), renamed, self.version)
        return self.to_client(answer)

    async def ask_transaction(self, transactional_id: str, body: Any) -> Any:
        """Ask the coordinator of a transactional id; the answer has the client's names."""
        renamed = map_names(body, topic=_same, group=self.group, transaction=self.transaction)
        name = self.transaction(transactional_id)
        return self.to_client(await self.port.ask_transaction(self.client, name, renamed, self.version))


def _same(name: str) -> str:
    return name


Work = Callable[[ForwardedRequest], Awaitable[object]]


def forwarded_handler(
    work: Work, failed: Callable[[ForwardedRequest, ErrorCode], object], *, needs: Rights | None = Rights.LISTEN
) -> Handler:
    """A handler that answers later. `failed` makes the answer with an error code; `needs` is the right on any hub."""

    async def run(forwarded: ForwardedRequest) -> None:
        try:
            answer = await work(forwarded)
        except CoordinationFailed:
            answer = failed(forwarded, UNAVAILABLE)
        except Refusal as refusal:
            answer = failed(forwarded, code_of(refusal))
        except Exception:  # the top of a task; a request without an answer blocks all that follow on its connection
            log.exception("a forwarded request failed")
            answer = failed(forwarded, ErrorCode.UNKNOWN_SERVER_ERROR)
        forwarded.respond(answer)

    def handle(session: KafkaSession, request: Request) -> None:
        forwarded = ForwardedRequest(session, request)
        if needs is not None and not session.principal.rights.allows(needs):
            forwarded.respond(failed(forwarded, FORBIDDEN))
            return
        session.context.start_task(run(forwarded))

    return handle


async def split_topics(
    forwarded: ForwardedRequest,
    topics: Any,
    refuse: Callable[[Any, ErrorCode], object],
    *,
    right: Rights = Rights.LISTEN,
    unavailable: ErrorCode = UNAVAILABLE,
) -> tuple[list[Any], list[Any]]:
    """The topics to pass on, under their names of the cluster, and the answers for those that cannot be.

    Those to pass on exist on the cluster when this returns. A hub whose topic is damaged does not stop the others.
    """
    good, bad = name_topics(forwarded, topics, refuse, right=right)
    try:
        await forwarded.port.provide([topic.name for topic in good])
    except CoordinationFailed:
        found = await asyncio.gather(*(_is_provided(forwarded, topic.name) for topic in good))
        if not any(found):
            raise
        missing = [topic for topic, is_there in zip(good, found, strict=True) if not is_there]
        good = [topic for topic, is_there in zip(good, found, strict=True) if is_there]
        bad += [refuse(forwarded.to_client(topic), unavailable) for topic in missing]
    return good, bad


def name_topics(
    forwarded: ForwardedRequest,
    topics: Any,
    refuse: Callable[[Any, ErrorCode], object],
    *,
    right: Rights = Rights.LISTEN,
) -> tuple[list[Any], list[Any]]:
    """As `split_topics`, whether the topics exist on the cluster or not."""
    good, bad = [], []
    for topic in topics:
        try:
            good.append(replace(topic, name=forwarded.topic(topic.name, right)))
        except Refusal as refusal:
            bad.append(refuse(topic, code_of(refusal)))
    return good, bad


async def _is_provided(forwarded: ForwardedRequest, topic: str) -> bool:
    try:
        await forwarded.port.provide([topic])
    except CoordinationFailed:
        return False
    return True
