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
    alias_shape,
    availability,
    capture_shape,
    done_answer,
    frame_of,
    gone_answer,
    json_answer,
    manager_of_node,
    page_answer,
)
from hubmere.endpoints.http.arm.shapes import PROVIDER, Frame, Json
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.pairing.replica import ReplicaPlane
from hubmere.endpoints.http.request import Handler, Request, Table
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


class ArmPlane:
    """The handlers of the ARM plane."""

    def table(self) -> Table:
        """Handlers by path and method."""
        return {
            f"providers/{PROVIDER}/operations": {"GET": self.operations},
            **self._namespace_table(),
            **self._rule_table(),
            **self._hub_table(),
            **self._alias_table(),
            **self._empty_table(),
        }

    def _namespace_table(self) -> Table:
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

    def _rule_table(self) -> Table:
        table: dict[str, Mapping[str, Handler]] = {}
        for scope in (_NAMESPACE, _HUB):
            rule = f"{scope}/authorizationRules/{{rule}}"
            table[f"{scope}/authorizationRules"] = {"GET": self.list_rules}
            table[rule] = {"PUT": self.put_rule, "GET": self.get_rule, "DELETE": self.delete_rule}
            table[f"{rule}/listKeys"] = {"POST": self.list_keys}
            table[f"{rule}/regenerateKeys"] = {"POST": self.regenerate_keys}
        return table

    def _hub_table(self) -> Table:
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

    def _alias_table(self) -> Table:
        return {
            f"{_NAMESPACE}/disasterRecoveryConfigs/checkNameAvailability": {"POST": self.check_alias_name},
            f"{_NAMESPACE}/disasterRecoveryConfigs": {"GET": self.list_aliases},
            _ALIAS: {"PUT": self.put_alias, "GET": self.get_alias, "DELETE": self.delete_alias},
            f"{_ALIAS}/breakPairing": {"POST": self.break_pairing},
            f"{_ALIAS}/failover": {"POST": self.fail_over},
            **ReplicaPlane().table(_ALIAS),
            f"{_ALIAS}/authorizationRules": {"GET": self.list_rules},
            f"{_ALIAS}/authorizationRules/{{rule}}": {"GET": self.get_rule},
            f"{_ALIAS}/authorizationRules/{{rule}}/listKeys": {"POST": self.list_keys},
        }

    def _empty_table(self) -> Table:
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

    async def operations(self, call: Request) -> Response:
        """What can be done to what: asked by clients before anything else, without a namespace."""
        shown: list[Json] = [
            {"name": f"{PROVIDER}/{kind}/{verb}", "isDataAction": False, "display": _display(kind, verb)}
            for kind in _OPERATIONS
            for verb in _VERBS
        ]
        return json_answer({"value": shown})

    async def check_namespace_name(self, call: Request) -> Response:
        """Whether a namespace could be created under a name."""
        manager_of_node(call)
        name = models.parsed(models.CheckNameBody, await call.body()).name
        return json_answer(availability(call, name, namespace_name))

    async def list_namespaces(self, call: Request) -> Response:
        """The namespaces that the caller manages."""
        here = call.context.namespace_at(call.host)
        principal = call.known_as(call.context.identity.of_manager(here, call.authorization))
        everything = call.context.broker.catalog.view.namespaces()
        shown = [one for one in everything if principal.is_admin or fold(one.name) == principal.namespace]
        frame = Frame(addresses=call.context.addresses, resource_group=call.names.get("resourceGroup"))
        return page_answer(call, shown, lambda one: frame.namespace(one))

    async def put_namespace(self, call: Request) -> Response:
        """Create a namespace, or replace its settings."""
        known = call.context.broker.catalog.planned.find_namespace(call.names["namespace"])
        if known is None:
            principal = manager_of_node(call)
            return await self._create_namespace(call, principal)
        ask = ArmRequest(call)
        body = models.parsed(models.NamespaceBody, await call.body())
        base = NamespaceSpec(
            subscription=known.subscription, resource_group=known.resource_group, location=known.location
        )
        entity = await await_change(
            lambda done: ask.manager.update_namespace(known.name, body.spec(base), ask.actor, done)
        )
        return json_answer(ask.frame.namespace(entity))

    async def _create_namespace(self, call: Request, principal: Principal) -> Response:
        name = namespace_name(call.names["namespace"])
        body = models.parsed(models.NamespaceBody, await call.body())
        base = NamespaceSpec(subscription=call.names["subscription"], resource_group=call.names["resourceGroup"])
        manager, actor = call.context.broker.manager, call.context.actor(principal, call.scope)
        entity = await await_change(lambda done: manager.create_namespace(name, body.spec(base), actor, done))
        return json_answer(frame_of(call).namespace(entity), 201)

    async def patch_namespace(self, call: Request) -> Response:
        """Change some settings of a namespace and keep the others."""
        ask = ArmRequest(call)
        body = models.parsed(models.NamespaceBody, await call.body())
        spec = body.spec(NamespaceSpec.of(ask.namespace))
        if not spec.auto_inflate:
            spec = replace(spec, maximum_throughput_units=0, minimum_throughput_units=0)
        entity = await await_change(
            lambda done: ask.manager.update_namespace(ask.namespace.name, spec, ask.actor, done)
        )
        return json_answer(ask.frame.namespace(entity))

    async def get_namespace(self, call: Request) -> Response:
        """One namespace."""
        ask = ArmRequest(call)
        return json_answer(ask.frame.namespace(ask.namespace))

    async def delete_namespace(self, call: Request) -> Response:
        """A namespace with everything in it; the node keeps its own, or it could not be reached any more."""
        ask = ArmRequest.maybe(call)
        if ask is None:
            return gone_answer()
        if fold(ask.namespace.name) == fold(call.context.addresses.namespace):
            raise Conflict(f"The namespace '{ask.namespace.name}' is the node's own and cannot be deleted.")
        await await_change(lambda done: ask.manager.delete_namespace(ask.namespace.name, ask.actor, done))
        return done_answer()

    async def fail_over_namespace(self, call: Request) -> Response:
        """Geo-replication of data is not offered; metadata pairings fail over by their alias."""
        ArmRequest(call)
        raise NotSupported("Failover of a namespace without an alias")

    # --- network rules ---

    async def list_network(self, call: Request) -> Response:
        """The one rule set of a namespace, as a list."""
        ask = ArmRequest(call)
        return json_answer({"value": [ask.frame.network(ask.namespace)]})

    async def get_network(self, call: Request) -> Response:
        """The network rules of a namespace."""
        ask = ArmRequest(call)
        return json_answer(ask.frame.network(ask.namespace))

    async def put_network(self, call: Request) -> Response:
        """Replace the network rules of a namespace, effective on every port at once."""
        ask = ArmRequest(call)
        body = models.parsed(models.NetworkBody, await call.body())
        name, rules, access = ask.namespace.name, body.rules(), body.access(ask.namespace)
        entity = await await_change(lambda done: ask.manager.update_network(name, rules, ask.actor, done))
        if access is not entity.public_network_access:
            spec = replace(NamespaceSpec.of(entity), public_network_access=access)
            entity = await await_change(lambda done: ask.manager.update_namespace(name, spec, ask.actor, done))
        return json_answer(ask.frame.network(entity))

    # --- hubs and groups ---

    async def list_hubs(self, call: Request) -> Response:
        """The hubs of a namespace."""
        ask = ArmRequest(call)
        hubs = call.context.broker.catalog.view.hubs(ask.namespace.name)
        return page_answer(call, hubs, lambda hub: ask.frame.hub(ask.namespace, hub))

    async def put_hub(self, call: Request) -> Response:
        """Create a hub, or replace its settings."""
        ask = ArmRequest(call)
        spec = models.parsed(models.HubBody, await call.body()).spec()
        place = ask.namespace.name
        if call.context.broker.catalog.planned.find_hub(place, call.names["hub"]) is None:
            name = hub_name(call.names["hub"])
            hub = await await_change(lambda done: ask.manager.create_hub(place, name, spec, ask.actor, done))
        else:
            hub = await await_change(
                lambda done: ask.manager.update_hub(place, call.names["hub"], spec, ask.actor, done)
            )
        return json_answer(ask.frame.hub(ask.namespace, hub))

    async def get_hub(self, call: Request) -> Response:
        """One hub."""
        ask = ArmRequest(call)
        return json_answer(ask.frame.hub(ask.namespace, ask.hub))

    async def delete_hub(self, call: Request) -> Response:
        """A hub with everything in it."""
        ask = ArmRequest(call)
        hub = call.context.broker.catalog.planned.find_hub(ask.namespace.name, call.names["hub"])
        if hub is None:
            return gone_answer()
        await await_change(lambda done: ask.manager.delete_hub(ask.namespace.name, hub.name, ask.actor, done))
        return done_answer()

    async def list_capture_states(self, call: Request) -> Response:
        """How the capture of every captured hub of a namespace goes."""
        ask = ArmRequest(call)
        place = fold(ask.namespace.name)
        hubs = [hub.entity for hub in call.context.broker.captures.hubs() if fold(hub.entity.namespace) == place]
        return page_answer(call, hubs, lambda hub: capture_shape(call, ask, hub))

    async def list_capture_states_of_hub(self, call: Request) -> Response:
        """The one state of a hub, as a list."""
        ask = ArmRequest(call)
        return json_answer({"value": [capture_shape(call, ask, ask.hub, has_partitions=True)]})

    async def get_capture_state(self, call: Request) -> Response:
        """How the capture of a hub goes: state, lag, last files."""
        ask = ArmRequest(call)
        return json_answer(capture_shape(call, ask, ask.hub, has_partitions=True))

    async def list_groups(self, call: Request) -> Response:
        """The consumer groups of a hub."""
        ask = ArmRequest(call)
        hub = ask.hub
        groups = call.context.broker.catalog.view.groups(hub)
        return page_answer(call, groups, lambda group: ask.frame.group(ask.namespace, hub, group))

    async def put_group(self, call: Request) -> Response:
        """Create a consumer group, or replace its metadata."""
        ask = ArmRequest(call)
        hub, metadata = ask.hub, models.parsed(models.GroupBody, await call.body()).metadata
        name, place = group_name(call.names["group"]), (ask.namespace.name, ask.hub.name)
        if call.context.broker.catalog.planned.find_group(hub, name) is None:
            group = await await_change(lambda done: ask.manager.create_group(*place, name, metadata, ask.actor, done))
        else:
            group = await await_change(lambda done: ask.manager.update_group(*place, name, metadata, ask.actor, done))
        return json_answer(ask.frame.group(ask.namespace, hub, group))

    async def get_group(self, call: Request) -> Response:
        """One consumer group."""
        ask = ArmRequest(call)
        group = call.context.broker.catalog.view.group(ask.hub, call.names["group"])
        return json_answer(ask.frame.group(ask.namespace, ask.hub, group))

    async def delete_group(self, call: Request) -> Response:
        """A consumer group; its readers are let go."""
        ask = ArmRequest(call)
        place = (ask.namespace.name, ask.hub.name)
        group = call.context.broker.catalog.planned.find_group(ask.hub, call.names["group"])
        if group is None:
            return gone_answer()
        await await_change(lambda done: ask.manager.delete_group(*place, group.name, ask.actor, done))
        return done_answer()

    # --- authorization rules ---

    async def list_rules(self, call: Request) -> Response:
        """The rules of a namespace, a hub or a pairing, without their keys."""
        ask = ArmRequest(call)
        rules = call.context.broker.catalog.view.rules(ask.rule_scope)
        return page_answer(call, rules, lambda rule: ask.frame.rule(ask.namespace, rule, ask.alias))

    async def put_rule(self, call: Request) -> Response:
        """Create a rule with random keys, or give it other rights."""
        ask = ArmRequest(call)
        rights = Rights.parse(models.parsed(models.RuleBody, await call.body()).rights)
        name, hub = rule_name(call.names["rule"]), ask.hub_name
        rule = await await_change(
            lambda done: ask.manager.write_rule(ask.namespace.name, hub, name, rights, ask.actor, done)
        )
        return json_answer(ask.frame.rule(ask.namespace, rule))

    async def get_rule(self, call: Request) -> Response:
        """One rule, without its keys."""
        ask = ArmRequest(call)
        return json_answer(ask.frame.rule(ask.namespace, ask.rule, ask.alias))

    async def delete_rule(self, call: Request) -> Response:
        """A rule; its tokens are good for nothing new."""
        ask = ArmRequest(call)
        rule = call.context.broker.catalog.planned.find_rule(ask.rule_scope, call.names["rule"])
        if rule is None:
            return gone_answer()
        hub = ask.hub_name
        await await_change(lambda done: ask.manager.delete_rule(ask.namespace.name, hub, rule.name, ask.actor, done))
        return done_answer()

    async def list_keys(self, call: Request) -> Response:
        """The keys of a rule and their connection strings."""
        ask = ArmRequest(call)
        target = "/".join(name for name in (ask.namespace.name, ask.hub_name, ask.rule.name) if name)
        call.context.broker.audit.write(ask.actor.line("list keys", target))
        return json_answer(ask.frame.keys(ask.rule, ask.shown_alias))

    async def regenerate_keys(self, call: Request) -> Response:
        """A new primary or secondary key; the old one opens nothing new from now on."""
        ask = ArmRequest(call)
        body = models.parsed(models.RegenerateBody, await call.body())
        place = (ask.namespace.name, ask.hub_name, ask.rule.name)
        rule = await await_change(
            lambda done: ask.manager.regenerate_key(
                *place, body.kind, body.key or None, ask.actor, done, revokes_open_links=body.revoke_open_links
            )
        )
        return json_answer(ask.frame.keys(rule, ask.shown_alias))

    # --- pairings ---

    async def check_alias_name(self, call: Request) -> Response:
        """Whether an alias could be created under a name."""
        ArmRequest(call)
        name = models.parsed(models.CheckNameBody, await call.body()).name
        return json_answer(availability(call, name, alias_name))

    async def list_aliases(self, call: Request) -> Response:
        """The pairings of a namespace."""
        ask = ArmRequest(call)
        aliases = call.context.broker.catalog.view.aliases(ask.namespace.name)
        return page_answer(call, aliases, lambda alias: alias_shape(ask, alias.name))

    async def put_alias(self, call: Request) -> Response:
        """Pair the namespace with another under an alias."""
        ask = ArmRequest(call)
        body = models.parsed(models.AliasBody, await call.body())
        name, place = alias_name(call.names["alias"]), ask.namespace.name
        aliases = call.context.broker.catalog.planned.aliases(place)
        known = next((one for one in aliases if fold(one.name) == fold(name)), None)
        if known is None or fold(known.partner_namespace) != fold(body.partner):
            await self._pair(call, ask, name, body)
        return json_answer(alias_shape(ask, name), 201 if known is None else 200)

    async def _pair(self, call: Request, ask: ArmRequest, name: AliasName, body: models.AliasBody) -> None:
        """A partner is looked for on this node first, then among the namespaces on others that it is told of."""
        place, partner, partners = ask.namespace.name, body.partner, call.context.partners
        is_here = call.context.broker.catalog.planned.find_namespace(partner) is not None
        if partners is not None and not is_here and partners.knows(partner):
            await partners.pair(ask.namespace, name, partner, body.alternate_name, ask.actor)
        else:
            await await_change(
                lambda done: ask.manager.pair(place, name, partner, body.alternate_name, ask.actor, done)
            )

    async def get_alias(self, call: Request) -> Response:
        """One pairing."""
        ask = ArmRequest(call)
        return json_answer(alias_shape(ask, call.names["alias"]))

    async def delete_alias(self, call: Request) -> Response:
        """A pairing that was broken."""
        ask = ArmRequest(call)
        place = (ask.namespace.name, call.names["alias"])
        await await_change(lambda done: ask.manager.delete_alias(*place, ask.actor, done))
        return done_answer()

    async def break_pairing(self, call: Request) -> Response:
        """End the replication; asked on the primary, or on a secondary whose primary on another node is lost."""
        ask = ArmRequest(call)
        alias = ask.view.alias(ask.namespace.name, call.names["alias"])
        if call.context.partners is not None and alias.is_replicating_away:
            await call.context.partners.break_pairing(alias, ask.actor)
        else:
            await await_change(lambda done: ask.manager.break_pairing(alias.namespace, alias.name, ask.actor, done))
        return done_answer()

    async def fail_over(self, call: Request) -> Response:
        """The alias moves to the secondary, on which this is asked."""
        ask = ArmRequest(call)
        place = (ask.namespace.name, call.names["alias"])
        await await_change(lambda done: ask.manager.fail_over(*place, ask.actor, done))
        return done_answer()

    # --- application groups ---

    async def list_application_groups(self, call: Request) -> Response:
        """The application groups of a namespace."""
        ask = ArmRequest(call)
        groups = call.context.broker.catalog.view.application_groups(ask.namespace.name)
        return page_answer(call, groups, lambda group: ask.frame.application_group(ask.namespace, group))

    async def put_application_group(self, call: Request) -> Response:
        """Create or replace an application group."""
        ask = ArmRequest(call)
        body = models.parsed(models.ApplicationGroupBody, await call.body())
        given = body.properties
        group = ApplicationGroup(
            namespace=ask.namespace.name,
            name=application_group_name(call.names["group"]),
            client_id=given.client_app_group_identifier,
            is_enabled=given.is_enabled is not False,
            policies=body.policies(),
        )
        await await_change(lambda done: ask.manager.write_application_group(group, ask.actor, done))
        return json_answer(ask.frame.application_group(ask.namespace, group))

    async def get_application_group(self, call: Request) -> Response:
        """One application group."""
        ask = ArmRequest(call)
        return json_answer(ask.frame.application_group(ask.namespace, ask.application_group))

    async def delete_application_group(self, call: Request) -> Response:
        """An application group."""
        ask = ArmRequest(call)
        group = call.context.broker.catalog.planned.find_application_group(ask.namespace.name, call.names["group"])
        if group is None:
            return gone_answer()
        await await_change(lambda done: ask.manager.delete_application_group(group, ask.actor, done))
        return done_answer()

    # --- what is never there ---

    async def list_nothing(self, call: Request) -> Response:
        """An empty list."""
        manager_of_node(call)
        return json_answer({"value": []})

    async def list_nothing_in_namespace(self, call: Request) -> Response:
        """An empty list of a namespace that exists."""
        ArmRequest(call)
        return json_answer({"value": []})


def _display(kind: str, verb: str) -> Json:
    return {"provider": "Hubmere", "resource": kind, "operation": verb, "description": f"{verb} {kind}"}
