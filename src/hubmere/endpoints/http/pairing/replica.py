"""Handlers by which a primary on another node replicates to a secondary on this node (not an Azure interface).

Paths below `disasterRecoveryConfigs/{alias}/replica`, for administrators: they start a pairing, put complete copies of
the namespace and of its hubs, and end the pairing. `partners` is the client of these paths;
`broker/management/replica.py` decides what a copy changes.
"""

from pydantic import Field
from starlette.responses import Response

from hubmere.broker import GroupReplica, HubReplica, PairingClaim, RuleReplica
from hubmere.endpoints.http.arm.models import ArmModel, HubBody, HubProperties, ShortText, parse_body
from hubmere.endpoints.http.arm.request import ArmRequest, alias_json, json_response, ok_response
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.entity import Rights
from hubmere.model.errors import AdminRequired
from hubmere.model.names import alias_name, group_name, hub_name, namespace_name, rule_name

# Limits of one copy, above those of any tier: 1,000 hubs in a namespace, 1,000 groups on a hub, 12 rules.
_MAX_NAMES = 2048
_MAX_RULES = 256


class RuleModel(ArmModel):
    """A rule with its keys."""

    name: ShortText
    rights: list[ShortText] = Field(max_length=16)
    primary_key: str
    secondary_key: str

    def wanted_hub(self) -> RuleReplica:
        """The rule as the broker expects it."""
        return RuleReplica(
            name=rule_name(self.name),
            rights=Rights.parse(self.rights),
            primary_key=self.primary_key,
            secondary_key=self.secondary_key,
        )


class GroupModel(ArmModel):
    """A consumer group."""

    name: ShortText
    user_metadata: str = ""

    def wanted_hub(self) -> GroupReplica:
        """The group as the broker expects it."""
        return GroupReplica(name=group_name(self.name), user_metadata=self.user_metadata)


class ReplicaBody(ArmModel):
    """PUT that starts a pairing: the name of the primary, and the id of the pairing."""

    primary_namespace: ShortText
    pairing: ShortText = Field(min_length=16, max_length=64)


class NamespaceCopyBody(ArmModel):
    """PUT of the namespace's part of a pairing."""

    rules: list[RuleModel] = Field(max_length=_MAX_RULES)
    hubs: list[ShortText] = Field(max_length=_MAX_NAMES)


class HubCopyBody(ArmModel):
    """PUT of one hub of a pairing."""

    properties: HubProperties
    groups: list[GroupModel] = Field(max_length=_MAX_NAMES)
    rules: list[RuleModel] = Field(max_length=_MAX_RULES)

    def wanted_hub(self, name: str) -> HubReplica:
        """The hub as the broker expects it."""
        return HubReplica(
            name=hub_name(name),
            spec=HubBody(properties=self.properties).spec(),
            groups=tuple(group.wanted_hub() for group in self.groups),
            rules=tuple(rule.wanted_hub() for rule in self.rules),
        )


class ReplicaHandlers:
    """The handlers of replication."""

    def routes(self, alias: str) -> Routes:
        """Handlers by path and method, below the path pattern of an alias."""
        pairing = f"{alias}/replica/{{pairing}}"
        return {
            f"{alias}/replica": {"PUT": self.put_replica},
            pairing: {"PUT": self.put_namespace_copy, "DELETE": self.delete_replica},
            f"{pairing}/eventhubs/{{hub}}": {"PUT": self.put_hub_copy},
        }

    async def put_replica(self, request: Request) -> Response:
        """Make an empty namespace the secondary of one on another node."""
        arm = _admin_request(request)
        body = parse_body(ReplicaBody, await request.body())
        name, primary = alias_name(request.names["alias"]), namespace_name(body.primary_namespace)
        replicas, namespace = request.context.broker.replicas, arm.namespace.name
        await await_change(lambda on_done: replicas.begin(namespace, name, primary, body.pairing, arm.actor, on_done))
        return json_response(alias_json(arm, name))

    async def put_namespace_copy(self, request: Request) -> Response:
        """Replace the rules by the primary's, and delete hubs that the primary does not have."""
        arm = _admin_request(request)
        body = parse_body(NamespaceCopyBody, await request.body())
        rules = [rule.wanted_hub() for rule in body.rules]
        replicas = request.context.broker.replicas
        await await_change(
            lambda on_done: replicas.apply_namespace(_claim(request, arm), rules, body.hubs, arm.actor, on_done)
        )
        return ok_response()

    async def put_hub_copy(self, request: Request) -> Response:
        """Replace one hub, its groups and its rules by the primary's."""
        arm = _admin_request(request)
        wanted_hub = parse_body(HubCopyBody, await request.body()).wanted_hub(request.names["hub"])
        replicas = request.context.broker.replicas
        await await_change(lambda on_done: replicas.apply_hub(_claim(request, arm), wanted_hub, arm.actor, on_done))
        return ok_response()

    async def delete_replica(self, request: Request) -> Response:
        """End the pairing: the primary has broken it."""
        arm = _admin_request(request)
        replicas = request.context.broker.replicas
        await await_change(lambda on_done: replicas.end(_claim(request, arm), arm.actor, on_done))
        return ok_response()


def _admin_request(request: Request) -> ArmRequest:
    arm = ArmRequest(request)
    if not arm.caller.is_admin:
        raise AdminRequired
    return arm


def _claim(request: Request, arm: ArmRequest) -> PairingClaim:
    return PairingClaim(namespace=arm.namespace.name, alias=request.names["alias"], pairing=request.names["pairing"])
