"""Checks all gateways of a cluster through one of them: who reports, and who follows the control log."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hubmere.portal.doctor.gateway_checks import BEHIND_ENTRIES, SILENT_SECONDS

_SECONDS: Final = 10.0


class CheckFailed(Exception):
    """The gateway cannot be asked, or is not one of a cluster; says why."""


def check_gateways(ready: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Each gateway with what it does, and what is wrong with it; empty if nothing is."""
    url = f"{ready.get('http') or ready.get('https')}/ready"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:  # noqa: S310  the address of a ready file
            found = json.load(response).get("gateways", [])
    except (OSError, ValueError) as error:
        raise CheckFailed(f"{url} cannot be read: {error}") from error
    if not found:
        raise CheckFailed(f"{url} names no gateways: this node is not a gateway of a cluster")
    for gateway in found:
        roles = ", ".join(gateway["roles"]) or "no role"
        does = f"{gateway['address']}, version {gateway['version']}, {roles}, {gateway['connections']} connections"
        yield (gateway["address"] if gateway["isGone"] else does), _problem(gateway)


def _problem(gateway: dict[str, Any]) -> str:
    silent_s, lag = gateway["silentSeconds"], gateway["controlLogLag"]
    if gateway["isGone"]:
        return f"it has not reported since {gateway['lastSeen']} and is gone"
    if silent_s is None or silent_s > SILENT_SECONDS:
        return "it does not report" if silent_s is None else f"it has not reported for {silent_s:.0f} s"
    return f"it is {lag} entries behind the control log" if lag > BEHIND_ENTRIES else ""
