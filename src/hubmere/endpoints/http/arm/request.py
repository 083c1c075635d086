"""What every ARM handler begins and ends with: who asks, which entities the path names, and how an answer is made."""

import json
from collections.abc import Callable, Iterable

from starlette.responses import Response

from hubmere.broker.access import Principal
from hubmere.broker.management.manager import Actor, Manager
from hubmere.broker.management.outbox import copies_of
from hubmere.endpoints.http.arm.capture_models import partition_json, standing_json
from hubmere.endpoints.http.arm.serializer import ArmSerializer, Json
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.entity import AccessRule, ApplicationGroup, Hub, Namespace
from hubmere.model.errors import AdminRequired, InvalidName, NamespaceNotFound, NotFound
from hubmere.model.names import fold


class ArmRequest:
    """One request below a namespace: who asks was checked, and the entities that the path names are looked up."""

    def __init__(self, request: Request) -> None:
        name = request.names["namespace"]
        live = request.context.broker.namespaces.get(fold(name))
        self._request = request
        self._principal = request.known_as(request.context.identity.of_manager(live, request.authorization))
        if live is None:
            raise NamespaceNotFound(f"sb://{name}")
        self.namespace: Namespace = live.entity
        self.serializer = serializer_of(request)
        self.manager: Manager = request.context.broker.manager
        self.outboxes = request.context.broker.outboxes
        self.view = request.context.broker.catalog.view

    @classmethod
    def maybe(cls, request: Request) -> "ArmRequest | None":
        """The same; None when there is no such namespace, for those who may know that."""
        try:
            return cls(request)
        except NamespaceNotFound:
            return None

    @property
    def is_admin(self) -> bool:
        """Whether the administrator asks, and not a manager of the namespace alone."""
        return self._principal.is_admin

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self._principal

    @property
    def actor(self) -> Actor:
        """Who asks for a change, and when."""
        return self._request.context.actor(self._principal, self._request.scope)

    @property
    def hub(self) -> Hub:
        """The hub that the path names."""
        return self.view.hub(self.namespace.name, self._request.names["hub"])

    @property
    def hub_name(self) -> str | None:
        """The name of the hub that the path names, None for paths of the namespace."""
        return self.hub.name if "hub" in self._request.names else None

    @property
    def alias(self) -> str | None:
        """The alias that the path names, which must exist."""
        if "alias" not in self._request.names:
            return None
        return self.view.alias(self.namespace.name, self._request.names["alias"]).name

    @property
    def shown_alias(self) -> str | None:
        """The alias for connection strings: that of the path, else the namespace's own."""
        aliases = self.view.aliases(self.namespace.name)
        return self.alias or next((alias.name for alias in aliases), None)

    @property
    def rule_scope(self) -> Namespace | Hub:
        """Where the rules of the path lie: on the hub, else on the namespace (a pairing shows those)."""
        if "alias" in self._request.names:
            self.view.alias(self.namespace.name, self._request.names["alias"])
        return self.hub if "hub" in self._request.names else self.namespace

    @property
    def rule(self) -> AccessRule:
        """The rule that the path names."""
        return self.view.rule(self.rule_scope, self._request.names["rule"])

    @property
    def application_group(self) -> ApplicationGroup:
        """The application group that the path names."""
        name = self._request.names["group"]
        group = self.view.find_application_group(self.namespace.name, name)
        if group is None:
            raise NotFound(f"sb://{self.namespace.name}/applicationGroups/{name}")
        return group


def alias_json(arm: ArmRequest, name: str) -> Json:
    """A pairing as it is shown on the namespace that was asked."""
    view = arm.view
    alias = view.alias(arm.namespace.name, name)
    if not alias.is_replicating_away:
        partner = view.find_namespace(alias.partner_namespace) if not alias.pairing else None
        state = alias.provisioning_state
        return arm.serializer.alias(arm.namespace, alias, partner=partner, state=state, pending=0, problem="")
    outbox = arm.outboxes.of(alias)
    pending = len(outbox.owed(copies_of(view, arm.namespace)))
    return arm.serializer.alias(
        arm.namespace, alias, partner=None, state=outbox.progress, pending=pending, problem=outbox.problem
    )


def capture_json(request: Request, arm: ArmRequest, hub: Hub, *, has_partitions: bool = False) -> Json:
    """How the capture of a hub goes, with or without each of its partitions."""
    broker, now = request.context.broker, request.context.clock.monotonic()
    standing = broker.captures.standing(broker.namespace(hub.namespace).hub(hub.name), now)
    shown = standing_json(hub.name, standing, broker.captures.job_standing(now), broker.captures.job)
    if has_partitions:
        shown["partitions"] = [partition_json(one) for one in standing.partitions]
    return arm.serializer.capture_state(arm.namespace, hub, shown)


def manager_of_node(request: Request) -> Principal:
    """The administrator, for what concerns the whole node."""
    known = request.context.identity.of_manager(request.context.namespace_at(request.host), request.authorization)
    principal = request.known_as(known)
    if not principal.is_admin:
        raise AdminRequired
    return principal


def serializer_of(request: Request) -> ArmSerializer:
    """How resources are shown to this client."""
    return ArmSerializer(
        addresses=request.context.addresses,
        subscription=request.names.get("subscription"),
        resource_group=request.names.get("resourceGroup"),
    )


def availability(request: Request, name: str, check: Callable[[str], str]) -> Json:
    """Whether a name is free for a namespace or an alias: they share one name space."""
    view = request.context.broker.catalog.planned
    try:
        check(name)
    except InvalidName as refusal:
        return {"nameAvailable": False, "reason": "InvalidName", "message": refusal.text()}
    if view.find_namespace(name) is not None or view.find_alias(name) is not None:
        return {"nameAvailable": False, "reason": "NameInUse", "message": f"The name '{name}' is in use."}
    return {"nameAvailable": True, "reason": "None", "message": ""}


def page_response(request: Request, items: Iterable[object], shown: Callable[..., Json]) -> Response:
    """One page of a list."""
    page, next_url = request.page(list(items))
    body: Json = {"value": [shown(item) for item in page]}
    if next_url is not None:
        body["nextLink"] = next_url
    return json_response(body)


def json_response(body: Json, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)


def ok_response() -> Response:
    """Done, nothing to show."""
    return Response(b"", 200)


def no_content_response() -> Response:
    """Nothing was there to delete."""
    return Response(b"", 204)
