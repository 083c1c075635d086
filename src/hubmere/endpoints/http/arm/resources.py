"""ARM management of namespaces, hubs, consumer groups, authorization rules and network rules.

For `azure-mgmt-eventhub`, Terraform and Bicep (reference: service 4.2). Any api-version is accepted and answered with
the newest superset. Every change is durable before it is answered, so no operation is long-running. The administrator
may do everything; a holder of Manage on a namespace may do everything inside it.
"""

from collections.abc import Mapping
from dataclasses import replace

from starlette.responses import Response

from hubmere.broker import Caller
from hubmere.endpoints.http.arm import models
from hubmere.endpoints.http.arm.paths import ALIAS, HUB, NAMESPACE, RESOURCE_GROUP, SUBSCRIPTION
from hubmere.endpoints.http.arm.request import (
    ArmRequest,
    availability,
    capture_json,
    delete_response,
    json_response,
    no_content_response,
    ok_response,
    page_response,
    serializer_of,
)
from hubmere.endpoints.http.arm.serializer import PROVIDER, ArmSerializer, Json
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.request import Handler, Request, Routes
from hubmere.model.entity import Rights
from hubmere.model.errors import Conflict, NotSupported
from hubmere.model.names import (
    fold,
    group_name,
    hub_name,
    namespace_name,
    rule_name,
)
from hubmere.model.spec import NamespaceSpec

_OPERATIONS = (
    "namespaces",
    "namespaces/eventhubs",
    "namespaces/eventhubs/consumergroups",
    "namespaces/authorizationRules",
)
_VERBS = ("read", "write", "delete")


class ArmHandlers:
    """The handlers of namespaces, hubs, groups and rules."""

    def routes(self) -> Routes:
        """Handlers by path and method."""
        return {
            f"providers/{PROVIDER}/operations": {"GET": self.operations},
            **self._namespace_routes(),
            **self._rule_routes(),
            **self._hub_routes(),
            **self._empty_routes(),
        }

    def _namespace_routes(self) -> Routes:
        check = {"POST": self.check_namespace_name}
        return {
            f"{SUBSCRIPTION}/checkNameAvailability": check,
            f"{SUBSCRIPTION}/checkNamespaceAvailability": check,
            f"{SUBSCRIPTION}/namespaces": {"GET": self.list_namespaces},
            f"{RESOURCE_GROUP}/namespaces": {"GET": self.list_namespaces},
            NAMESPACE: {
                "PUT": self.put_namespace,
                "PATCH": self.patch_namespace,
                "GET": self.get_namespace,
                "DELETE": self.delete_namespace,
            },
            f"{NAMESPACE}/failover": {"POST": self.fail_over_namespace},
            f"{NAMESPACE}/networkRuleSets": {"GET": self.list_network},
            f"{NAMESPACE}/networkRuleSets/default": {"PUT": self.put_network, "GET": self.get_network},
        }

    def _rule_routes(self) -> Routes:
        routes: dict[str, Mapping[str, Handler]] = {}
        for scope in (NAMESPACE, HUB):
            rule = f"{scope}/authorizationRules/{{rule}}"
            routes[f"{scope}/authorizationRules"] = {"GET": self.list_rules}
            routes[rule] = {"PUT": self.put_rule, "GET": self.get_rule, "DELETE": self.delete_rule}
            routes[f"{rule}/listKeys"] = {"POST": self.list_keys}
            routes[f"{rule}/regenerateKeys"] = {"POST": self.regenerate_keys}
        # A pairing shows the rules of its namespace.
        rule = f"{ALIAS}/authorizationRules/{{rule}}"
        routes[f"{ALIAS}/authorizationRules"] = {"GET": self.list_rules}
        routes[rule] = {"GET": self.get_rule}
        routes[f"{rule}/listKeys"] = {"POST": self.list_keys}
        return routes

    def _hub_routes(self) -> Routes:
        return {
            f"{NAMESPACE}/eventhubs": {"GET": self.list_hubs},
            HUB: {"PUT": self.put_hub, "GET": self.get_hub, "DELETE": self.delete_hub},
            f"{NAMESPACE}/captureStates": {"GET": self.list_capture_states},
            f"{HUB}/captureStates": {"GET": self.list_capture_states_of_hub},
            f"{HUB}/captureStates/default": {"GET": self.get_capture_state},
            f"{HUB}/consumergroups": {"GET": self.list_groups},
            f"{HUB}/consumergroups/{{group}}": {
                "PUT": self.put_group,
                "GET": self.get_group,
                "DELETE": self.delete_group,
            },
        }

    def _empty_routes(self) -> Routes:
        """Kinds of resources that a node never has: clients list them on the way to others."""
        of_namespace = (
            "schemagroups", "privateEndpointConnections", "privateLinkResources",
            "networkSecurityPerimeterConfigurations",
        )  # fmt: skip
        empty: dict[str, Mapping[str, Handler]] = {
            f"{NAMESPACE}/{kind}": {"GET": self.list_nothing_in_namespace} for kind in of_namespace
        }
        return empty | {
            f"{SUBSCRIPTION}/clusters": {"GET": self.list_nothing},
            f"{SUBSCRIPTION}/availableClusterRegions": {"GET": self.list_nothing},
            f"{RESOURCE_GROUP}/clusters": {"GET": self.list_nothing},
        }

    # --- namespaces ---

    async def operations(self, request: Request) -> Response:
        """The operations of the provider, which clients read before anything else."""
        operations: list[Json] = [
            {"name": f"{PROVIDER}/{kind}/{verb}", "isDataAction": False, "display": _display(kind, verb)}
            for kind in _OPERATIONS
            for verb in _VERBS
        ]
        return json_response({"value": operations})

    async def check_namespace_name(self, request: Request) -> Response:
        """Whether a namespace could be created under a name."""
        request.sign_in_admin()
        name = models.parse_body(models.CheckNameBody, await request.body()).name
        return json_response(availability(request, name, namespace_name))

    async def list_namespaces(self, request: Request) -> Response:
        """The namespaces that the caller manages."""
        caller = request.sign_in_manager(request.context.broker.namespace_at(request.host).name)
        namespaces = [namespace.entity for namespace in caller.namespaces()]
        serializer = ArmSerializer(
            addresses=request.context.addresses, resource_group=request.names.get("resourceGroup")
        )
        return page_response(request, namespaces, serializer.namespace)

    async def put_namespace(self, request: Request) -> Response:
        """Create a namespace, or replace its settings."""
        existing = request.context.broker.planned_entities.find_namespace(request.names["namespace"])
        if existing is None:
            return await self._create_namespace(request, request.sign_in_admin())
        arm = ArmRequest(request)
        body = models.parse_body(models.NamespaceBody, await request.body())
        base = NamespaceSpec(
            subscription=existing.subscription, resource_group=existing.resource_group, location=existing.location
        )
        entity = await await_change(
            lambda on_done: arm.manager.update_namespace(existing.name, body.spec(base), arm.actor, on_done)
        )
        return json_response(arm.serializer.namespace(entity))

    async def _create_namespace(self, request: Request, caller: Caller) -> Response:
        name = namespace_name(request.names["namespace"])
        body = models.parse_body(models.NamespaceBody, await request.body())
        base = NamespaceSpec(subscription=request.names["subscription"], resource_group=request.names["resourceGroup"])
        manager, actor = request.context.broker.manager, request.actor(caller)
        entity = await await_change(lambda on_done: manager.create_namespace(name, body.spec(base), actor, on_done))
        return json_response(serializer_of(request).namespace(entity), 201)

    async def patch_namespace(self, request: Request) -> Response:
        """Change some settings of a namespace and keep the others."""
        arm = ArmRequest(request)
        body = models.parse_body(models.NamespaceBody, await request.body())
        spec = body.spec(NamespaceSpec.of(arm.namespace))
        if not spec.auto_inflate:
            spec = replace(spec, maximum_throughput_units=0, minimum_throughput_units=0)
        entity = await await_change(
            lambda on_done: arm.manager.update_namespace(arm.namespace.name, spec, arm.actor, on_done)
        )
        return json_response(arm.serializer.namespace(entity))

    async def get_namespace(self, request: Request) -> Response:
        """One namespace."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.namespace(arm.namespace))

    async def delete_namespace(self, request: Request) -> Response:
        """Delete a namespace with everything in it; the node's own namespace cannot be deleted."""
        arm = ArmRequest.of_existing(request)
        if arm is None:
            return no_content_response()
        if fold(arm.namespace.name) == fold(request.context.addresses.namespace):
            raise Conflict(f"The namespace '{arm.namespace.name}' is the node's own and cannot be deleted.")
        await await_change(lambda on_done: arm.manager.delete_namespace(arm.namespace.name, arm.actor, on_done))
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
        entity = await await_change(lambda on_done: arm.manager.update_network(name, rules, arm.actor, on_done))
        if access is not entity.public_network_access:
            spec = replace(NamespaceSpec.of(entity), public_network_access=access)
            entity = await await_change(lambda on_done: arm.manager.update_namespace(name, spec, arm.actor, on_done))
        return json_response(arm.serializer.network(entity))

    # --- hubs and groups ---

    async def list_hubs(self, request: Request) -> Response:
        """The hubs of a namespace."""
        arm = ArmRequest(request)
        hubs = arm.entities.hubs(arm.namespace.name)
        return page_response(request, hubs, lambda hub: arm.serializer.hub(arm.namespace, hub))

    async def put_hub(self, request: Request) -> Response:
        """Create a hub, or replace its settings."""
        arm = ArmRequest(request)
        spec = models.parse_body(models.HubBody, await request.body()).spec()
        namespace = arm.namespace.name
        if arm.planned.find_hub(namespace, request.names["hub"]) is None:
            name = hub_name(request.names["hub"])
            hub = await await_change(lambda on_done: arm.manager.create_hub(namespace, name, spec, arm.actor, on_done))
        else:
            hub = await await_change(
                lambda on_done: arm.manager.update_hub(namespace, request.names["hub"], spec, arm.actor, on_done)
            )
        return json_response(arm.serializer.hub(arm.namespace, hub))

    async def get_hub(self, request: Request) -> Response:
        """One hub."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.hub(arm.namespace, arm.hub))

    async def delete_hub(self, request: Request) -> Response:
        """Delete a hub with everything in it."""
        arm = ArmRequest(request)
        return await delete_response(
            arm.planned.find_hub(arm.namespace.name, request.names["hub"]),
            lambda hub, on_done: arm.manager.delete_hub(hub.namespace, hub.name, arm.actor, on_done),
        )

    async def list_capture_states(self, request: Request) -> Response:
        """The capture state of every captured hub of a namespace."""
        arm = ArmRequest(request)
        captured = request.context.broker.captures.hubs()
        hubs = [hub.entity for hub in captured if fold(hub.entity.namespace) == fold(arm.namespace.name)]
        return page_response(request, hubs, lambda hub: capture_json(request, arm, hub))

    async def list_capture_states_of_hub(self, request: Request) -> Response:
        """The one state of a hub, as a list."""
        arm = ArmRequest(request)
        return json_response({"value": [capture_json(request, arm, arm.hub, has_partitions=True)]})

    async def get_capture_state(self, request: Request) -> Response:
        """The capture state of a hub: state, lag, last files."""
        arm = ArmRequest(request)
        return json_response(capture_json(request, arm, arm.hub, has_partitions=True))

    async def list_groups(self, request: Request) -> Response:
        """The consumer groups of a hub."""
        arm = ArmRequest(request)
        hub = arm.hub
        groups = arm.entities.groups(hub)
        return page_response(request, groups, lambda group: arm.serializer.group(arm.namespace, hub, group))

    async def put_group(self, request: Request) -> Response:
        """Create a consumer group, or replace its metadata."""
        arm = ArmRequest(request)
        hub, metadata = arm.hub, models.parse_body(models.GroupBody, await request.body()).metadata
        name, path = group_name(request.names["group"]), (arm.namespace.name, arm.hub.name)
        if arm.planned.find_group(hub, name) is None:
            group = await await_change(
                lambda on_done: arm.manager.create_group(*path, name, metadata, arm.actor, on_done)
            )
        else:
            group = await await_change(
                lambda on_done: arm.manager.update_group(*path, name, metadata, arm.actor, on_done)
            )
        return json_response(arm.serializer.group(arm.namespace, hub, group))

    async def get_group(self, request: Request) -> Response:
        """One consumer group."""
        arm = ArmRequest(request)
        group = arm.entities.group(arm.hub, request.names["group"])
        return json_response(arm.serializer.group(arm.namespace, arm.hub, group))

    async def delete_group(self, request: Request) -> Response:
        """Delete a consumer group and disconnect its readers."""
        arm = ArmRequest(request)
        path = (arm.namespace.name, arm.hub.name)
        return await delete_response(
            arm.planned.find_group(arm.hub, request.names["group"]),
            lambda group, on_done: arm.manager.delete_group(*path, group.name, arm.actor, on_done),
        )

    # --- authorization rules ---

    async def list_rules(self, request: Request) -> Response:
        """The rules of a namespace, a hub or a pairing, without their keys."""
        arm = ArmRequest(request)
        rules = arm.entities.rules(arm.rule_scope)
        return page_response(request, rules, lambda rule: arm.serializer.rule(arm.namespace, rule, arm.alias))

    async def put_rule(self, request: Request) -> Response:
        """Create a rule with random keys, or change its rights."""
        arm = ArmRequest(request)
        rights = Rights.parse(models.parse_body(models.RuleBody, await request.body()).rights)
        name, hub = rule_name(request.names["rule"]), arm.hub_name
        rule = await await_change(
            lambda on_done: arm.manager.write_rule(arm.namespace.name, hub, name, rights, arm.actor, on_done)
        )
        return json_response(arm.serializer.rule(arm.namespace, rule))

    async def get_rule(self, request: Request) -> Response:
        """One rule, without its keys."""
        arm = ArmRequest(request)
        return json_response(arm.serializer.rule(arm.namespace, arm.rule, arm.alias))

    async def delete_rule(self, request: Request) -> Response:
        """Delete a rule; its tokens open nothing new."""
        arm = ArmRequest(request)
        hub = arm.hub_name
        return await delete_response(
            arm.planned.find_rule(arm.rule_scope, request.names["rule"]),
            lambda rule, on_done: arm.manager.delete_rule(arm.namespace.name, hub, rule.name, arm.actor, on_done),
        )

    async def list_keys(self, request: Request) -> Response:
        """The keys of a rule and their connection strings."""
        arm = ArmRequest(request)
        target = "/".join(name for name in (arm.namespace.name, arm.hub_name, arm.rule.name) if name)
        request.context.broker.audit.write(arm.actor.line("list keys", target))
        return json_response(arm.serializer.keys(arm.rule, arm.connection_alias))

    async def regenerate_keys(self, request: Request) -> Response:
        """Replace the primary or secondary key; the old key opens nothing new."""
        arm = ArmRequest(request)
        body = models.parse_body(models.RegenerateBody, await request.body())
        path = (arm.namespace.name, arm.hub_name, arm.rule.name)
        rule = await await_change(
            lambda on_done: arm.manager.regenerate_key(
                *path, body.kind, body.key or None, arm.actor, on_done, revokes_open_links=body.revoke_open_links
            )
        )
        return json_response(arm.serializer.keys(rule, arm.connection_alias))

    # --- kinds of resources that a node never has ---

    async def list_nothing(self, request: Request) -> Response:
        """An empty list."""
        request.sign_in_admin()
        return json_response({"value": []})

    async def list_nothing_in_namespace(self, request: Request) -> Response:
        """An empty list in an existing namespace."""
        ArmRequest(request)
        return json_response({"value": []})


def _display(kind: str, verb: str) -> Json:
    return {"provider": "Hubmere", "resource": kind, "operation": verb, "description": f"{verb} {kind}"}
