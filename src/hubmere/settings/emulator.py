"""The official emulator's `Config.json`: which namespaces, hubs and groups a node creates at start.

The format is that of the emulator. Its small limits (one namespace, ten hubs) do not apply: the node's limits do, when
the entities are created. Optional keys beyond the emulator's own, on an entity: `MessageRetentionInDays`,
`RetentionTimeInHours`, `UserMetadata`, `AuthorizationRules` (`Name`, `Rights`, `PrimaryKey`, `SecondaryKey`), `Capture`
(`IntervalInSeconds`, `SizeLimitInBytes`, `Encoding`, `SkipEmptyArchives`, `ColdReads`, `StorageAccount`, `Container`,
`ArchiveNameFormat`). Every refusal names the key by its path in the file, with the name of the hub. Reference: service
9.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hubmere.model.entity import CaptureDescription, CaptureDestination, CaptureEncoding, Rights
from hubmere.model.errors import InvalidArgument, InvalidName
from hubmere.model.names import (
    DEFAULT_GROUP,
    GroupName,
    HubName,
    NamespaceName,
    RuleName,
    emulator_hub_name,
    fold,
    group_name,
    namespace_name,
    rule_name,
)
from hubmere.model.spec import HubSpec
from hubmere.model.tier import HOURS_PER_DAY

DEFAULT_NAMESPACE = NamespaceName("emulatorNs1")
NAMESPACE_TYPE = "EventHub"
T = TypeVar("T")

LOGGING_TYPES = ("File", "Console", "File,Console", "Console,File")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorRule:
    """An authorization rule of the file; missing keys are random."""

    name: RuleName
    rights: Rights
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorHub:
    """A hub of the file; its groups do not include `$Default`, which every hub has."""

    name: HubName
    spec: HubSpec
    groups: tuple[GroupName, ...] = ()
    rules: tuple[EmulatorRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorNamespace:
    """A namespace of the file."""

    name: NamespaceName
    hubs: tuple[EmulatorHub, ...]


def parse_emulator_config(data: object) -> tuple[EmulatorNamespace, ...]:
    """The namespaces of a parsed `Config.json`."""
    config = _object(data, "Config.json")
    user = _object(_require(config, "UserConfig", ""), "UserConfig")
    _check_logging(user)
    path = "UserConfig.NamespaceConfig"
    found = [_namespace(item, at) for item, at in _items_of(_require(user, "NamespaceConfig", "UserConfig"), path)]
    if not found:
        raise InvalidArgument(path, "[]", "at least one namespace")
    _check_distinct([namespace.name for namespace in found], path)
    return tuple(found)


def _check_logging(user: Mapping[str, Any]) -> None:
    if "LoggingConfig" not in user:
        return
    kind = _object(user["LoggingConfig"], "UserConfig.LoggingConfig").get("Type")
    if kind not in LOGGING_TYPES:
        raise InvalidArgument("UserConfig.LoggingConfig.Type", kind, f"one of {'; '.join(LOGGING_TYPES)}")


def _namespace(data: object, path: str) -> EmulatorNamespace:
    item = _object(data, path)
    kind = item.get("Type", NAMESPACE_TYPE)
    if not isinstance(kind, str) or fold(kind) != fold(NAMESPACE_TYPE):
        raise InvalidArgument(f"{path}.Type", kind, NAMESPACE_TYPE)
    name = _name(namespace_name, item.get("Name", DEFAULT_NAMESPACE), f"{path}.Name")
    hubs = [_hub(entry, at) for entry, at in _items_of(_require(item, "Entities", path), f"{path}.Entities")]
    if not hubs:
        raise InvalidArgument(f"{path}.Entities", "[]", "at least one event hub")
    _check_distinct([hub.name for hub in hubs], f"{path}.Entities")
    return EmulatorNamespace(name=name, hubs=tuple(hubs))


def _hub(data: object, path: str) -> EmulatorHub:
    item = _object(data, path)
    name = _name(emulator_hub_name, _require(item, "Name", path), f"{path}.Name")
    path = f"{path}('{name}')"
    groups = [_group(entry, at) for entry, at in _items_of(item.get("ConsumerGroups", []), f"{path}.ConsumerGroups")]
    _check_distinct(groups, f"{path}.ConsumerGroups")
    rules = [
        _rule(entry, at) for entry, at in _items_of(item.get("AuthorizationRules", []), f"{path}.AuthorizationRules")
    ]
    _check_distinct([rule.name for rule in rules], f"{path}.AuthorizationRules")
    spec = HubSpec(
        partition_count=_number(_require(item, "PartitionCount", path), f"{path}.PartitionCount"),
        retention_hours=_retention_hours(item, path),
        user_metadata=_text(item.get("UserMetadata", ""), f"{path}.UserMetadata"),
        capture=_capture(item["Capture"], f"{path}.Capture") if "Capture" in item else None,
    )
    return EmulatorHub(name=name, spec=spec, groups=tuple(groups), rules=tuple(rules))


def _group(data: object, path: str) -> GroupName:
    item = _object(data, path)
    name = _name(group_name, _require(item, "Name", path), f"{path}.Name")
    if name == DEFAULT_GROUP:
        raise InvalidName(f"{path}.Name", name, "every event hub has it already, do not list it")
    return name


def _rule(data: object, path: str) -> EmulatorRule:
    item = _object(data, path)
    rights = [_text(entry, at) for entry, at in _items_of(_require(item, "Rights", path), f"{path}.Rights")]
    primary, secondary = (
        _text(item[name], f"{path}.{name}") if name in item else None for name in ("PrimaryKey", "SecondaryKey")
    )
    return EmulatorRule(
        name=_name(rule_name, _require(item, "Name", path), f"{path}.Name"),
        rights=Rights.parse(rights),
        primary_key=primary,
        secondary_key=secondary,
    )


def _capture(data: object, path: str) -> CaptureDescription:
    item = _object(data, path)
    defaults = CaptureDescription()
    destination = defaults.destination
    encoding = _text(item.get("Encoding", defaults.encoding), f"{path}.Encoding")
    if encoding not in list(CaptureEncoding):
        raise InvalidArgument(f"{path}.Encoding", encoding, f"one of {', '.join(CaptureEncoding)}")
    return CaptureDescription(
        enabled=True,
        encoding=CaptureEncoding(encoding),
        interval_s=_number(item.get("IntervalInSeconds", defaults.interval_s), f"{path}.IntervalInSeconds"),
        size_limit_bytes=_number(item.get("SizeLimitInBytes", defaults.size_limit_bytes), f"{path}.SizeLimitInBytes"),
        skip_empty=_switch(item.get("SkipEmptyArchives", defaults.skip_empty), f"{path}.SkipEmptyArchives"),
        cold_reads=_switch(item.get("ColdReads", defaults.cold_reads), f"{path}.ColdReads"),
        destination=CaptureDestination(
            storage_account=_text(item.get("StorageAccount", ""), f"{path}.StorageAccount"),
            container=_text(item.get("Container", ""), f"{path}.Container"),
            archive_name_format=_text(
                item.get("ArchiveNameFormat", destination.archive_name_format), f"{path}.ArchiveNameFormat"
            ),
        ),
    )


def _switch(data: object, path: str) -> bool:
    if not isinstance(data, bool):
        raise InvalidArgument(path, data, "true or false")
    return data


def _retention_hours(item: Mapping[str, Any], path: str) -> int | None:
    if "RetentionTimeInHours" in item:
        return _number(item["RetentionTimeInHours"], f"{path}.RetentionTimeInHours")
    if "MessageRetentionInDays" in item:
        return _number(item["MessageRetentionInDays"], f"{path}.MessageRetentionInDays") * HOURS_PER_DAY
    return None


def _require(item: Mapping[str, Any], name: str, path: str) -> Any:
    if name not in item:
        raise InvalidArgument(f"{path}.{name}".lstrip("."), None, "a value")
    return item[name]


def _object(data: object, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidArgument(path, data, "a JSON object")
    return data


def _items_of(data: object, path: str) -> Iterator[tuple[object, str]]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise InvalidArgument(path, data, "a JSON array")
    return ((item, f"{path}[{index}]") for index, item in enumerate(data))


def _text(data: object, path: str) -> str:
    if not isinstance(data, str):
        raise InvalidArgument(path, data, "a text")
    return data


def _name(check: Callable[[str], T], data: object, path: str) -> T:
    """A checked name; a refusal names its path."""
    try:
        return check(_text(data, path))
    except InvalidName as refusal:
        raise InvalidName(path, refusal.value, refusal.allowed) from None


def _number(data: object, path: str) -> int:
    # Older samples have the number as a string.
    text = str(data)
    if isinstance(data, bool) or not (text.isascii() and text.isdigit()):
        raise InvalidArgument(path, data, "a whole number")
    return int(text)


def _check_distinct(names: Sequence[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            raise InvalidName(path, name, "each name only once, in any case")
        seen.add(fold(name))
