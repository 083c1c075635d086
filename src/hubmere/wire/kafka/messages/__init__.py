"""Every API we serve, declared once: requests, responses, version ranges. `APIS` is the table by key.

Each module has the messages of one topic area; classes are imported from there. Both directions work for both roles: a
server reads requests and writes responses, a client does the opposite with the same declarations.
"""

from typing import Final

from hubmere.wire.kafka.messages import (
    acls,
    admin,
    configs,
    consumer_groups,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    sasl,
    share_groups,
    transactions,
)
from hubmere.wire.kafka.schema import Api

_THEMES: Final = (
    produce,
    fetch,
    metadata,
    offsets,
    groups,
    sasl,
    acls,
    admin,
    transactions,
    configs,
    consumer_groups,
    share_groups,
)

APIS: Final[dict[int, Api]] = {
    api.key: api for api in sorted((api for theme in _THEMES for api in theme.APIS), key=lambda api: api.key)
}

API_OF_REQUEST: Final[dict[type, Api]] = {api.request: api for api in APIS.values()}

__all__ = ["APIS", "API_OF_REQUEST"]
