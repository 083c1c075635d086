"""ARM management: namespaces, hubs, groups, rules, network rules, pairings and application groups as resources.

Speaks to `azure-mgmt-eventhub`, Terraform and Bicep shaped clients (reference: service 4.2). Any api-version is taken
and answered with the newest superset; every change is durable before it is answered, so no operation is long-running.
The administrator may do everything; a holder of Manage on a namespace may do everything inside it.
"""

from collections.abc import Mapping
from dataclasses import replace

from starlette.responses import Response

from hubmere.broker.access import Principal
from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.request import (
    ArmRequest,
    alias_json,
    availability,
    capture_json,
    json_response,
    manager_of_node,
    no_content_response,
    ok_response,
    page_response,
    serializer_of,
)
from hubmere.endpoints.http.arm.serializer import PROVIDER, ArmSerializer, Json
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.pairing.replica import ReplicaHandlers
from hubmere.endpoints.http.request import Handler, Request, Routes
from hubmere.model.entity import ApplicationGroup, Rights
from hubmere.model.errors import Conflict, NotSupported
from hubmere.model.names import (
    AliasName,
    alias_name,
    application_group_name,
    fold,
    group_name,
    hub_name,
    namespace_name,
    rule_name,
)
from hubmere.model.spec import NamespaceSpec

_SUBSCRIPTION = "subscriptions/{subscription}/providers/Microsoft.EventHub"
_GROUP = "subscriptions/{subscription}/resourceGroups/{resourceGroup}/providers/Microsoft.EventHub"
_NAMESPACE = _GROUP + "/namespaces/{namespace}"
_HUB = _NAMESPACE + "/eventhubs/{hub}"
_ALIAS = _NAMESPACE + "/disasterRecoveryConfigs/{alias}"

_OPERATIONS = (
    "namespaces",
    "namespaces/eventhubs",
    "namespaces/eventhubs/consumergroups",
    "namespaces/authorizationRules",
)
_VERBS = ("read", "write", "delete")


class ArmHandlers:
    """The handlers of the ARM plane."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            f"providers/{PROVIDER}/operations": {"GET": self.operations},
            **self._namespace_routes(),
            **self._rule_routes(),
            **self._hub_routes(),
            **self._alias_routes(),
            **self._empty_routes(),
        }

    def _namespace_routes(self) -> Routes:
        check = {"POST": self.check_namespace_name}
        return {
            f"{_SUBSCRIPTION}/checkNameAvailability": check,
            f"{_SUBSCRIPTION}/checkNamespaceAvailability": check,
            f"{_SUBSCRIPTION}/namespaces": {"GET": self.list_namespaces},
            f"{_GROUP}/namespaces": {"GET": self.list_namespaces},
            _NAMESPACE: {
                "PUT": self.put_namespace,
                "PATCH": self.patch_namespace,
                "GET": self.get_namespace,
                "DELETE": self.delete_namespace,
            },
            f"{_NAMESPACE}/failover": {"POST": self.fail_over_namespace},
            f"{_NAMESPACE}/networkRuleSets": {"GET": self.list_network},
            f"{_NAMESPACE}/networkRuleSets/default": {"PUT": self.put_network, "GET": self.get_network},
            f"{_NAMESPACE}/applicationGroups": {"GET": self.list_application_groups},
            f"{_NAMESPACE}/applicationGroups/{{group}}": {
                "PUT": self.put_application_group,
                "GET": self.get_application_group,
                "DELETE": self.delete_application_group,
            },
        }

    def _rule_routes(self) -> Routes:
        routes: dict[str, Mapping[str, Handler]] = {}
        for scope in (_NAMESPACE, _HUB):
            rule = f"{scope}/authorizationRules/{{rule}}"
            routes[f"{scope}/authorizationRules"] = {"GET": self.list_rules}
            routes[rule] = {"PUT": self.put_rule, "GET": self.get_rule, "DELETE": self.delete_rule}
            routes[f"{rule}/listKeys"] = {"POST": self.list_keys}
            routes[f"{rule}/regenerateKeys"] = {"POST": self.regenerate_keys}
        return routes

    def _hub_routes(self) -> Routes:
        return {
            f"{_NAMESPACE}/eventhubs": {"GET": self.list_hubs},
            _HUB: {"PUT": self.put_hub, "GET": self.get_hub, "DELETE": self.delete_hub},
            f"{_NAMESPACE}/captureStates": {"GET": self.list_capture_states},
            f"{_HUB}/captureStates": {"GET": self.list_capture_states_of_hub},
            f"{_HUB}/captureStates/default": {"GET": self.get_capture_state},
            f"{_HUB}/consumergroups": {"GET": self.list_groups},
            f"{_HUB}/consumergroups/{{group}}": {
                "PUT": self.put_group,
                "GET": self.get_group,
                "DELETE": self.delete_group,
            },
        }

    def _alias_routes(self) -> Routes:
        return {
            f"{_NAMESPACE}/disasterRecoveryConfigs/checkNameAvailability": {"POST": self.check_alias_name},
            f"{_NAMESPACE}/disasterRecoveryConfigs": {"GET": self.list_aliases},
            _ALIAS: {"PUT": self.put_alias, "GET": self.get_alias, "DELETE": self.delete_alias},
            f"{_ALIAS}/breakPairing": {"POST": self.break_pairing},
            f"{_ALIAS}/failover": {"POST": self.fail_over},
            **ReplicaHandlers().routes(_ALIAS),
            f"{_ALIAS}/authorizationRules": {"GET": self.list_rules},
            f"{_ALIAS}/authorizationRules/{{rule}}": {"GET": self.get_rule},
            f"{_ALIAS}/authorizationRules/{{rule}}/listKeys": {"POST": self.list_keys},
        }

    def _empty_routes(self) -> Routes:
        """What a node never has any of: lists that clients read on their way to something else."""
        of_namespace = (
            "schemagroups", "privateEndpointConnections", "privateLinkResources",
            "networkSecurityPerimeterConfigurations",
        )  # fmt: skip
        empty: dict[str, Mapping[str, Handler]] = {
            f"{_NAMESPACE}/{kind}": {"GET": self.list_nothing_in_namespace} for kind in of_namespace
        }
        return empty | {
            f"{_SUBSCRIPTION}/clusters": {"GET": self.list_nothing},
            f"{_SUBSCRIPTION}/availableClusterRegions": {"GET": self.list_nothing},
            f"{_GROUP}/clusters": {"GET": self.list_nothing},
        }

    # --- namespaces ---

    async def operations(self, request: Request) -> Response:
        """What can be done to what: asked by clients before anything else, without a namespace."""
        shown: list[Json] = [
            {"name": f"{PROVIDER}/{kind}/{verb}", "isDataAction": False, "display": _display(kind, verb)}
            for kind in _OPERATIONS
            for verb in _VERBS
        ]
        return json_response({"value": shown})

    async def check_namespace_name(self, request: Request) -> Response:
        """Whether a namespace could be created under a name."""
        manager_of_node(request)
        name = models.parse_body(models.CheckNameBody, await request.body()).name
        return json_response(availability(request, name, namespace_name))

    async def list_namespaces(self, request: Request) -> Response:
        """The namespaces that the caller manages."""
        here = request.context.namespace_at(request.host)
        principal = request.known_as(request.context.identity.of_manager(here, request.authorization))
        everything = request.context.broker.catalog.view.namespaces()
        shown = [one for one in everything if principal.is_admin or fold(one.name) == principal.namespace]
        serializer = ArmSerializer(
            addresses=request.context.addresses, resource_group=request.names.get("resourceGroup")
        )
        return page_response(request, shown, lambda one: serializer.namespace(one))

    async def put_namespace(self, request: Request) -> Response:
        """Create a namespace, or replace its settings."""
        known = request.context.broker.catalog.planned.find_namespace(request.names["namespace"])
        if known is None:
            principal = manager_of_node(request)
            return await self._create_namespace(request, principal)
        arm = ArmRequest(request)
        body = models.parse_body(models.NamespaceBody, await request.body())
        base = NamespaceSpec(
            subscription=known.subscription, resource_group=known.resource_group, location=known.location
        )
        entity = await await_change(
            lambda done: arm.manager.update_namespace(known.name, body.spec(base), arm.actor, done)
        )
        return json_response(arm.serializer.namespace(entity))

    async def _create_namespace(self, request: Request, principal: Principal) -> Response:
        name = namespace_name(request.names["namespace"])
        body = models.parse_body(models.NamespaceBody, await request.body())
        base = NamespaceSpec(subscription=request.names["subscription"], resource_group=request.names["resourceGroup"])
        manager, actor = request.context.broker.manager, request.context.actor(principal, request.scope)
        entity = await await_change(lambda done: manager.create_namespace(name, body.spec(base), actor, done))
        return json_response(serializer_of(request).namespace(entity), 201)

    async def patch_namespace(self, request: Request) -> Response:
        """Change some settings of a namespace and keep the others."""
        arm = ArmRequest(request)
        body = models.parse_body(models.NamespaceBody, await request.body())
        spec = body.spec(NamespaceSpec.of(arm.namespace))
        if not spec.auto_inflate:
            spec = replace(spec, maximum_throughput_units=0, minimum_throughput_units=0)
        entity = await await_change(
            lambda done: arm.manager.update_namespace(arm.namespace.name, spec, arm.actor, done)
        )
        return json_response(arm.serializer.namespace(entity))

    async def get_namespace(self, request: Request) -> Response:
        """One namespace."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.namespace(arm.namespace))

    async def delete_namespace(self, request: Request) -> Response:
        """A namespace with everything in it; the node keeps its own, or it could not be reached any more."""
        arm = ArmRequest.maybe(request)
        if arm is None:
            return no_content_response()
        if fold(arm.namespace.name) == fold(request.context.addresses.namespace):
            raise Conflict(f"The namespace '{arm.namespace.name}' is the node's own and cannot be deleted.")
        await await_change(lambda done: arm.manager.delete_namespace(arm.namespace.name, arm.actor, done))
        return ok_response()

    async def fail_over_namespace(self, request: Request) -> Response:
        """Geo-replication of data is not offered; metadata pairings fail over by their alias."""
        ArmRequest(request)
        raise NotSupported("Failover of a namespace without an alias")

    # --- network rules ---

    async def list_network(self, request: Request) -> Response:
        """The one rule set of a namespace, as a list."""
        arm = ArmRequest(request)
        return json_response({"value": [arm.serializer.network(arm.namespace)]})

    async def get_network(self, request: Request) -> Response:
        """The network rules of a namespace."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.network(arm.namespace))

    async def put_network(self, request: Request) -> Response:
        """Replace the network rules of a namespace, effective on every port at once."""
        arm = ArmRequest(request)
        body = models.parse_body(models.NetworkBody, await request.body())
        name, rules, access = arm.namespace.name, body.rules(), body.access(arm.namespace)
        entity = await await_change(lambda done: arm.manager.update_network(name, rules, arm.actor, done))
        if access is not entity.public_network_access:
            spec = replace(NamespaceSpec.of(entity), public_network_access=access)
            entity = await await_change(lambda done: arm.manager.update_namespace(name, spec, arm.actor, done))
        return json_response(arm.serializer.network(entity))

    # --- hubs and groups ---

    async def list_hubs(self, request: Request) -> Response:
        """The hubs of a namespace."""
        arm = ArmRequest(request)
        hubs = request.context.broker.catalog.view.hubs(arm.namespace.name)
        return page_response(request, hubs, lambda hub: arm.serializer.hub(arm.namespace, hub))

    async def put_hub(self, request: Request) -> Response:
        """Create a hub, or replace its settings."""
        arm = ArmRequest(request)
        spec = models.parse_body(models.HubBody, await request.body()).spec()
        place = arm.namespace.name
        if request.context.broker.catalog.planned.find_hub(place, request.names["hub"]) is None:
            name = hub_name(request.names["hub"])
            hub = await await_change(lambda done: arm.manager.create_hub(place, name, spec, arm.actor, done))
        else:
            hub = await await_change(
                lambda done: arm.manager.update_hub(place, request.names["hub"], spec, arm.actor, done)
            )
        return json_response(arm.serializer.hub(arm.namespace, hub))

    async def get_hub(self, request: Request) -> Response:
        """One hub."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.hub(arm.namespace, arm.hub))

    async def delete_hub(self, request: Request) -> Response:
        """A hub with everything in it."""
        arm = ArmRequest(request)
        hub = request.context.broker.catalog.planned.find_hub(arm.namespace.name, request.names["hub"])
        if hub is None:
            return no_content_response()
        await await_change(lambda done: arm.manager.delete_hub(arm.namespace.name, hub.name, arm.actor, done))
        return ok_response()

    async def list_capture_states(self, request: Request) -> Response:
        """How the capture of every captured hub of a namespace goes."""
        arm = ArmRequest(request)
        place = fold(arm.namespace.name)
        hubs = [hub.entity for hub in request.context.broker.captures.hubs() if fold(hub.entity.namespace) == place]
        return page_response(request, hubs, lambda hub: capture_json(request, arm, hub))

    async def list_capture_states_of_hub(self, request: Request) -> Response:
        """The one state of a hub, as a list."""
        arm = ArmRequest(request)
        return json_response({"value": [capture_json(request, arm, arm.hub, has_partitions=True)]})

    async def get_capture_state(self, request: Request) -> Response:
        """How the capture of a hub goes: state, lag, last files."""
        arm = ArmRequest(request)
        return json_response(capture_json(request, arm, arm.hub, has_partitions=True))

    async def list_groups(self, request: Request) -> Response:
        """The consumer groups of a hub."""
        arm = ArmRequest(request)
        hub = arm.hub
        groups = request.context.broker.catalog.view.groups(hub)
        return page_response(request, groups, lambda group: arm.serializer.group(arm.namespace, hub, group))

    async def put_group(self, request: Request) -> Response:
        """Create a consumer group, or replace its metadata."""
        arm = ArmRequest(request)
        hub, metadata = arm.hub, models.parse_body(models.GroupBody, await request.body()).metadata
        name, place = group_name(request.names["group"]), (arm.namespace.name, arm.hub.name)
        if request.context.broker.catalog.planned.find_group(hub, name) is None:
            group = await await_change(lambda done: arm.manager.create_group(*place, name, metadata, arm.actor, done))
        else:
            group = await await_change(lambda done: arm.manager.update_group(*place, name, metadata, arm.actor, done))
        return json_response(arm.serializer.group(arm.namespace, hub, group))

    async def get_group(self, request: Request) -> Response:
        """One consumer group."""
        arm = ArmRequest(request)
        group = request.context.broker.catalog.view.group(arm.hub, request.names["group"])
        return json_response(arm.serializer.group(arm.namespace, arm.hub, group))

    async def delete_group(self, request: Request) -> Response:
        """A consumer group; its readers are let go."""
        arm = ArmRequest(request)
        place = (arm.namespace.name, arm.hub.name)
        group = request.context.broker.catalog.planned.find_group(arm.hub, request.names["group"])
        if group is None:
            return no_content_response()
        await await_change(lambda done: arm.manager.delete_group(*place, group.name, arm.actor, done))
        return ok_response()

    # --- authorization rules ---

    async def list_rules(self, request: Request) -> Response:
        """The rules of a namespace, a hub or a pairing, without their keys."""
        arm = ArmRequest(request)
        rules = request.context.broker.catalog.view.rules(arm.rule_scope)
        return page_response(request, rules, lambda rule: arm.serializer.rule(arm.namespace, rule, arm.alias))

    async def put_rule(self, request: Request) -> Response:
        """Create a rule with random keys, or give it other rights."""
        arm = ArmRequest(request)
        rights = Rights.parse(models.parse_body(models.RuleBody, await request.body()).rights)
        name, hub = rule_name(request.names["rule"]), arm.hub_name
        rule = await await_change(
            lambda done: arm.manager.write_rule(arm.namespace.name, hub, name, rights, arm.actor, done)
        )
        return json_response(arm.serializer.rule(arm.namespace, rule))

    async def get_rule(self, request: Request) -> Response:
        """One rule, without its keys."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.rule(arm.namespace, arm.rule, arm.alias))

    async def delete_rule(self, request: Request) -> Response:
        """A rule; its tokens are good for nothing new."""
        arm = ArmRequest(request)
        rule = request.context.broker.catalog.planned.find_rule(arm.rule_scope, request.names["rule"])
        if rule is None:
            return no_content_response()
        hub = arm.hub_name
        await await_change(lambda done: arm.manager.delete_rule(arm.namespace.name, hub, rule.name, arm.actor, done))
        return ok_response()

    async def list_keys(self, request: Request) -> Response:
        """The keys of a rule and their connection strings."""
        arm = ArmRequest(request)
        target = "/".join(name for name in (arm.namespace.name, arm.hub_name, arm.rule.name) if name)
        request.context.broker.audit.write(arm.actor.line("list keys", target))
        return json_response(arm.serializer.keys(arm.rule, arm.shown_alias))

    async def regenerate_keys(self, request: Request) -> Response:
        """A new primary or secondary key; the old one opens nothing new from now on."""
        arm = ArmRequest(request)
        body = models.parse_body(models.RegenerateBody, await request.body())
        place = (arm.namespace.name, arm.hub_name, arm.rule.name)
        rule = await await_change(
            lambda done: arm.manager.regenerate_key(
                *place, body.kind, body.key or None, arm.actor, done, revokes_open_links=body.revoke_open_links
            )
        )
        return json_response(arm.serializer.keys(rule, arm.shown_alias))

    # --- pairings ---

    async def check_alias_name(self, request: Request) -> Response:
        """Whether an alias could be created under a name."""
        ArmRequest(request)
        name = models.parse_body(models.CheckNameBody, await request.body()).name
        return json_response(availability(request, name, alias_name))

    async def list_aliases(self, request: Request) -> Response:
        """The pairings of a namespace."""
        arm = ArmRequest(request)
        aliases = request.context.broker.catalog.view.aliases(arm.namespace.name)
        return page_response(request, aliases, lambda alias: alias_json(arm, alias.name))

    async def put_alias(self, request: Request) -> Response:
        """Pair the namespace with another under an alias."""
        arm = ArmRequest(request)
        body = models.parse_body(models.AliasBody, await request.body())
        name, place = alias_name(request.names["alias"]), arm.namespace.name
        aliases = request.context.broker.catalog.planned.aliases(place)
        known = next((one for one in aliases if fold(one.name) == fold(name)), None)
        if known is None or fold(known.partner_namespace) != fold(body.partner):
            await self._pair(request, arm, name, body)
        return json_response(alias_json(arm, name), 201 if known is None else 200)

    async def _pair(self, request: Request, arm: ArmRequest, name: AliasName, body: models.AliasBody) -> None:
        """A partner is looked for on this node first, then among the namespaces on others that it is told of."""
        place, partner, partners = arm.namespace.name, body.partner, request.context.partners
        is_here = request.context.broker.catalog.planned.find_namespace(partner) is not None
        if partners is not None and not is_here and partners.has_partner(partner):
            await partners.pair(arm.namespace, name, partner, body.alternate_name, arm.actor)
        else:
            await await_change(
                lambda done: arm.manager.pair(place, name, partner, body.alternate_name, arm.actor, done)
            )

    async def get_alias(self, request: Request) -> Response:
        """One pairing."""
        arm = ArmRequest(request)
        return json_response(alias_json(arm, request.names["alias"]))

    async def delete_alias(self, request: Request) -> Response:
        """A pairing that was broken."""
        arm = ArmRequest(request)
        place = (arm.namespace.name, request.names["alias"])
        await await_change(lambda done: arm.manager.delete_alias(*place, arm.actor, done))
        return ok_response()

    async def break_pairing(self, request: Request) -> Response:
        """End the replication; asked on the primary, or on a secondary whose primary on another node is lost."""
        arm = ArmRequest(request)
        alias = arm.view.alias(arm.namespace.name, request.names["alias"])
        if request.context.partners is not None and alias.is_replicating_away:
            await request.context.partners.break_pairing(alias, arm.actor)
        else:
            await await_change(lambda done: arm.manager.break_pairing(alias.namespace, alias.name, arm.actor, done))
        return ok_response()

    async def fail_over(self, request: Request) -> Response:
        """The alias moves to the secondary, on which this is asked."""
        arm = ArmRequest(request)
        place = (arm.namespace.name, request.names["alias"])
        await await_change(lambda done: arm.manager.fail_over(*place, arm.actor, done))
        return ok_response()

    # --- application groups ---

    async def list_application_groups(self, request: Request) -> Response:
        """The application groups of a namespace."""
        arm = ArmRequest(request)
        groups = request.context.broker.catalog.view.application_groups(arm.namespace.name)
        return page_response(request, groups, lambda group: arm.serializer.application_group(arm.namespace, group))

    async def put_application_group(self, request: Request) -> Response:
        """Create or replace an application group."""
        arm = ArmRequest(request)
        body = models.parse_body(models.ApplicationGroupBody, await request.body())
        given = body.properties
        group = ApplicationGroup(
            namespace=arm.namespace.name,
            name=application_group_name(request.names["group"]),
            client_id=given.client_app_group_identifier,
            is_enabled=given.is_enabled is not False,
            policies=body.policies(),
        )
        await await_change(lambda done: arm.manager.write_application_group(group, arm.actor, done))
        return json_response(arm.serializer.application_group(arm.namespace, group))

    async def get_application_group(self, request: Request) -> Response:
        """One application group."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.application_group(arm.namespace, arm.application_group))

    async def delete_application_group(self, request: Request) -> Response:
        """An application group."""
        arm = ArmRequest(request)
        group = request.context.broker.catalog.planned.find_application_group(
            arm.namespace.name, request.names["group"]
        )
        if group is None:
            return no_content_response()
        await await_change(lambda done: arm.manager.delete_application_group(group, arm.actor, done))
        return ok_response()

    # --- what is never there ---

    async def list_nothing(self, request: Request) -> Response:
        """An empty list."""
        manager_of_node(request)
        return json_response({"value": []})

    async def list_nothing_in_namespace(self, request: Request) -> Response:
        """An empty list of a namespace that exists."""
        ArmRequest(request)
        return json_response({"value": []})


def _display(kind: str, verb: str) -> Json:
    return {"provider": "Hubmere", "resource": kind, "operation": verb, "description": f"{verb} {kind}"}
