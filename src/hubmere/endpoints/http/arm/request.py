"""One ARM request: its authorized caller, the entities that its path names, and the responses that handlers share."""

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.responses import Response

from hubmere.broker import Actor, Manager, OnDone, copies_of
from hubmere.endpoints.http.arm.capture_models import partition_json, status_json
from hubmere.endpoints.http.arm.serializer import ArmSerializer, Json
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.entity import AccessRule, ApplicationGroup, Hub, Namespace
from hubmere.model.errors import InvalidName, NamespaceNotFound, NotFound
from hubmere.model.security.roles import Control

T = TypeVar("T")


class ArmRequest:
    """A request below a namespace, of a caller that may manage it.

    `control` is what the role of an identity must allow, by default what the method needs. Queries for entities that
    the path names raise NotFound when they do not exist. `entities` are durable; `planned` ones include changes that
    are being written.
    """

    def __init__(self, request: Request, control: Control | None = None) -> None:
        broker = request.context.broker
        self._request = request
        self.caller = request.sign_in_manager(request.names["namespace"], control)
        self.namespace: Namespace = self.caller.namespace.entity
        self.serializer = serializer_of(request)
        self.manager: Manager = broker.manager
        self.outboxes = broker.outboxes
        self.entities = broker.entities
        self.planned = broker.planned_entities

    @classmethod
    def of_existing(cls, request: Request) -> "ArmRequest | None":
        """The request; None if the namespace does not exist and the caller may know that."""
        try:
            return cls(request)
        except NamespaceNotFound:
            return None

    @property
    def actor(self) -> Actor:
        """The caller as the author of a change, now."""
        return self._request.actor(self.caller)

    @property
    def hub(self) -> Hub:
        """The hub that the path names."""
        return self.entities.hub(self.namespace.name, self._request.names["hub"])

    @property
    def hub_name(self) -> str | None:
        """The name of the hub that the path names, None for paths of the namespace."""
        return self.hub.name if "hub" in self._request.names else None

    @property
    def alias(self) -> str | None:
        """The alias that the path names, which must exist."""
        if "alias" not in self._request.names:
            return None
        return self.entities.alias(self.namespace.name, self._request.names["alias"]).name

    @property
    def connection_alias(self) -> str | None:
        """The alias for connection strings: that of the path, else the namespace's own."""
        aliases = self.entities.aliases(self.namespace.name)
        return self.alias or next((alias.name for alias in aliases), None)

    @property
    def rule_scope(self) -> Namespace | Hub:
        """Where the rules of the path lie: on the hub, else on the namespace (a pairing shows those)."""
        if "alias" in self._request.names:
            self.entities.alias(self.namespace.name, self._request.names["alias"])
        return self.hub if "hub" in self._request.names else self.namespace

    @property
    def rule(self) -> AccessRule:
        """The rule that the path names."""
        return self.entities.rule(self.rule_scope, self._request.names["rule"])

    @property
    def application_group(self) -> ApplicationGroup:
        """The application group that the path names."""
        name = self._request.names["group"]
        group = self.entities.find_application_group(self.namespace.name, name)
        if group is None:
            raise NotFound(f"sb://{self.namespace.name}/applicationGroups/{name}")
        return group


def alias_json(arm: ArmRequest, name: str) -> Json:
    """A pairing as seen from the namespace of the request."""
    entities = arm.entities
    alias = entities.alias(arm.namespace.name, name)
    if not alias.is_replicating_away:
        partner = entities.find_namespace(alias.partner_namespace) if not alias.pairing else None
        state = alias.provisioning_state
        return arm.serializer.alias(arm.namespace, alias, partner=partner, state=state, pending=0, problem="")
    outbox = arm.outboxes.of(alias)
    pending = len(outbox.pending(copies_of(entities, arm.namespace)))
    return arm.serializer.alias(
        arm.namespace, alias, partner=None, state=outbox.progress, pending=pending, problem=outbox.problem
    )


def capture_json(request: Request, arm: ArmRequest, hub: Hub, *, has_partitions: bool = False) -> Json:
    """The state of a hub's capture, with or without each of its partitions."""
    captures, now = request.context.broker.captures, request.context.clock.monotonic()
    status = captures.hub_status(arm.caller.visible_hub(hub.name), now)
    state = status_json(hub.name, status, captures.job_status(now), captures.job)
    if has_partitions:
        state["partitions"] = [partition_json(partition) for partition in status.partitions]
    return arm.serializer.capture_state(arm.namespace, hub, state)


def serializer_of(request: Request) -> ArmSerializer:
    """The serializer with the subscription and resource group of the request's path."""
    return ArmSerializer(
        addresses=request.context.addresses,
        subscription=request.names.get("subscription"),
        resource_group=request.names.get("resourceGroup"),
    )


def availability(request: Request, name: str, check: Callable[[str], str]) -> Json:
    """Whether a name is free for a namespace or an alias, which must differ from each other."""
    planned = request.context.broker.planned_entities
    try:
        check(name)
    except InvalidName as refusal:
        return {"nameAvailable": False, "reason": "InvalidName", "message": refusal.text()}
    if planned.find_namespace(name) is not None or planned.find_alias(name) is not None:
        return {"nameAvailable": False, "reason": "NameInUse", "message": f"The name '{name}' is in use."}
    return {"nameAvailable": True, "reason": "None", "message": ""}


def page_response(request: Request, items: Iterable[T], to_json: Callable[[T], Json]) -> Response:
    """One page of a list."""
    page, next_url = request.page(list(items))
    body: Json = {"value": [to_json(item) for item in page]}
    if next_url is not None:
        body["nextLink"] = next_url
    return json_response(body)


def json_response(body: Json, status: int = 200) -> Response:
    """A JSON response."""
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)


def ok_response() -> Response:
    """200 without a body."""
    return Response(b"", 200)


def no_content_response() -> Response:
    """204: there was nothing to delete."""
    return Response(b"", 204)


async def delete_response(entity: T | None, delete: Callable[[T, OnDone], object]) -> Response:
    """Delete an entity and answer once that is durable; 204 if it does not exist."""
    if entity is None:
        return no_content_response()
    await await_change(lambda on_done: delete(entity, on_done))
    return ok_response()
