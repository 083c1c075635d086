"""The hubs of a configuration file: `[[hubs]]` tables of our own format, entities of the emulator's format.

Each bad key is one problem, named by its path (`hubs[2].partitions`). Names and numbers are checked here against the
rules that are the same for every tier; the tier's limits are checked when the node creates the hub.
"""

from typing import Any

from hubmere.model.errors import InvalidArgument
from hubmere.model.names import GROUP_RULE, HUB_RULE, NAMESPACE_RULE
from hubmere.settings.kinds import Kind, count, list_of, name, read_text
from hubmere.settings.problems import Problem
from hubmere.settings.tables import HubSetting
from hubmere.settings.tree import MAX_PARTITIONS

# The service keeps an event for one hour at least and 90 days at most; a local disk may keep it for ten years.
_MAX_RETENTION_HOURS = 10 * 365 * 24

# Keys of a [[hubs]] table: the field and the kind of its value.
HUB_KEYS: dict[str, tuple[str, Kind[Any]]] = {
    "name": ("name", name(HUB_RULE)),
    "namespace": ("namespace", name(NAMESPACE_RULE)),
    "partitions": ("partition_count", count(1, MAX_PARTITIONS)),
    "groups": ("consumer_groups", list_of(name(GROUP_RULE))),
    "user_metadata": ("user_metadata", Kind("TEXT", "a text", read_text)),
    "retention_hours": ("retention_hours", count(1, _MAX_RETENTION_HOURS)),
}


def read_hubs(tables: object, origin: str, problems: list[Problem]) -> tuple[HubSetting, ...]:
    """The hubs of a TOML file; errors are added to `problems`."""
    if not isinstance(tables, list):
        problems.append(Problem(setting="hubs", origin=origin, value=tables, allowed="tables [[hubs]], one per hub"))
        return ()
    hubs = [_read_hub(table, f"hubs[{number}]", origin, problems) for number, table in enumerate(tables, 1)]
    return tuple(hub for hub in hubs if hub is not None)


def _read_hub(table: object, place: str, origin: str, problems: list[Problem]) -> HubSetting | None:
    if not isinstance(table, dict) or "name" not in table:
        allowed = f"a table with a name; its keys are {', '.join(HUB_KEYS)}"
        problems.append(Problem(setting=place, origin=origin, value=table, allowed=allowed))
        return None
    found = len(problems)
    values = {}
    for key, value in table.items():
        if key not in HUB_KEYS:
            allowed = f"one of the keys {', '.join(HUB_KEYS)}"
            problems.append(Problem(setting=f"{place}.{key}", origin=origin, value=value, allowed=allowed))
            continue
        field_name, kind = HUB_KEYS[key]
        try:
            values[field_name] = kind.read(value)
        except ValueError:
            problems.append(Problem(setting=f"{place}.{key}", origin=origin, value=value, allowed=kind.allowed))
    return HubSetting(**values) if len(problems) == found else None


def read_emulator_hubs(
    document: object, origin: str, problems: list[Problem]
) -> tuple[str | None, tuple[HubSetting, ...]]:
    """The first namespace's name and the hubs of all namespaces in the official emulator's Config.json."""
    # Few nodes have such a file.
    from hubmere.settings.emulator import parse_emulator_config

    try:
        namespaces = parse_emulator_config(document)
    except InvalidArgument as refusal:
        problems.append(Problem(setting=refusal.name, origin=origin, value=refusal.value, allowed=refusal.allowed))
        return None, ()
    hubs = (
        HubSetting(
            name=hub.name,
            namespace=namespace.name,
            partition_count=hub.spec.partition_count,
            consumer_groups=hub.groups,
            retention_hours=hub.spec.retention_hours,
            user_metadata=hub.spec.user_metadata,
        )
        for namespace in namespaces
        for hub in namespace.hubs
    )
    return namespaces[0].name, tuple(hubs)
