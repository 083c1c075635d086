"""Facts about a hub that Kafka has no words for, as configuration entries that are described only when named.

Hubmere's own clients (the Spark source) have the Kafka port alone and ask here what else they must know of a hub. Tools
that describe a whole configuration do not see these entries, and nobody can change them.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hubmere.broker import Broker, HubView
from hubmere.endpoints.kafka.admin.configs import ConfigValue
from hubmere.model.entity import CaptureDestination
from hubmere.model.facts import CAPTURE, CONSUMER_GROUPS
from hubmere.wire.kafka.messages.configs import ConfigSource, ConfigType

Fact = Callable[[Broker, HubView], str]


def _consumer_groups(broker: Broker, hub: HubView) -> str:
    return json.dumps([str(group.name) for group in broker.entities.groups(hub.entity)])


def _capture(broker: Broker, hub: HubView) -> str:
    entity = hub.entity
    capture = entity.capture
    facts = {
        "url": broker.captures.url_of(hub) or None,
        "namespace": entity.namespace,
        "hub": entity.name,
        "nameFormat": (capture.destination if capture is not None else CaptureDestination()).archive_name_format,
        "encoding": None if capture is None else capture.encoding.value,
        "captureId": entity.captured_since.id,
    }
    return json.dumps(facts)


_FACTS: Final[Mapping[str, Fact]] = {CONSUMER_GROUPS: _consumer_groups, CAPTURE: _capture}


def hub_facts(broker: Broker, hub: HubView, names: Iterable[str] | None) -> list[ConfigValue]:
    """The facts with these names; none if no name is given."""
    return [
        ConfigValue(
            name=name,
            value=_FACTS[name](broker, hub),
            kind=ConfigType.STRING,
            source=ConfigSource.DEFAULT,
            is_read_only=True,
        )
        for name in dict.fromkeys(names or ())
        if name in _FACTS
    ]
