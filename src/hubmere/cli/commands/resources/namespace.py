"""`hubmere namespace`: namespaces, their authorization rules, network rules and application groups."""

from hubmere.cli.arm.client import NAMESPACES, Arm, Json, Resource
from hubmere.cli.arm.steps import IN_NAMESPACE, NAMED_NAMESPACE, OWN_NAMESPACE
from hubmere.cli.arm.verbs import (
    SWITCH,
    Field,
    Switch,
    Verb,
    a_group,
    add,
    delete,
    list_,
    pairs,
    patch,
    put,
    show,
    some_of,
)
from hubmere.cli.arm.waiting import wait_verb
from hubmere.cli.commands.resources.applicationgroup import application_groups_group
from hubmere.cli.commands.resources.network import ACCESS, network_group
from hubmere.cli.commands.resources.rules import rules_group
from hubmere.model.tier import Tier

FIELDS = (
    Field(flags=("--location", "-l"), path=("location",), metavar="NAME", help="Region that is shown."),
    Field(
        flags=("--sku",),
        path=("sku", "name"),
        type=some_of("Sku", Tier.BASIC, Tier.STANDARD, Tier.PREMIUM),
        metavar="Basic|Standard|Premium",
        help="Tier, which sets the limits.",
    ),
    Field(flags=("--capacity",), path=("sku", "capacity"), type=int, metavar="N", help="Throughput units."),
    Field(
        flags=("--enable-auto-inflate",),
        path=("properties", "isAutoInflateEnabled"),
        type=Switch,
        metavar=SWITCH,
        help="Enable auto-inflate: throughput units grow under load.",
    ),
    Field(
        flags=("--maximum-throughput-units",),
        path=("properties", "maximumThroughputUnits"),
        type=int,
        metavar="N",
        help="Maximum of throughput units for auto-inflate.",
    ),
    Field(
        flags=("--minimum-throughput-units",),
        path=("properties", "minimumThroughputUnits"),
        type=int,
        metavar="N",
        help="Minimum to which throughput units shrink after a quiet time; 0: they do not shrink.",
    ),
    Field(
        flags=("--enable-kafka",),
        path=("properties", "kafkaEnabled"),
        type=Switch,
        metavar=SWITCH,
        help="Serve Kafka clients.",
    ),
    Field(
        flags=("--zone-redundant",),
        path=("properties", "zoneRedundant"),
        type=Switch,
        metavar=SWITCH,
        help="Stored and returned, without effect.",
    ),
    Field(
        flags=("--disable-local-auth",),
        path=("properties", "disableLocalAuth"),
        type=Switch,
        metavar=SWITCH,
        help="Refuse shared access keys.",
    ),
    Field(
        flags=("--minimum-tls-version", "--min-tls"),
        path=("properties", "minimumTlsVersion"),
        metavar="VERSION",
        help="Oldest accepted TLS version: 1.2 or 1.3.",
    ),
    ACCESS,
    Field(
        flags=("--tags",),
        path=("tags",),
        type=list[str],
        metavar="NAME=VALUE",
        help="Tags; one flag accepts several.",
        read=lambda texts: pairs([text for text in texts if text]),
    ),
)
_WANTED_NAME = Field(flags=("--name", "-n"), path=("name",), metavar="NAME", help="Name to check.", is_required=True)
_COLUMNS = (
    ("Name", "name"),
    ("Sku", "sku.name"),
    ("Capacity", "sku.capacity"),
    ("Status", "properties.status"),
    ("Endpoint", "properties.serviceBusEndpoint"),
)


def exists(arm: Arm, _: Resource, body: Json) -> Json:
    """Whether the name of a new namespace is free."""
    return arm.is_name_free(body["name"])


app = a_group("Namespaces: containers of event hubs, with keys, limits and network rules.")
add(
    app,
    [
        Verb(name="create", help="Make a namespace.", run=put, at=(NAMED_NAMESPACE,), fields=FIELDS),
        Verb(name="update", help="Change a namespace.", run=patch, at=(OWN_NAMESPACE,), fields=FIELDS),
        Verb(name="show", help="Show a namespace.", run=show, at=(OWN_NAMESPACE,)),
        Verb(name="list", help="List the namespaces.", run=list_, below=(NAMESPACES,), columns=_COLUMNS),
        Verb(
            name="delete",
            help="Delete a namespace and everything in it.",
            run=delete,
            question="Delete the namespace '{name}' with all its hubs and events?",
            at=(NAMED_NAMESPACE,),
        ),
        Verb(name="exists", help="Check whether a name is free.", run=exists, fields=(_WANTED_NAME,)),
        wait_verb(OWN_NAMESPACE),
    ],
)
app.add_typer(rules_group(IN_NAMESPACE), name="authorization-rule")
app.add_typer(network_group(), name="network-rule-set")
app.add_typer(application_groups_group(), name="application-group")
