"""The primary's side of pairings with other nodes: starts a pairing and replicates changes to the partner.

One task per pairing sends the copies that the partner lacks (`broker/management/outbox.py`) to the partner's
`replica.py`:

1. After each change of entities it sends the missing copies at once.
2. After a failure it retries with a growing pause.
3. While nothing changes it sends one copy every few seconds, to learn whether the partner has failed over. If so, it
   releases the alias, which the partner serves from then on.

Requests are made in worker threads, one at a time per pairing. The HTTP client is loaded for the first of them.
"""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from hubmere.broker import Actor, Broker, Copy, HubCopy, Outbox, copies_of
from hubmere.endpoints.http.arm.serializer import (
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    PROVIDER,
    Json,
    hub_settings,
)
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.errors import PartnerUnreachable
from hubmere.model.clock import Clock
from hubmere.model.entity import AccessRule, GeoAlias, Namespace
from hubmere.model.errors import Conflict, NotFound, Refusal
from hubmere.model.names import AliasName, fold

if TYPE_CHECKING:
    from http.client import HTTPConnection

log = logging.getLogger("hubmere.partners")

# A partner answers in milliseconds; on a busy machine or over a slow line it may take seconds.
_ANSWER_TIMEOUT_S = 30.0
# Its system accepts a connection at once. A stopping node waits at most this long for a connection.
_CONNECT_TIMEOUT_S = 5.0
# How soon an idle primary notices that its partner has failed over, and the pauses after failures.
CHECK_SECONDS = 5.0
_MIN_PAUSE_S = 0.25
_MAX_PAUSE_S = 30.0
_ACTOR = "node"
_FIRST_ERROR = 400
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """A namespace on another node, with the address and the token of that node."""

    name: str
    url: str
    token: str = field(repr=False)
    ca_file: str | None = None


class _PartnerFailedOver(Exception):
    """The partner serves the alias now."""


class _PartnerConnection:
    """One keep-alive connection to a partner's node. Endpoints may not import `client`, which has one of its own.

    Thread rule: one request at a time, from any thread; `close` from any other. `close` never frees a socket that a
    request uses: it ends the wait of the request, which then closes the connection itself.
    """

    def __init__(self, partner: Partner) -> None:
        self._partner = partner
        self._connection: HTTPConnection | None = None
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._is_in_use = self._is_closed = False

    def request(self, method: str, alias: str, below: str, body: Json | None) -> None:
        """Send a request; raises the refusal."""
        from http.client import HTTPException

        group = f"/subscriptions/{DEFAULT_SUBSCRIPTION}/resourceGroups/{DEFAULT_RESOURCE_GROUP}/providers/{PROVIDER}"
        path = f"{group}/namespaces/{self._partner.name}/disasterRecoveryConfigs/{quote(alias)}/replica{below}"
        headers = {"Authorization": f"Bearer {self._partner.token}", "Content-Type": "application/json"}
        with self._use():
            try:
                connection = self._connection or self._open()
                connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
                response = connection.getresponse()
                content = response.read()
            except (OSError, HTTPException) as error:
                self._drop()
                why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                raise PartnerUnreachable(self._partner.name, why) from error
        if response.status == _GONE:
            raise _PartnerFailedOver
        if response.status >= _FIRST_ERROR:
            raise Conflict(f"The partner '{self._partner.name}' refuses: {_error_message(content)}")

    def close(self) -> None:
        """Close the connection for good. A request that waits for its response fails at once."""
        with self._lock:
            self._is_closed = True
            if not self._is_in_use:
                self._drop()
                return
            # The request may free both meanwhile.
            connection = self._connection
            used = None if connection is None else connection.sock
            if used is not None:
                with contextlib.suppress(OSError):
                    # The method of plain sockets: that of TLS sockets takes the session from the thread that uses it.
                    socket.socket.shutdown(used, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """Keep `close` from freeing the connection; what it has closed meanwhile is freed at the end."""
        with self._lock:
            self._is_in_use = True
        try:
            yield
        finally:
            with self._lock:
                self._is_in_use = False
                if self._is_closed:
                    self._drop()

    def _drop(self) -> None:
        """Free the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> "HTTPConnection":
        """Connect to the partner. From the TLS handshake on, `close` ends a wait."""
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self._partner.url)
        host, port = parts.hostname or "", parts.port
        context = None if parts.scheme == "http" else ssl.create_default_context(cafile=self._partner.ca_file)
        if context is None:
            connection = HTTPConnection(host, port, timeout=_ANSWER_TIMEOUT_S)
        else:
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            connection = HTTPSConnection(host, port, timeout=_ANSWER_TIMEOUT_S, context=context)
        connected = socket.create_connection((connection.host, connection.port), _CONNECT_TIMEOUT_S)
        connected.settimeout(_ANSWER_TIMEOUT_S)
        if context is not None:
            connected = context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
        connection.sock = connected
        with self._lock:
            self._connection = connection
            if self._is_closed:
                raise ConnectionAbortedError("the connection was closed by this node")
        if isinstance(connected, ssl.SSLSocket):
            connected.do_handshake()
        return connection


def _error_message(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "no reason given"


class Partners:
    """The partners of a node and the pairings with them.

    Thread rule: the node's loop only.
    """

    def __init__(self, broker: Broker, clock: Clock, partners: Iterable[Partner]) -> None:
        self._broker = broker
        self._clock = clock
        self._partners = {fold(partner.name): partner for partner in partners}
        # One event per replicated pairing, and one for the task that starts them: set after every change of entities.
        self._change_events: dict[str, asyncio.Event] = {}
        self._any_change = asyncio.Event()
        broker.manager.watch(self._wake)

    def _wake(self) -> None:
        self._any_change.set()
        for event in self._change_events.values():
            event.set()

    def has_partner(self, name: str) -> bool:
        """Whether a partner has this name."""
        return fold(name) in self._partners

    async def pair(self, primary: Namespace, alias: AliasName, partner: str, alternate_name: str, actor: Actor) -> None:
        """Pair a namespace with one on another node; nothing changes here if the partner refuses."""
        configured = self._partners[fold(partner)]
        pairing = uuid.uuid4().hex
        await self._request_once(configured, "PUT", alias, "", {"primaryNamespace": primary.name, "pairing": pairing})
        manager = self._broker.manager
        try:
            await await_change(
                lambda on_done: manager.pair_away(
                    primary.name, alias, configured.name, alternate_name, pairing, actor, on_done
                )
            )
        except Refusal:
            await self._release(configured, alias, pairing)
            raise

    async def break_pairing(self, alias: GeoAlias, actor: Actor) -> None:
        """End a pairing: the alias stays on this node, and the partner is informed if it can be reached."""
        manager = self._broker.manager
        await await_change(lambda on_done: manager.break_pairing(alias.namespace, alias.name, actor, on_done))
        self._broker.outboxes.forget(alias.pairing)
        partner = self._partners.get(fold(alias.partner_namespace))
        if partner is not None:
            await self._release(partner, alias.name, alias.pairing)

    async def _release(self, partner: Partner, alias: str, pairing: str) -> None:
        try:
            await self._request_once(partner, "DELETE", alias, f"/{pairing}", None)
        except Refusal as refusal:
            log.warning("could not inform %s that the pairing '%s' has ended: %s", partner.name, alias, refusal.text())

    async def _request_once(self, partner: Partner, method: str, alias: str, below: str, body: Json | None) -> None:
        with contextlib.closing(_PartnerConnection(partner)) as connection:
            try:
                await asyncio.to_thread(connection.request, method, alias, below, body)
            except _PartnerFailedOver:
                raise Conflict(f"The partner '{partner.name}' has failed over and serves '{alias}'.") from None

    # --- while the node runs ---

    async def run(self) -> None:
        """Replicate every pairing until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._any_change.clear()
                for alias in self._broker.entities.all_aliases():
                    if alias.is_replicating_away and alias.pairing not in self._change_events:
                        self._change_events[alias.pairing] = asyncio.Event()
                        group.create_task(self._replicate(alias))
                await self._any_change.wait()

    async def _replicate(self, alias: GeoAlias) -> None:
        outbox = self._broker.outboxes.of(alias)
        partner = self._partners.get(fold(alias.partner_namespace))
        if partner is None:
            outbox.on_failed(f"no partner '{alias.partner_namespace}' is configured")
            log.error("the alias '%s' is not replicated: %s", alias.name, outbox.problem)
            return
        with contextlib.closing(_PartnerConnection(partner)) as connection:
            try:
                await self._send_changes(alias, outbox, connection)
            except _PartnerFailedOver:
                log.warning("'%s' has failed over: releasing the alias '%s'", alias.partner_namespace, alias.name)
                await self._release_alias(alias)
        self._broker.outboxes.forget(alias.pairing)
        self._change_events.pop(alias.pairing, None)

    async def _send_changes(self, alias: GeoAlias, outbox: Outbox, connection: _PartnerConnection) -> None:
        changed = self._change_events[alias.pairing]
        pause_s = _MIN_PAUSE_S
        while (copies := self._copies(alias)) is not None:
            changed.clear()
            # If nothing is missing, the first copy is sent again to learn whether the partner is still a secondary.
            try:
                for copy in outbox.pending(copies) or copies[:1]:
                    await asyncio.to_thread(connection.request, "PUT", alias.name, *_to_request(alias, copy))
                    outbox.confirm(copy)
            except (PartnerUnreachable, Conflict) as refusal:
                outbox.on_failed(refusal.text())
                log.warning(
                    "replication of the alias '%s' is retried in %.1f s: %s", alias.name, pause_s, refusal.text()
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                continue
            pause_s = _MIN_PAUSE_S
            outbox.on_synchronized()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await changed.wait()

    def _copies(self, alias: GeoAlias) -> list[Copy] | None:
        """All copies that the partner should have; None if the pairing has ended."""
        entities = self._broker.entities
        current = next((one for one in entities.aliases(alias.namespace) if one.pairing == alias.pairing), None)
        namespace = entities.find_namespace(alias.namespace)
        if current is None or namespace is None or not current.is_replicating_away:
            return None
        return copies_of(entities, namespace)

    async def _release_alias(self, alias: GeoAlias) -> None:
        actor = Actor(name=_ACTOR, now_ms=self._clock.now_ms(), now=self._clock.monotonic())
        manager = self._broker.manager
        with contextlib.suppress(NotFound):
            await await_change(
                lambda on_done: manager.give_up_alias(alias.namespace, alias.name, alias.pairing, actor, on_done)
            )


def _to_request(alias: GeoAlias, copy: Copy) -> tuple[str, Json]:
    """The path below the alias and the body of a copy, as `replica.py` expects them."""
    rules = [_rule(rule) for rule in copy.rules]
    if not isinstance(copy, HubCopy):
        return f"/{alias.pairing}", {"rules": rules, "hubs": list(copy.hubs)}
    groups = [{"name": group.name, "userMetadata": group.user_metadata} for group in copy.groups]
    body: Json = {"properties": hub_settings(copy.hub), "groups": groups, "rules": rules}
    return f"/{alias.pairing}/eventhubs/{quote(copy.hub.name, safe='')}", body


def _rule(rule: AccessRule) -> Json:
    return {
        "name": rule.name,
        "rights": list(rule.rights.names),
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
    }
