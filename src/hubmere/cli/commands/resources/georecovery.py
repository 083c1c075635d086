"""`hubmere georecovery-alias`: two namespaces under one name, which moves to the second when the first is lost."""

from hubmere.cli.commands.http import Refused
from hubmere.cli.commands.resources.arm import ALIASES, NAMESPACES, Arm, Json, Resource
from hubmere.cli.commands.resources.rules import rules_group
from hubmere.cli.commands.resources.steps import ALIAS, IN_NAMESPACE
from hubmere.cli.commands.resources.verbs import Field, Verb, a_group, add, delete, list_, put, show
from hubmere.cli.commands.resources.waiting import wait_verb

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
        help="Another name for the namespace when the alias is called like it.",
    ),
)
_WANTED_NAME = Field(
    flags=("--alias", "-a"), path=("name",), metavar="NAME", help="The name that is wanted.", is_required=True
)
_COLUMNS = (
    ("Name", "name"),
    ("Role", "properties.role"),
    ("Partner", "properties.partnerNamespace"),
    ("State", "properties.provisioningState"),
    ("Pending", "properties.pendingReplicationOperationsCount"),
)


def pair(arm: Arm, at: Resource, body: Json) -> Json:
    """Pair; a partner that is neither here nor known of elsewhere is answered with what is here."""
    try:
        return put(arm, at, body)
    except Refused as refused:
        partner = body["properties"]["partnerNamespace"].rstrip("/").rpartition("/")[2]
        raise arm.explained(refused, (NAMESPACES, partner)) from None


def exists(arm: Arm, at: Resource, body: Json) -> Json:
    """Whether an alias of that name could be made."""
    return arm.post(at, "checkNameAvailability", body)


def break_pair(arm: Arm, at: Resource, _: Json) -> Json:
    """End the replication; asked on the primary, which is then shown."""
    arm.post(at, "breakPairing")
    return arm.get(at)


def fail_over(arm: Arm, at: Resource, _: Json) -> Json:
    """Move the alias to the secondary, on which this is asked and which is then shown."""
    arm.post(at, "failover")
    return arm.get(at)


app = a_group("Geo-recovery: an alias for two namespaces, of which the second takes over.")
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
            name="exists", help="Tell whether a name is free.", run=exists, at=_IN, below=(ALIASES,),
            fields=(_WANTED_NAME,),
        ),
        wait_verb(*_AT),
        Verb(name="break-pair", help="End a pairing; asked on the primary.", run=break_pair, at=_AT),
        Verb(name="fail-over", help="Move the alias to the secondary, on which this is asked.", run=fail_over, at=_AT),
    ],
)  # fmt: skip
app.add_typer(rules_group(IN_NAMESPACE, ALIAS, is_read_only=True), name="authorization-rule")
