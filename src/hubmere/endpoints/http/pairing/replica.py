"""The door through which a primary on another node keeps a secondary of this one in step (an extension of ours).

Below `disasterRecoveryConfigs/{alias}/replica` of the management plane, for administrators: a pairing is begun, whole
copies of the namespace and of its hubs are put, and the pairing is ended. `partners` is the client of these paths; what
a copy changes is decided by `broker/management/replica.py`.
"""

from pydantic import Field
from starlette.responses import Response

from hubmere.broker.management.replica import Claim, GroupWish, HubWish, RuleWish
from hubmere.endpoints.http.arm.models import ArmModel, HubBody, HubProperties, Word, parsed
from hubmere.endpoints.http.arm.request import ArmRequest, alias_shape, done_answer, json_answer
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Request, Table
from hubmere.model.entity import Rights
from hubmere.model.errors import AdminRequired
from hubmere.model.names import alias_name, group_name, hub_name, namespace_name, rule_name

# Bounds of one copy, above what any tier allows: 1,000 hubs in a namespace, 1,000 groups on a hub, 12 rules.
_MAX_NAMES = 2048
_MAX_RULES = 256


class RuleModel(ArmModel):
    """A rule with its keys."""

    name: Word
    rights: list[Word] = Field(max_length=16)
    primary_key: str
    secondary_key: str

    def wish(self) -> RuleWish:
        """The rule as the broker takes it."""
        return RuleWish(
            name=rule_name(self.name),
            rights=Rights.parse(self.rights),
            primary_key=self.primary_key,
            secondary_key=self.secondary_key,
        )


class GroupModel(ArmModel):
    """A consumer group."""

    name: Word
    user_metadata: str = ""

    def wish(self) -> GroupWish:
        """The group as the broker takes it."""
        return GroupWish(name=group_name(self.name), user_metadata=self.user_metadata)


class ReplicaBody(ArmModel):
    """PUT that begins a pairing: who the primary is, and the pairing's id."""

    primary_namespace: Word
    pairing: Word = Field(min_length=16, max_length=64)


class NamespaceCopyBody(ArmModel):
    """PUT of the namespace's part of a pairing."""

    rules: list[RuleModel] = Field(max_length=_MAX_RULES)
    hubs: list[Word] = Field(max_length=_MAX_NAMES)


class HubCopyBody(ArmModel):
    """PUT of one hub of a pairing."""

    properties: HubProperties
    groups: list[GroupModel] = Field(max_length=_MAX_NAMES)
    rules: list[RuleModel] = Field(max_length=_MAX_RULES)

    def wish(self, name: str) -> HubWish:
        """The hub as the broker takes it."""
        return HubWish(
            name=hub_name(name),
            spec=HubBody(properties=self.properties).spec(),
            groups=tuple(group.wish() for group in self.groups),
            rules=tuple(rule.wish() for rule in self.rules),
        )


class ReplicaPlane:
    """The handlers of the door."""

    def table(self, alias: str) -> Table:
        """Handlers by path and method, below the path shape of an alias."""
        pairing = f"{alias}/replica/{{pairing}}"
        return {
            f"{alias}/replica": {"PUT": self.put_replica},
            pairing: {"PUT": self.put_namespace_copy, "DELETE": self.delete_replica},
            f"{pairing}/eventhubs/{{hub}}": {"PUT": self.put_hub_copy},
        }

    async def put_replica(self, call: Request) -> Response:
        """Make an empty namespace the secondary of one on another node."""
        ask = _asked_by_admin(call)
        body = parsed(ReplicaBody, await call.body())
        name, primary = alias_name(call.names["alias"]), namespace_name(body.primary_namespace)
        replicas, place = call.context.broker.replicas, ask.namespace.name
        await await_change(lambda done: replicas.begin(place, name, primary, body.pairing, ask.actor, done))
        return json_answer(alias_shape(ask, name))

    async def put_namespace_copy(self, call: Request) -> Response:
        """Take the primary's rules, and let hubs go that it has not."""
        ask = _asked_by_admin(call)
        body = parsed(NamespaceCopyBody, await call.body())
        rules = [rule.wish() for rule in body.rules]
        replicas = call.context.broker.replicas
        await await_change(lambda done: replicas.take_namespace(_claim(call, ask), rules, body.hubs, ask.actor, done))
        return done_answer()

    async def put_hub_copy(self, call: Request) -> Response:
        """Take one hub of the primary with its groups and rules."""
        ask = _asked_by_admin(call)
        wish = parsed(HubCopyBody, await call.body()).wish(call.names["hub"])
        replicas = call.context.broker.replicas
        await await_change(lambda done: replicas.take_hub(_claim(call, ask), wish, ask.actor, done))
        return done_answer()

    async def delete_replica(self, call: Request) -> Response:
        """The primary has broken the pairing: the namespace is its own again."""
        ask = _asked_by_admin(call)
        replicas = call.context.broker.replicas
        await await_change(lambda done: replicas.end(_claim(call, ask), ask.actor, done))
        return done_answer()


def _asked_by_admin(call: Request) -> ArmRequest:
    ask = ArmRequest(call)
    if not ask.is_admin:
        raise AdminRequired
    return ask


def _claim(call: Request, ask: ArmRequest) -> Claim:
    return Claim(namespace=ask.namespace.name, alias=call.names["alias"], pairing=call.names["pairing"])
