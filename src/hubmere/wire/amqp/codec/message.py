"""Message sections (AMQP 1.0, 3.2): split a message without decoding it, decode one section, encode a message.

Finds where sections begin and defines the order in which they are written; it does not interpret events. Sections are
accepted in any order, because a deployed SDK appends delivery-annotations behind the body, and written in the canonical
order, because another takes a late header for the body. Input that is not a message raises `RemoteProtocolError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from hubmere.wire.amqp.codec.composites import read_described, write_described
from hubmere.wire.amqp.codec.decode import decode_error, decode_value, skip_value
from hubmere.wire.amqp.codec.encode import encode_value
from hubmere.wire.amqp.codec.performatives import Header, Properties
from hubmere.wire.amqp.codec.types import Buffer, Described, Symbol, ULong, Value
from hubmere.wire.amqp.errors import LocalProtocolError

# Body sections of one message. A batch of the largest message size holds fewer events than this in practice.
MAX_BODY_SECTIONS = 1 << 20


class Section(IntEnum):
    """Descriptors of the sections, in canonical order."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


_SYMBOLS = {
    "amqp:header:list": Section.HEADER,
    "amqp:delivery-annotations:map": Section.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": Section.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": Section.PROPERTIES,
    "amqp:application-properties:map": Section.APPLICATION_PROPERTIES,
    "amqp:data:binary": Section.DATA,
    "amqp:amqp-sequence:list": Section.SEQUENCE,
    "amqp:amqp-value:*": Section.VALUE,
    "amqp:footer:map": Section.FOOTER,
}
_BODY = frozenset({Section.DATA, Section.SEQUENCE, Section.VALUE})
_BY_CODE = {int(section): section for section in Section}
Annotations: TypeAlias = dict[Value, Value]


@dataclass(slots=True)
class RawSection:
    """One section as received: `raw` with its descriptor; the described value begins at `value_at`."""

    section: Section
    raw: Buffer
    value_at: int

    @property
    def value_bytes(self) -> Buffer:
        """The section's value without the descriptor."""
        return self.raw[self.value_at :]


@dataclass(slots=True)
class MessageSections:
    """A message split into its sections, none of them decoded. Slices refer to the input buffer."""

    header: RawSection | None = None
    delivery_annotations: RawSection | None = None
    message_annotations: RawSection | None = None
    properties: RawSection | None = None
    application_properties: RawSection | None = None
    body: list[RawSection] = field(default_factory=list)
    footer: RawSection | None = None


_ATTRIBUTES = {section: section.name.lower() for section in Section if section not in _BODY}


def split_message(payload: Buffer) -> MessageSections:
    """Split a message at its section boundaries."""
    sections = MessageSections()
    pos, size = 0, len(payload)
    while pos < size:
        section, value_at = _read_descriptor(payload, pos)
        end = skip_value(payload, value_at)
        raw = RawSection(section, payload[pos:end], value_at - pos)
        if section in _BODY:
            _add_body(sections.body, raw)
        elif getattr(sections, _ATTRIBUTES[section]) is None:
            setattr(sections, _ATTRIBUTES[section], raw)
        else:
            raise decode_error(f"a message has two sections of type {section.name.lower()}")
        pos = end
    return sections


def _add_body(body: list[RawSection], raw: RawSection) -> None:
    if body and (raw.section is not body[0].section or raw.section is Section.VALUE):
        raise decode_error("a message has several bodies")
    if len(body) >= MAX_BODY_SECTIONS:
        raise decode_error(f"a message has more than {MAX_BODY_SECTIONS} body sections")
    body.append(raw)


def _read_descriptor(payload: Buffer, pos: int) -> tuple[Section, int]:
    if payload[pos : pos + 2] == b"\x00\x53" and pos + 2 < len(payload):
        section = _BY_CODE.get(payload[pos + 2])
        pos += 3
    elif payload[pos] == 0x00:
        descriptor, pos = decode_value(payload, pos + 1)
        section = _SYMBOLS.get(descriptor) if type(descriptor) is Symbol else None
        if type(descriptor) is ULong:
            section = _BY_CODE.get(int(descriptor))
    else:
        section = None
    if section is None:
        raise decode_error("a message section has an unknown descriptor")
    return section, pos


def read_section(raw: RawSection) -> Any:
    """The content of a section: `Header`, `Properties`, a dict, bytes, a list or any value, by its type."""
    if raw.section in (Section.HEADER, Section.PROPERTIES):
        return read_described(raw.raw)[0]
    value, _end = decode_value(raw.raw, raw.value_at)
    expected = _CONTENT.get(raw.section)
    if expected is not None and type(value) is not expected:
        raise decode_error(f"a section of type {raw.section.name.lower()} is no {expected.__name__}")
    return value


_CONTENT: dict[Section, type] = {
    Section.DELIVERY_ANNOTATIONS: dict,
    Section.MESSAGE_ANNOTATIONS: dict,
    Section.APPLICATION_PROPERTIES: dict,
    Section.DATA: bytes,
    Section.SEQUENCE: list,
    Section.FOOTER: dict,
}


@dataclass(frozen=True, slots=True)
class Data:
    """A body of binary sections; the JavaScript SDK writes null into one for a null body."""

    sections: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A body of list sections."""

    sections: tuple[list[Value], ...]


@dataclass(frozen=True, slots=True)
class AmqpValue:
    """A body of one value, which may be null."""

    value: Value


Body: TypeAlias = Data | Sequence | AmqpValue


@dataclass(slots=True, kw_only=True)
class Message:
    """A message with all its sections decoded. For requests and replies; events are not decoded."""

    header: Header | None = None
    delivery_annotations: Annotations | None = None
    message_annotations: Annotations | None = None
    properties: Properties | None = None
    application_properties: Annotations | None = None
    body: Body | None = None
    footer: Annotations | None = None


def read_message(payload: Buffer) -> Message:
    """Decode every section of a message."""
    sections = split_message(payload)
    message = Message(body=_read_body(sections.body))
    for name in _ATTRIBUTES.values():
        raw = getattr(sections, name)
        if raw is not None:
            setattr(message, name, read_section(raw))
    return message


def _read_body(raw: list[RawSection]) -> Body | None:
    if not raw:
        return None
    contents = [read_section(section) for section in raw]
    if raw[0].section is Section.VALUE:
        return AmqpValue(contents[0])
    return Data(tuple(contents)) if raw[0].section is Section.DATA else Sequence(tuple(contents))


def write_message(message: Message) -> bytes:
    """The message with its sections in canonical order."""
    before = [_write_part(section, message) for section in _ATTRIBUTES if section < Section.DATA]
    return b"".join([*before, *_write_body(message.body), _write_part(Section.FOOTER, message)])


def _write_part(section: Section, message: Message) -> bytes:
    content = getattr(message, _ATTRIBUTES[section])
    if content is None:
        return b""
    if section in (Section.HEADER, Section.PROPERTIES):
        return write_described(content)
    return write_section(section, content)


def _write_body(body: Body | None) -> list[bytes]:
    if body is None:
        return []
    if isinstance(body, AmqpValue):
        return [write_section(Section.VALUE, body.value)]
    section = Section.DATA if isinstance(body, Data) else Section.SEQUENCE
    return [write_section(section, content) for content in body.sections]


def write_section(section: Section, content: Value) -> bytes:
    """One section around its content, which for lists of fields is a list."""
    expected = _CONTENT.get(section)
    if expected is not None and type(content) is not expected:
        raise LocalProtocolError(f"a section of type {section.name.lower()} holds a {expected.__name__}")
    return encode_value(Described(ULong(section), content))
