"""The scopes of authorization rules that a person may manage: the namespace and its hubs."""

from hubmere.broker import HubView
from hubmere.model.entity import AccessRule, Hub, Namespace, Rights
from hubmere.model.errors import AlreadyExists
from hubmere.portal.sign_in.portal_session import PageContext

# Scope of a rule on the namespace; not a valid name of a hub.
NAMESPACE_SCOPE = "(namespace)"


def managed_scopes(context: PageContext) -> dict[str, HubView | None]:
    """The scopes that the person may manage, by their names on the page."""
    # The Manage right on the namespace covers all hubs: skip the check of each of up to a thousand hubs.
    if context.may(Rights.MANAGE):
        return {NAMESPACE_SCOPE: None, **{hub.name: hub for hub in context.hubs()}}
    return {hub.name: hub for hub in context.hubs() if context.may(Rights.MANAGE, hub)}


def managed_hub(context: PageContext, scope: str) -> str | None:
    """The name of the hub of a scope, None for the namespace. Refused without the Manage right."""
    hub = None if scope == NAMESPACE_SCOPE else context.hub(scope)
    context.require(Rights.MANAGE, hub)
    return None if hub is None else hub.name


def find_rule(context: PageContext, scope: str, name: str) -> AccessRule:
    """A rule of a scope that the person may manage."""
    return context.session.broker.entities.rule(_entity(context, scope), name)


def require_new_rule(context: PageContext, scope: str, name: str) -> None:
    """Refuse a name in use: writing the rule would change the rights of its clients."""
    if context.session.broker.entities.find_rule(_entity(context, scope), name) is not None:
        raise AlreadyExists(f"{scope}/{name}")


def _entity(context: PageContext, scope: str) -> Namespace | Hub:
    hub = managed_hub(context, scope)
    return context.namespace.entity if hub is None else context.hub(hub).entity
