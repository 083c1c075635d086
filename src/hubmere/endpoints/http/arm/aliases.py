"""ARM management of geo-disaster recovery: aliases that pair a namespace with another (reference: service 4.2)."""

from starlette.responses import Response

from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.paths import ALIAS, NAMESPACE
from hubmere.endpoints.http.arm.request import (
    ArmRequest,
    alias_json,
    availability,
    json_response,
    ok_response,
    page_response,
)
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.pairing.replica import ReplicaHandlers
from hubmere.endpoints.http.request import Request, Routes
from hubmere.model.names import AliasName, alias_name, fold


class AliasHandlers:
    """The handlers of disaster recovery configurations."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            f"{NAMESPACE}/disasterRecoveryConfigs/checkNameAvailability": {"POST": self.check_alias_name},
            f"{NAMESPACE}/disasterRecoveryConfigs": {"GET": self.list_aliases},
            ALIAS: {"PUT": self.put_alias, "GET": self.get_alias, "DELETE": self.delete_alias},
            f"{ALIAS}/breakPairing": {"POST": self.break_pairing},
            f"{ALIAS}/failover": {"POST": self.fail_over},
            **ReplicaHandlers().routes(ALIAS),
        }

    async def check_alias_name(self, request: Request) -> Response:
        """Whether an alias could be created under a name."""
        ArmRequest(request)
        name = models.parse_body(models.CheckNameBody, await request.body()).name
        return json_response(availability(request, name, alias_name))

    async def list_aliases(self, request: Request) -> Response:
        """The pairings of a namespace."""
        arm = ArmRequest(request)
        aliases = arm.entities.aliases(arm.namespace.name)
        return page_response(request, aliases, lambda alias: alias_json(arm, alias.name))

    async def put_alias(self, request: Request) -> Response:
        """Pair the namespace with another under an alias."""
        arm = ArmRequest(request)
        body = models.parse_body(models.AliasBody, await request.body())
        name, namespace = alias_name(request.names["alias"]), arm.namespace.name
        aliases = arm.planned.aliases(namespace)
        existing = next((one for one in aliases if fold(one.name) == fold(name)), None)
        if existing is None or fold(existing.partner_namespace) != fold(body.partner):
            await self._pair(request, arm, name, body)
        return json_response(alias_json(arm, name), 201 if existing is None else 200)

    async def _pair(self, request: Request, arm: ArmRequest, name: AliasName, body: models.AliasBody) -> None:
        """Look for the partner on this node first, then among the configured partners on other nodes."""
        namespace, partner, partners = arm.namespace.name, body.partner, request.context.partners
        is_here = arm.planned.find_namespace(partner) is not None
        if partners is not None and not is_here and partners.has_partner(partner):
            await partners.pair(arm.namespace, name, partner, body.alternate_name, arm.actor)
        else:
            await await_change(
                lambda on_done: arm.manager.pair(namespace, name, partner, body.alternate_name, arm.actor, on_done)
            )

    async def get_alias(self, request: Request) -> Response:
        """One pairing."""
        arm = ArmRequest(request)
        return json_response(alias_json(arm, request.names["alias"]))

    async def delete_alias(self, request: Request) -> Response:
        """Delete a pairing that was broken."""
        arm = ArmRequest(request)
        path = (arm.namespace.name, request.names["alias"])
        await await_change(lambda on_done: arm.manager.delete_alias(*path, arm.actor, on_done))
        return ok_response()

    async def break_pairing(self, request: Request) -> Response:
        """End the replication: on the primary, or on a secondary whose primary on another node is lost."""
        arm = ArmRequest(request)
        alias = arm.entities.alias(arm.namespace.name, request.names["alias"])
        if request.context.partners is not None and alias.is_replicating_away:
            await request.context.partners.break_pairing(alias, arm.actor)
        else:
            await await_change(
                lambda on_done: arm.manager.break_pairing(alias.namespace, alias.name, arm.actor, on_done)
            )
        return ok_response()

    async def fail_over(self, request: Request) -> Response:
        """Move the alias to the secondary, which is the namespace of this request."""
        arm = ArmRequest(request)
        path = (arm.namespace.name, request.names["alias"])
        await await_change(lambda on_done: arm.manager.fail_over(*path, arm.actor, on_done))
        return ok_response()
