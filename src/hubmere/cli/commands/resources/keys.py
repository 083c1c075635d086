"""`hubmere keys`: the keys of an authorization rule of the namespace; by default of its root rule.

Short for `hubmere namespace authorization-rule keys`; keys of a hub's rule are below `hubmere eventhub`.
"""

from dataclasses import replace

from hubmere.cli.arm.steps import IN_NAMESPACE, RULE
from hubmere.cli.arm.verbs import a_group, add
from hubmere.cli.commands.resources.rules import key_verbs
from hubmere.model.names import ROOT_RULE

_ROOT = replace(
    RULE, default=ROOT_RULE, is_required=False, help=f"Name of the authorization rule. Default: {ROOT_RULE}."
)

app = a_group("Keys and connection strings of a namespace.")
add(app, key_verbs(IN_NAMESPACE, _ROOT))
