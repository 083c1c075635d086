"""`hubmere keys`: the keys of a namespace's rule, its root rule unless another is named.

Short for `hubmere namespace authorization-rule keys`; those of a hub's rule are below `hubmere eventhub`.
"""

from dataclasses import replace

from hubmere.cli.commands.resources.rules import key_verbs
from hubmere.cli.commands.resources.steps import IN_NAMESPACE, RULE
from hubmere.cli.commands.resources.verbs import a_group, add
from hubmere.model.names import ROOT_RULE

_ROOT = replace(
    RULE, default=ROOT_RULE, is_required=False, help=f"Name of the authorization rule. Default: {ROOT_RULE}."
)

app = a_group("Keys and connection strings of a namespace.")
add(app, key_verbs(IN_NAMESPACE, _ROOT))
