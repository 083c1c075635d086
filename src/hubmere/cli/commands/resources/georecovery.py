"""`hubmere georecovery-alias`: one alias for two namespaces; a failover moves it to the secondary."""

from hubmere.cli.arm.client import ALIASES, NAMESPACES, Arm, Json, Resource
from hubmere.cli.arm.steps import ALIAS, IN_NAMESPACE
from hubmere.cli.arm.verbs import Field, Verb, a_group, add, delete, list_, put, show
from hubmere.cli.arm.waiting import wait_verb
from hubmere.cli.commands.resources.rules import rules_group
from hubmere.cli.target.http import Refused

_AT = (IN_NAMESPACE, ALIAS)
_IN = (IN_NAMESPACE,)
_FIELDS = (
    Field(
        flags=("--partner-namespace",),
        path=("properties", "partnerNamespace"),
        metavar="NAME",
        help="The namespace that takes over: its name or resource id.",
        is_required=True,
    ),
    Field(
        flags=("--alternate-name",),
        path=("properties", "alternateName"),
        metavar="NAME",
        help="Another name for the namespace, if the alias has the namespace's name.",
    ),
)
_WANTED_NAME = Field(flags=("--alias", "-a"), path=("name",), metavar="NAME", help="Name to check.", is_required=True)
_COLUMNS = (
    ("Name", "name"),
    ("Role", "properties.role"),
    ("Partner", "properties.partnerNamespace"),
    ("State", "properties.provisioningState"),
    ("Pending", "properties.pendingReplicationOperationsCount"),
)


def pair(arm: Arm, at: Resource, body: Json) -> Json:
    """Pair two namespaces; the error for an unknown partner lists the namespaces of the node."""
    try:
        return put(arm, at, body)
    except Refused as refused:
        partner = body["properties"]["partnerNamespace"].rstrip("/").rpartition("/")[2]
        raise arm.explain(refused, (NAMESPACES, partner)) from None


def exists(arm: Arm, at: Resource, body: Json) -> Json:
    """Whether the name of a new alias is free."""
    return arm.post(at, "checkNameAvailability", body)


def break_pair(arm: Arm, at: Resource, _: Json) -> Json:
    """End the replication, on the primary, and return the primary."""
    arm.post(at, "breakPairing")
    return arm.get(at)


def fail_over(arm: Arm, at: Resource, _: Json) -> Json:
    """Move the alias to the secondary, which runs this, and return the secondary."""
    arm.post(at, "failover")
    return arm.get(at)


app = a_group("Geo-recovery: one alias for two namespaces, of which the second takes over.")
add(
    app,
    [
        Verb(name="set", help="Pair the namespace with another under an alias.", run=pair, at=_AT, fields=_FIELDS),
        Verb(name="create", help="The same as set.", run=pair, at=_AT, fields=_FIELDS),
        Verb(name="show", help="Show a pairing.", run=show, at=_AT),
        Verb(name="list", help="List the pairings.", run=list_, at=_IN, below=(ALIASES,), columns=_COLUMNS),
        Verb(
            name="delete", help="Delete a pairing that was broken.", run=delete, at=_AT,
            question="Delete the pairing '{name}'?",
        ),
        Verb(
            name="exists", help="Check whether a name is free.", run=exists, at=_IN, below=(ALIASES,),
            fields=(_WANTED_NAME,),
        ),
        wait_verb(*_AT),
        Verb(name="break-pair", help="End a pairing; run it on the primary.", run=break_pair, at=_AT),
        Verb(name="fail-over", help="Move the alias to the secondary; run it on the secondary.", run=fail_over, at=_AT),
    ],
)  # fmt: skip
app.add_typer(rules_group(IN_NAMESPACE, ALIAS, is_read_only=True), name="authorization-rule")
