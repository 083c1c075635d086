"""Partner namespaces on other nodes for geo-disaster recovery: `[georecovery.partners.NAME]` tables of the file.

NAME is the namespace on the other node, as ARM clients name it in `partnerNamespace`. Each bad key is one problem,
named by its path (`georecovery.partners.shop-west.url`); a token is never part of one.
"""

from typing import Any
from urllib.parse import urlsplit

from hubmere.model.names import NAMESPACE_RULE
from hubmere.settings.kinds import OPTIONAL_PATH, Kind, name, read_text
from hubmere.settings.problems import Problem
from hubmere.settings.tables import PartnerSetting

TABLE = "georecovery"
_PARTNERS = "partners"
_HIDDEN = "(hidden)"
_SECRET = "token"  # noqa: S105  the name of a key, not a token


def _read_url(value: object) -> str:
    url = read_text(value).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or "@" in parts.netloc:
        raise ValueError("not a URL")
    if parts.port == 0:
        raise ValueError("not a port")
    return url


# Keys of a partner's table and their kinds. A token can be any non-blank text.
PARTNER_KEYS: dict[str, Kind[Any]] = {
    "url": Kind("URL", "an HTTPS or HTTP address such as https://west.example.org:5301", _read_url),
    _SECRET: Kind("TEXT", "the administrator's token of that node", read_text),
    "ca_file": OPTIONAL_PATH,
}
_REQUIRED = ("url", _SECRET)


def read_partners(table: object, origin: str, problems: list[Problem]) -> tuple[PartnerSetting, ...]:
    """The partners of a TOML file; errors are added to `problems`."""
    partners = table.get(_PARTNERS, {}) if isinstance(table, dict) and set(table) <= {_PARTNERS} else None
    if not isinstance(partners, dict):
        allowed = f"tables [{TABLE}.{_PARTNERS}.NAME], one per namespace on another node"
        problems.append(Problem(setting=TABLE, origin=origin, value=_HIDDEN, allowed=allowed))
        return ()
    read = [_read_partner(str(partner), values, origin, problems) for partner, values in partners.items()]
    return tuple(partner for partner in read if partner is not None)


def _read_partner(partner: str, table: object, origin: str, problems: list[Problem]) -> PartnerSetting | None:
    place = f"{TABLE}.{_PARTNERS}.{partner}"
    found = len(problems)

    def refuse(setting: str, value: object, allowed: str) -> None:
        problems.append(Problem(setting=setting, origin=origin, value=value, allowed=allowed))

    kind = name(NAMESPACE_RULE)
    try:
        kind.read(partner)
    except ValueError:
        refuse(place, partner, f"the name of a namespace: {kind.allowed}")
    if not isinstance(table, dict) or not set(_REQUIRED) <= set(table):
        refuse(place, _HIDDEN, f"a table with {' and '.join(_REQUIRED)}; its keys are {', '.join(PARTNER_KEYS)}")
        return None
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in PARTNER_KEYS:
            refuse(f"{place}.{key}", _HIDDEN, f"one of the keys {', '.join(PARTNER_KEYS)}")
            continue
        try:
            values[key] = PARTNER_KEYS[key].read(value)
        except ValueError:
            refuse(f"{place}.{key}", _HIDDEN if key == _SECRET else value, PARTNER_KEYS[key].allowed)
    return PartnerSetting(name=partner, **values) if len(problems) == found else None
