"""What a peer says in its open and attach frames, as texts for refusals and monitoring."""

from collections.abc import Mapping

from hubmere.broker import display_text
from hubmere.endpoints.amqp.errors import entity_name
from hubmere.endpoints.amqp.links.link_addresses import HubAddress, parse_address
from hubmere.model.errors import Refusal
from hubmere.wire.amqp.codec.performatives import ROLE_RECEIVER, Attach, Source, Target
from hubmere.wire.amqp.codec.types import Value


def entity_of(attach: Attach) -> str:
    """The hub, partition and group that an attach names, for the text of a refusal."""
    terminus = attach.source if attach.role == ROLE_RECEIVER else attach.target
    if not isinstance(terminus, Source | Target):
        return ""
    try:
        address = parse_address(terminus.address)
    except Refusal:
        return ""
    return entity_name(address.hub, address.partition, address.group) if isinstance(address, HubAddress) else ""


def software_of(properties: Mapping[Value, Value]) -> str:
    """The software of a peer: the user agent that SDKs send, else product and version."""
    agent = properties.get("user-agent")
    named = [properties[name] for name in ("product", "version") if name in properties]
    return display_text(agent) if agent is not None else display_text(" ".join(map(str, named)))
