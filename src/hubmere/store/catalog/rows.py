"""Converts entities and state records to rows of the catalog's tables and back.

Entities have their keys in columns and the rest in one JSON text, so that a new optional property needs no migration.
State records, which are written often, have a column per field. `migrations` creates the tables.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from hubmere.model.entity import (
    AccessRule,
    ApplicationGroup,
    ConsumerGroup,
    Entity,
    GeoAlias,
    Hub,
    Namespace,
    RevokedPublisher,
    RoleAssignment,
)
from hubmere.store.catalog.blob_records import BlobRecord, BlobStateRecord, BlockRecord, ContainerRecord
from hubmere.store.catalog.runtime_state import (
    CaptureState,
    Counter,
    Deletion,
    GroupMetadata,
    GroupOffset,
    Meta,
    StateRecord,
    TransactionState,
)

Item = Entity | StateRecord | BlobStateRecord
Value = str | int | None
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The table of one kind of item: how its rows are written, read and removed."""

    name: str
    kind: type[Item]
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    to_row: Callable[[Any], Row]
    from_row: Callable[[Row], Item]
    key_of: Callable[[Any], Row]

    @property
    def put_sql(self) -> str:
        """Insert a row, or overwrite the row of the same key."""
        rest = [column for column in self.columns if column not in self.key_columns]
        changes = ", ".join(f'"{column}" = excluded."{column}"' for column in rest)
        marks = ", ".join("?" * len(self.columns))
        return (
            f"INSERT INTO {self.name} ({_quote(self.columns)}) VALUES ({marks}) "  # noqa: S608 our own names only
            f"ON CONFLICT ({_quote(self.key_columns)}) DO UPDATE SET {changes}"
        )

    @property
    def remove_sql(self) -> str:
        """Delete the row of a key."""
        where = " AND ".join(f'"{column}" = ?' for column in self.key_columns)
        return f"DELETE FROM {self.name} WHERE {where}"  # noqa: S608 our own names only

    @property
    def load_sql(self) -> str:
        """Select all rows, ordered by key."""
        return f"SELECT {_quote(self.columns)} FROM {self.name} ORDER BY {_quote(self.key_columns)}"  # noqa: S608


def _quote(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _entity_table(
    name: str, kind: type[Entity], key_columns: tuple[str, ...], keys: Callable[[Any], Row], *, extra: str | None = None
) -> Table:
    columns = (*key_columns, *((extra,) if extra else ()), "body")

    def to_row(entity: Any) -> Row:
        return (*keys(entity), *((getattr(entity, extra),) if extra else ()), encode_entity(entity))

    return Table(
        name=name,
        kind=kind,
        columns=columns,
        key_columns=key_columns,
        to_row=to_row,
        from_row=lambda row: decode_entity(kind, str(row[-1])),
        key_of=keys,
    )


def _record_table(name: str, kind: type[StateRecord | BlobStateRecord], key_columns: tuple[str, ...]) -> Table:
    columns = tuple(f.name for f in fields(kind))
    return Table(
        name=name,
        kind=kind,
        columns=columns,
        key_columns=key_columns,
        to_row=lambda record: tuple(getattr(record, column) for column in columns),
        from_row=lambda row: kind(**dict(zip(columns, row, strict=True))),  # type: ignore[arg-type]
        key_of=lambda record: tuple(getattr(record, column) for column in key_columns),
    )


def _hub_row_keys(hub: Hub) -> Row:
    return (hub.uid,)


def _hub_row(hub: Hub) -> Row:
    return (hub.uid, *hub.key, encode_entity(hub))


_HUBS = Table(
    name="hubs",
    kind=Hub,
    columns=("uid", "namespace", "key", "body"),
    key_columns=("uid",),
    to_row=_hub_row,
    from_row=lambda row: decode_entity(Hub, str(row[-1])),
    key_of=_hub_row_keys,
)

# Parents before children: the order in which rows can be loaded and checked.
TABLES: Mapping[type[Item], Table] = {
    table.kind: table
    for table in (
        _entity_table("namespaces", Namespace, ("key",), lambda item: item.key),
        _HUBS,
        _entity_table("consumer_groups", ConsumerGroup, ("hub_uid", "key"), lambda item: item.key),
        _entity_table(
            "access_rules", AccessRule, ("namespace", "scope", "key"), lambda item: item.key, extra="hub_uid"
        ),
        _entity_table("revoked_publishers", RevokedPublisher, ("hub_uid", "key"), lambda item: item.key),
        _entity_table("geo_aliases", GeoAlias, ("namespace", "key"), lambda item: item.key),
        _entity_table("application_groups", ApplicationGroup, ("namespace", "key"), lambda item: item.key),
        _entity_table("role_assignments", RoleAssignment, ("namespace", "key"), lambda item: item.key, extra="hub_uid"),
        _record_table("deletions", Deletion, ("hub_uid",)),
        _record_table("meta", Meta, ("name",)),
        _record_table("group_offsets", GroupOffset, ("namespace", "group_id", "hub_uid", "partition")),
        _record_table("group_metadata", GroupMetadata, ("namespace", "group_id")),
        _record_table("transactions", TransactionState, ("namespace", "transactional_id")),
        _record_table("capture_states", CaptureState, ("hub_uid", "partition")),
        _record_table("counters", Counter, ("name",)),
        _record_table("containers", ContainerRecord, ("account", "name")),
        _record_table("blobs", BlobRecord, ("account", "container", "name")),
        _record_table("blocks", BlockRecord, ("account", "container", "blob", "block_id")),
    )
}


# --- JSON bodies -----------------------------------------------------------------------------------------------------


def encode_entity(entity: Entity) -> str:
    """Encode an entity as compact JSON, a key per field; ASCII, so that any text of a caller can be stored."""
    return json.dumps(_to_json(entity), separators=(",", ":"))


def decode_entity(kind: type[Entity], body: str) -> Entity:
    """Decode an entity from JSON; missing fields get their defaults, unknown ones are ignored."""
    entity: Entity = _from_json(kind, json.loads(body))
    return entity


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {f.name: _to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [_to_json(part) for part in value]
    return value


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _from_json(hint: Any, value: Any) -> Any:
    if isinstance(hint, NewType):
        hint = hint.__supertype__
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return None if value is None else _from_json(next(a for a in get_args(hint) if a is not NoneType), value)
    if origin is tuple:
        return tuple(_from_json(get_args(hint)[0], part) for part in value)
    if origin is not None:
        return MappingProxyType(dict(value))
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return hint(**{name: _from_json(hints[name], part) for name, part in value.items() if name in hints})
    return hint(value)
