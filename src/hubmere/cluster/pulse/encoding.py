"""The bytes of a report: one JSON object. Pure.

Nothing depends on a single report: one that cannot be decoded is ignored (`decode_pulse` returns None), and unknown
fields are ignored too, so that gateways of two releases can share a topic.
"""

import json
import math
from dataclasses import asdict
from typing import Any, Final

from hubmere.model.monitoring.pulse import (
    MAX_HUBS,
    MAX_NAMESPACES,
    Flow,
    GatewayPulse,
    HubPulse,
    Limited,
    NamespacePulse,
)

# A report with the most namespaces and hubs, each with the longest name that the service allows, is smaller.
MAX_PULSE_BYTES: Final = 512 * 1024
_MAX_TEXT: Final = 512
_MAX_NUMBER: Final = 1e18


def encode_pulse(pulse: GatewayPulse) -> bytes:
    """The bytes of a report."""
    busiest = sorted(pulse.hubs, key=lambda hub: -sum(hub.flow))[:MAX_HUBS]
    active = sorted(pulse.namespaces, key=lambda each: (-any(each.limited), -sum(each.flow)))[:MAX_NAMESPACES]
    values = asdict(pulse) | {
        "namespaces": [
            {"name": each.name, "flow": _rounded(each.flow), "limited": list(each.limited), "units": each.units}
            for each in active
        ],
        "hubs": [{"namespace": hub.namespace, "hub": hub.hub, "flow": _rounded(hub.flow)} for hub in busiest],
    }
    return json.dumps(values, separators=(",", ":")).encode()


def _rounded(flow: Flow) -> list[float]:
    return [round(each, 1) for each in flow]


def decode_pulse(data: bytes | memoryview) -> GatewayPulse | None:
    """A report; None if the bytes are not one."""
    if len(data) > MAX_PULSE_BYTES:
        return None
    try:
        values = json.loads(bytes(data))
        return GatewayPulse(
            session=_text(values["session"]),
            number=_whole(values["number"]),
            address=_text(values["address"]),
            version=_text(values["version"]),
            applied=_whole(values["applied"]),
            connections=_whole(values["connections"]),
            namespaces=tuple(_namespace(each) for each in values["namespaces"][:MAX_NAMESPACES]),
            hubs=tuple(_hub(each) for each in values["hubs"][:MAX_HUBS]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _namespace(values: dict[str, Any]) -> NamespacePulse:
    limited = values["limited"]
    if len(limited) != len(Limited._fields):
        raise ValueError(limited)
    return NamespacePulse(
        name=_text(values["name"]),
        flow=_flow(values["flow"]),
        limited=Limited(*(each is True for each in limited)),
        units=_amount(values["units"]),
    )


def _hub(values: dict[str, Any]) -> HubPulse:
    return HubPulse(namespace=_text(values["namespace"]), hub=_text(values["hub"]), flow=_flow(values["flow"]))


def _flow(values: list[Any]) -> Flow:
    if len(values) != len(Flow._fields):
        raise ValueError(values)
    return Flow(*(_amount(each) for each in values))


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_NUMBER:
        raise ValueError(value)
    return float(value)


def _whole(value: object) -> int:
    number = _amount(value)
    if not math.isclose(number, int(number)):
        raise ValueError(value)
    return int(number)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(value)
    return value
