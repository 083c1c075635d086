"""What every ARM handler begins and ends with: who asks, which entities the path names, and how an answer is made."""

import json
from collections.abc import Callable, Iterable

from starlette.responses import Response

from hubmere.broker.access import Principal
from hubmere.broker.management.manager import Actor, Manager
from hubmere.broker.management.outbox import copies_of
from hubmere.endpoints.http.arm.capture_models import partition_shape, standing_shape
from hubmere.endpoints.http.arm.shapes import Frame, Json
from hubmere.endpoints.http.errors import JSON_TYPE
from hubmere.endpoints.http.request import Request
from hubmere.model.entity import AccessRule, ApplicationGroup, Hub, Namespace
from hubmere.model.errors import AdminRequired, InvalidName, NamespaceNotFound, NotFound
from hubmere.model.names import fold


class ArmRequest:
    """One request below a namespace: who asks was checked, and the entities that the path names are looked up."""

    def __init__(self, call: Request) -> None:
        name = call.names["namespace"]
        live = call.context.broker.namespaces.get(fold(name))
        self._call = call
        self._principal = call.known_as(call.context.identity.of_manager(live, call.authorization))
        if live is None:
            raise NamespaceNotFound(f"sb://{name}")
        self.namespace: Namespace = live.entity
        self.frame = frame_of(call)
        self.manager: Manager = call.context.broker.manager
        self.outboxes = call.context.broker.outboxes
        self.view = call.context.broker.catalog.view

    @classmethod
    def maybe(cls, call: Request) -> "ArmRequest | None":
        """The same; None when there is no such namespace, for those who may know that."""
        try:
            return cls(call)
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
        return self._call.context.actor(self._principal, self._call.scope)

    @property
    def hub(self) -> Hub:
        """The hub that the path names."""
        return self.view.hub(self.namespace.name, self._call.names["hub"])

    @property
    def hub_name(self) -> str | None:
        """The name of the hub that the path names, None for paths of the namespace."""
        return self.hub.name if "hub" in self._call.names else None

    @property
    def alias(self) -> str | None:
        """The alias that the path names, which must exist."""
        if "alias" not in self._call.names:
            return None
        return self.view.alias(self.namespace.name, self._call.names["alias"]).name

    @property
    def shown_alias(self) -> str | None:
        """The alias for connection strings: that of the path, else the namespace's own."""
        aliases = self.view.aliases(self.namespace.name)
        return self.alias or next((alias.name for alias in aliases), None)

    @property
    def rule_scope(self) -> Namespace | Hub:
        """Where the rules of the path lie: on the hub, else on the namespace (a pairing shows those)."""
        if "alias" in self._call.names:
            self.view.alias(self.namespace.name, self._call.names["alias"])
        return self.hub if "hub" in self._call.names else self.namespace

    @property
    def rule(self) -> AccessRule:
        """The rule that the path names."""
        return self.view.rule(self.rule_scope, self._call.names["rule"])

    @property
    def application_group(self) -> ApplicationGroup:
        """The application group that the path names."""
        name = self._call.names["group"]
        group = self.view.find_application_group(self.namespace.name, name)
        if group is None:
            raise NotFound(f"sb://{self.namespace.name}/applicationGroups/{name}")
        return group


def alias_shape(ask: ArmRequest, name: str) -> Json:
    """A pairing as it is shown on the namespace that was asked."""
    view = ask.view
    alias = view.alias(ask.namespace.name, name)
    if not alias.is_replicating_away:
        partner = view.find_namespace(alias.partner_namespace) if not alias.pairing else None
        state = alias.provisioning_state
        return ask.frame.alias(ask.namespace, alias, partner=partner, state=state, pending=0, problem="")
    outbox = ask.outboxes.of(alias)
    pending = len(outbox.owed(copies_of(view, ask.namespace)))
    return ask.frame.alias(
        ask.namespace, alias, partner=None, state=outbox.progress, pending=pending, problem=outbox.problem
    )


def capture_shape(call: Request, ask: ArmRequest, hub: Hub, *, has_partitions: bool = False) -> Json:
    """How the capture of a hub goes, with or without each of its partitions."""
    broker, now = call.context.broker, call.context.clock.monotonic()
    standing = broker.captures.standing(broker.namespace(hub.namespace).hub(hub.name), now)
    shown = standing_shape(hub.name, standing, broker.captures.job_standing(now), broker.captures.job)
    if has_partitions:
        shown["partitions"] = [partition_shape(one) for one in standing.partitions]
    return ask.frame.capture_state(ask.namespace, hub, shown)


def manager_of_node(call: Request) -> Principal:
    """The administrator, for what concerns the whole node."""
    known = call.context.identity.of_manager(call.context.namespace_at(call.host), call.authorization)
    principal = call.known_as(known)
    if not principal.is_admin:
        raise AdminRequired
    return principal


def frame_of(call: Request) -> Frame:
    """How resources are shown to this client."""
    return Frame(
        addresses=call.context.addresses,
        subscription=call.names.get("subscription"),
        resource_group=call.names.get("resourceGroup"),
    )


def availability(call: Request, name: str, check: Callable[[str], str]) -> Json:
    """Whether a name is free for a namespace or an alias: they share one name space."""
    view = call.context.broker.catalog.planned
    try:
        check(name)
    except InvalidName as refusal:
        return {"nameAvailable": False, "reason": "InvalidName", "message": refusal.text()}
    if view.find_namespace(name) is not None or view.find_alias(name) is not None:
        return {"nameAvailable": False, "reason": "NameInUse", "message": f"The name '{name}' is in use."}
    return {"nameAvailable": True, "reason": "None", "message": ""}


def page_answer(call: Request, items: Iterable[object], shown: Callable[..., Json]) -> Response:
    """One page of a list."""
    page, next_url = call.page(list(items))
    body: Json = {"value": [shown(item) for item in page]}
    if next_url is not None:
        body["nextLink"] = next_url
    return json_answer(body)


def json_answer(body: Json, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(json.dumps(body).encode(), status, media_type=JSON_TYPE)


def done_answer() -> Response:
    """Done, nothing to show."""
    return Response(b"", 200)


def gone_answer() -> Response:
    """Nothing was there to delete."""
    return Response(b"", 204)
