"""Which option names which level of a resource: the naming options of `az eventhubs`, declared once."""

from hubmere.cli.arm.client import ALIASES, APPLICATION_GROUPS, GROUPS, HUBS, NAMESPACES, RULES
from hubmere.cli.arm.verbs import Step

_OWN = "Name of the namespace. Default: the node's own."

NAMED_NAMESPACE = Step(kind=NAMESPACES, flags=("--name", "-n", "--namespace-name"), help="Name of the namespace.")
OWN_NAMESPACE = Step(kind=NAMESPACES, flags=("--name", "-n", "--namespace-name"), help=_OWN, is_required=False)
IN_NAMESPACE = Step(kind=NAMESPACES, flags=("--namespace-name",), help=_OWN, is_required=False)

HUB = Step(kind=HUBS, flags=("--name", "-n", "--event-hub-name"), help="Name of the event hub.")
IN_HUB = Step(kind=HUBS, flags=("--eventhub-name",), help="Name of the event hub.")

GROUP = Step(kind=GROUPS, flags=("--name", "-n", "--consumer-group-name"), help="Name of the consumer group.")
RULE = Step(kind=RULES, flags=("--name", "-n", "--authorization-rule-name"), help="Name of the authorization rule.")
ALIAS = Step(kind=ALIASES, flags=("--alias", "-a", "--name"), help="Name of the alias.")
APPLICATION_GROUP = Step(
    kind=APPLICATION_GROUPS,
    flags=("--name", "-n", "--application-group-name"),
    help="Name of the application group.",
)
