"""Declare a Kafka message once: a dataclass whose fields carry their wire type, version range, tag and default.

`struct` defines the class, `wire` declares a field, `Api` binds a request and a response to a key and a version range.
`codegen` generates readers and writers from that; nothing here handles bytes. Terms follow Kafka's message definitions:
a version is *flexible* when lengths are compact and every struct ends with a tag section (KIP-482).
"""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, Final, TypeVar, dataclass_transform

from hubmere.wire.kafka.primitives import Buffer

T = TypeVar("T")

# A `records` field: complete record batches in one or several buffers, never decoded and never copied.
Records = Buffer | Sequence[Buffer]


class Kind(Enum):
    """A primitive type on the wire; the value is its `struct` format where the width is fixed, else a name."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def is_fixed(self) -> bool:
        """Whether every value has the same width."""
        return self not in _VARIABLE


_VARIABLE: Final = frozenset({Kind.STRING, Kind.BYTES, Kind.RECORDS})

BOOL: Final = Kind.BOOL
INT8: Final = Kind.INT8
INT16: Final = Kind.INT16
INT32: Final = Kind.INT32
INT64: Final = Kind.INT64
WIRE_UUID: Final = Kind.UUID
STRING: Final = Kind.STRING
BYTES: Final = Kind.BYTES
RECORDS: Final = Kind.RECORDS


class EncodedStruct(bytes):
    """A struct that is already encoded; arrays that allow it may mix both forms."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """An array of primitives or structs; `preencoded` lets elements be `EncodedStruct`."""

    element: "Kind | type"
    preencoded: bool = False


WireType = Kind | Array | type


@dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """The wire type of one field, and the versions that have it."""

    name: str = ""
    type: WireType
    since: int = 0
    until: int | None = None
    nullable_since: int | None = None
    tag: int | None = None
    default: Any = MISSING

    def is_in(self, version: int) -> bool:
        """Whether the field exists in a version."""
        return self.since <= version and (self.until is None or version <= self.until)

    @property
    def stand_in(self) -> Any:
        """The value of a field that is not sent: in versions that lack it, and for a tagged field that is omitted."""
        if self.default is MISSING:
            raise TypeError(f"{self.name} is not part of every version and needs a default")
        return self.default

    def is_nullable_in(self, version: int) -> bool:
        """Whether null is allowed in a version."""
        return self.nullable_since is not None and self.nullable_since <= version


def array(element: Kind | type, *, preencoded: bool = False) -> Array:
    """The type of an array field."""
    return Array(element, preencoded)


def wire(
    type: WireType,  # noqa: A002 - reads as the declaration it is
    *,
    since: int = 0,
    until: int | None = None,
    nullable: bool = False,
    nullable_since: int | None = None,
    tag: int | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field of a struct; the default is also its value in versions without the field."""
    if nullable:
        nullable_since = since
    spec = WireField(type=type, since=since, until=until, nullable_since=nullable_since, tag=tag, default=default)
    metadata = {"wire": spec}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Make a class a wire struct: slotted, by keyword, and frozen to the type checker.

    Not frozen at run time: a frozen dataclass pays `object.__setattr__` for each field (60 ns), and a struct is made
    for each partition of each request. Equality and repr are shared functions, and the constructor is generated at
    its first call: generating all three for each of the many classes took a tenth of the start of a node, which uses
    few of them.
    """
    cls.__init__ = _generate_and_init  # type: ignore[method-assign]
    cls.__eq__ = _same_values  # type: ignore[method-assign]
    cls.__repr__ = _named_values  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    return dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False, match_args=False)(cls)


def _generate_and_init(self: Any, **values: Any) -> None:
    """The constructor of a struct until its first call: replaces itself by the generated one."""
    cls = type(self)
    cls.__init__ = _generate_init(cls)
    cls.__init__(self, **values)


def _generate_init(cls: type) -> Callable[..., None]:
    """A constructor that takes every field by keyword and assigns it."""
    parameters, body = ["self", "*"], []
    names: dict[str, Any] = {}
    for declared in fields(cls):
        name = declared.name
        body.append(f"self.{name} = {name}")
        if declared.default is MISSING:
            parameters.append(name)
        else:
            names[f"default_{name}"] = declared.default
            parameters.append(f"{name}=default_{name}")
    text = f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(body)
    exec(text if body else "def __init__(self): pass", names)  # noqa: S102 - text made of our own declarations only
    init: Callable[..., None] = names["__init__"]
    return init


def _same_values(self: object, other: object) -> bool:
    if type(other) is not type(self):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in _names_of(self))


def _named_values(self: object) -> str:
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names_of(self))
    return f"{type(self).__name__}({values})"


def _names_of(value: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = value.__slots__
    return names


def wire_fields(cls: type) -> tuple[WireField, ...]:
    """The declared fields of a struct, in wire order."""
    return tuple(
        WireField(
            name=declared.name,
            type=spec.type,
            since=spec.since,
            until=spec.until,
            nullable_since=spec.nullable_since,
            tag=spec.tag,
            default=spec.default,
        )
        for declared in fields(cls)
        for spec in (declared.metadata["wire"],)
    )


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions of an API from `low` to `high`, both included."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key, its two messages and the versions in which we read and write them.

    `advertised` differs from `versions` only if clients check for a version that they do not send.
    """

    key: int
    name: str
    request: type
    response: type
    versions: VersionRange
    flexible_since: int | None
    advertised: VersionRange

    def is_flexible(self, version: int) -> bool:
        """Whether bodies of this version are flexible."""
        return self.flexible_since is not None and version >= self.flexible_since

    def response_header_version(self, version: int) -> int:
        """1 with a tag section, 0 without; ApiVersions stays at 0, since its reader cannot know yet (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0


API_VERSIONS_KEY: Final = 18


def api(
    key: int,
    request: type,
    response: type,
    *,
    versions: tuple[int, int],
    flexible_since: int | None,
    advertised_since: int | None = None,
) -> Api:
    """Bind two messages to an API key; the name is that of the request."""
    low, high = versions
    return Api(
        key=key,
        name=request.__name__.removesuffix("Request"),
        request=request,
        response=response,
        versions=VersionRange(low, high),
        flexible_since=flexible_since,
        advertised=VersionRange(low if advertised_since is None else advertised_since, high),
    )
