"""Creation and change of entities: defaults, ranges and tier limits of everything that can be managed.

Pure functions: a spec, the existing entities and the limits of the tier go in; a new entity comes out, or a refusal
that states what is allowed. In a spec, None means "not given": the default on creation and on replacement. To change
one property and keep the others, start from `HubSpec.of(hub)` or `NamespaceSpec.of(namespace)`. Reference: service 1,
4.2, 6, 8.
"""

from hubmere.model.spec.checks import USER_METADATA_CHARACTERS, check_limit
from hubmere.model.spec.hubs import (
    CAPTURE_DESTINATIONS,
    CAPTURE_INTERVAL_S,
    CAPTURE_SIZE_BYTES,
    CAPTURE_TOKENS,
    LEAST_SEGMENT_MS,
    SEGMENT_BYTES,
    HubSpec,
    apply_hub_spec,
    new_hub,
    with_capture_start,
)
from hubmere.model.spec.namespaces import (
    MAX_TAGS,
    TLS_VERSIONS,
    NamespaceSpec,
    apply_namespace_spec,
    new_namespace,
    with_network_rules,
)
from hubmere.model.spec.rules import (
    KEY_BYTES,
    KEY_CHARACTERS,
    check_application_group,
    check_group_deletable,
    new_group,
    new_rule,
    random_key,
    root_rule,
    with_new_key,
    with_rights,
    with_user_metadata,
)

__all__ = [
    "CAPTURE_DESTINATIONS",
    "CAPTURE_INTERVAL_S",
    "CAPTURE_SIZE_BYTES",
    "CAPTURE_TOKENS",
    "KEY_BYTES",
    "KEY_CHARACTERS",
    "LEAST_SEGMENT_MS",
    "MAX_TAGS",
    "SEGMENT_BYTES",
    "TLS_VERSIONS",
    "USER_METADATA_CHARACTERS",
    "HubSpec",
    "NamespaceSpec",
    "apply_hub_spec",
    "apply_namespace_spec",
    "check_application_group",
    "check_group_deletable",
    "check_limit",
    "new_group",
    "new_hub",
    "new_namespace",
    "new_rule",
    "random_key",
    "root_rule",
    "with_capture_start",
    "with_network_rules",
    "with_new_key",
    "with_rights",
    "with_user_metadata",
]
