"""AMQP messages become the records of a batch: single messages, runs of them, and batch messages."""

from typing import Final

from .amqp_values import (
    APPLICATION_PROPERTIES,
    DATA,
    DATA8,
    DATA32,
    DATA_HEADS,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    SHAPES,
    VALUE,
    VARIABLE8,
    Malformed,
    data_extent,
    integer_of,
    is_text,
    list_end,
    map_head,
    map_section,
    read_u32,
    section_at,
    text_of,
    value_end,
)
from .exported_properties import headers_of_properties
from .record_layout import (
    DELTAS,
    ENVELOPE_LEAD,
    ENVELOPE_VERSION,
    FLAG_ANNOTATIONS,
    FLAG_ENCODED,
    FLAG_FOOTER,
    FLAG_HEADER,
    FLAG_PROPERTIES,
    FLAG_RAW_APPLICATION,
    KIND_MANY_DATA,
    KIND_SEQUENCE,
    KIND_VALUE,
    LENGTHS,
    MAX_CACHED_NAME_BYTES,
    MAX_CACHED_NAMES,
    NULL,
    PLAIN_ENVELOPE,
    TABLE_SIZE,
    encode_uvarint,
    length_of,
    uvarint_of,
    with_length,
)

_PARTITION_KEY: Final = b"x-opt-partition-key"
_PRODUCER_ID: Final = b"com.microsoft:producer-id"
_PRODUCER_EPOCH: Final = b"com.microsoft:producer-epoch"
_PRODUCER_SEQUENCE: Final = b"com.microsoft:producer-sequence-number"
# Annotations that only the broker may set: those of a publisher are not stored.
_OWNED: Final = frozenset(
    (
        _PARTITION_KEY,
        b"x-opt-sequence-number-epoch",
        b"x-opt-sequence-number",
        b"x-opt-offset",
        b"x-opt-enqueued-time",
        b"x-opt-publisher",
        b"x-opt-kafka-key",
    )
)
_PRODUCER_NAMES: Final = (_PRODUCER_ID, _PRODUCER_EPOCH, _PRODUCER_SEQUENCE)
# A short Data section that holds a short Data section and nothing else, by the size of the outer one.
_NESTED_HEADS: Final[list[bytes]] = [b""] * 5 + [DATA_HEADS[n] + DATA_HEADS[n - 5] for n in range(5, 256)]
_BATCH_HEADER: Final = bytes(61)
# Names of application properties, encoded as AMQP strings, to the beginnings of their record headers; and back.
_HEADER_LEADS: Final[dict[bytes, bytes]] = {}


def annotated_key(data: bytes, at: int, end: int, only_before_data: bool) -> bytes | None:
    """The partition key in a message's annotations; a key that is not a string is no key."""
    while at < end:
        section, at = section_at(data, at, end)
        if section == MESSAGE_ANNOTATIONS:
            return _key_in(data, at, end)
        if section == DATA and only_before_data:
            return None
        at = value_end(data, at, end, 0)
    return None


def _key_in(data: bytes, at: int, end: int) -> bytes | None:
    stop, count, at = map_head(data, at, end)
    for _ in range(count >> 1):
        middle = value_end(data, at, stop, 1)
        after = value_end(data, middle, stop, 1)
        if text_of(data, at, middle) == _PARTITION_KEY:
            if data[middle] == 0xA1 or data[middle] == 0xB1:
                return text_of(data, middle, after)
            return None
        at = after
    return None


def first_message(payload: bytes) -> tuple[int, int]:
    """Extent of the first inner message of a batch (message format 0x80013700); empty if there is none."""
    at = 0
    end = len(payload)
    while at < end:
        section, at = section_at(payload, at, end)
        if section == DATA:
            return data_extent(payload, at, end)
        at = value_end(payload, at, end, 0)
    return end, end


def split_batch(payload: bytes, key: bytes | None, added: bytes, producers: list[int] | None) -> tuple[bytearray, int]:
    """The inner messages of a batch as records behind 61 bytes for the header, and their number.

    `key` goes on every event; `added` is one annotation entry to store with each, or empty. The producer id, epoch and
    sequence number of each event that carries them are appended to `producers`.
    """
    parts: list[bytes] = [_BATCH_HEADER]
    key_part = NULL if key is None else with_length(key)
    tail = b"\x00" if key is None else PLAIN_ENVELOPE
    fixed = len(key_part) + len(tail)
    is_plain = not added
    at = 0
    end = len(payload)
    index = 0
    while at < end:
        if is_plain and at + 10 <= end and payload[at : at + 10] == _NESTED_HEADS[payload[at + 4]]:
            first = at + 5
            body_at = at + 10
            stop = first + payload[at + 4]
        elif payload[at : at + 4] == DATA32:
            first = at + 8
            stop = first + read_u32(payload, at + 4, end)
            body_at = -1
            if (
                is_plain
                and payload[first : first + 4] == DATA32
                and read_u32(payload, first + 4, end) == stop - first - 8
            ):
                body_at = first + 8
        else:
            first, stop = _next_message(payload, at, end, index)
            if first < 0:
                at = stop
                continue
            body_at = -1
        if stop > end:
            raise Malformed("a data section is cut short")
        at = stop
        delta = DELTAS[index] if index < TABLE_SIZE else b"\x00\x00" + encode_uvarint(index * 2)
        index += 1
        if body_at < 0:
            body = _record_body(payload, first, stop, key, added, producers)
            parts += (length_of(len(delta) + len(body)), delta, body)
            continue
        size = stop - body_at
        value = LENGTHS[size] if size < TABLE_SIZE else encode_uvarint(size * 2)
        size += len(delta) + fixed + len(value)
        length = LENGTHS[size] if size < TABLE_SIZE else encode_uvarint(size * 2)
        parts += (length, delta, key_part, value, payload[body_at:stop], tail)
    if index == 0:
        raise Malformed("the batch holds no message")
    return bytearray().join(parts), index


def _next_message(payload: bytes, at: int, end: int, index: int) -> tuple[int, int]:
    """Extent of the message in the batch's section at `at`; (-1, its end) for a section that holds none."""
    section, at = section_at(payload, at, end)
    if section == DATA:
        return data_extent(payload, at, end)
    if section < HEADER or section > FOOTER or SEQUENCE <= section <= VALUE:
        raise Malformed("a batch holds a section other than data")
    if section == MESSAGE_ANNOTATIONS and index:
        raise Malformed("a batch has annotations after its data")
    return -1, value_end(payload, at, end, 0)


def join_messages(payloads: list[bytes], key: bytes | None, added: bytes) -> bytearray:
    """Single messages as the records of one batch, behind 61 bytes for the header; key and annotation as above."""
    parts: list[bytes] = [_BATCH_HEADER]
    is_plain = key is None and not added
    index = 0
    for payload in payloads:
        stop = len(payload)
        delta = DELTAS[index] if index < TABLE_SIZE else b"\x00\x00" + encode_uvarint(index * 2)
        index += 1
        lead = payload[:4]
        if is_plain and lead == DATA8 and stop >= 5 and payload[4] == stop - 5:
            first = 5
        elif is_plain and lead == DATA32 and stop >= 8 and read_u32(payload, 4, stop) == stop - 8:
            first = 8
        else:
            body = _record_body(payload, 0, stop, key, added, None)
            parts += (length_of(len(delta) + len(body)), delta, body)
            continue
        size = stop - first
        value = LENGTHS[size] if size < TABLE_SIZE else encode_uvarint(size * 2)
        size += len(delta) + 2 + len(value)
        length = LENGTHS[size] if size < TABLE_SIZE else encode_uvarint(size * 2)
        parts += (length, delta, NULL, value, payload[first:stop], b"\x00")
    return bytearray().join(parts)


def single_record(payload: bytes, key: bytes | None, added: bytes, producers: list[int] | None) -> bytearray:
    """One message as the only record of a batch, behind 61 bytes for the header."""
    body = _record_body(payload, 0, len(payload), key, added, producers)
    return bytearray().join((_BATCH_HEADER, length_of(3 + len(body)), DELTAS[0], body))


def _record_body(data: bytes, at: int, end: int, key: bytes | None, added: bytes, producers: list[int] | None) -> bytes:
    """Key, value and headers of the record of one message: everything behind the offset delta.

    Sections may come in any order; each but Data and Sequence at most once. Delivery annotations belong to the hop that
    ends here and are dropped, except behind the body, where one client writes them and the service stores them.
    """
    if at >= end:
        raise Malformed("a message has no section")
    flags = 0
    seen = 0
    bodies: list[bytes] = []
    body_section = 0
    has_null = False
    header = b""
    annotations = b""
    properties = b""
    raw_application = b""
    footer = b""
    trailing = b""
    application = 0
    exported = 0
    application_headers = b""
    exported_headers = b""
    while at < end:
        if at + 3 <= end and data[at] == 0 and data[at + 1] == 0x53:
            section = data[at + 2]
            at += 3
        else:
            section, at = section_at(data, at, end)
        if section == DATA:
            if at + 2 <= end and data[at] == 0xA0 and at + 2 + data[at + 1] <= end:
                stop = at + 2 + data[at + 1]
                at += 2
            elif at < end and data[at] == 0x40:
                # The JavaScript SDK writes the body null so (client run).
                stop = at + 1
                has_null = True
            else:
                at, stop = data_extent(data, at, end)
        elif section == MESSAGE_ANNOTATIONS:
            stop, annotations = _stored_annotations(data, at, end, added, producers)
        elif section == APPLICATION_PROPERTIES:
            stop, application, application_headers = _application_headers(data, at, end)
            if application == 0:
                flags |= FLAG_RAW_APPLICATION
                raw_application = b"\x00\x53\x74" + data[at:stop]
        elif section == PROPERTIES:
            stop, exported, exported_headers = headers_of_properties(data, at, end)
            flags |= FLAG_PROPERTIES
            properties = b"\x00\x53\x73" + data[at:stop]
        elif section == HEADER:
            stop = list_end(data, at, end)
            flags |= FLAG_HEADER
            header = b"\x00\x53\x70" + data[at:stop]
        elif section == VALUE:
            stop = value_end(data, at, end, 0)
        elif section == SEQUENCE:
            stop = list_end(data, at, end)
        elif section == DELIVERY_ANNOTATIONS:
            map_head(data, at, end)
            stop = value_end(data, at, end, 0)
            if body_section:
                trailing = b"\x00\x53\x71" + data[at:stop]
        elif section == FOOTER:
            map_head(data, at, end)
            stop = value_end(data, at, end, 0)
            flags |= FLAG_FOOTER
            footer = b"\x00\x53\x78" + data[at:stop]
        else:
            raise Malformed("a section is not known")
        if DATA <= section <= VALUE:
            if body_section and (section != body_section or section == VALUE):
                raise Malformed("a message has two bodies")
            body_section = section
            bodies.append(data[at:stop])
        else:
            bit = 1 << (section - HEADER)
            if seen & bit:
                raise Malformed("a section comes twice")
            seen |= bit
        at = stop

    if added and not annotations:
        annotations = map_section(MESSAGE_ANNOTATIONS, 2, added)
    if annotations:
        flags |= FLAG_ANNOTATIONS

    detail = b""
    value: bytes | None
    if has_null:
        if len(bodies) > 1:
            raise Malformed("one of several data sections holds null")
        value = None
        detail = uvarint_of(1)
        flags |= KIND_MANY_DATA
    elif len(bodies) == 1 and body_section == DATA:
        value = bodies[0]
    else:
        kind, value, detail = _other_body(body_section, bodies)
        flags |= kind
    key_part = NULL if key is None else with_length(key)
    value_part = NULL if value is None else with_length(value)
    if key is None and flags == 0 and application == 0 and not trailing:
        return key_part + value_part + b"\x00"
    if application < 0x80 and exported < 0x80:
        counts = bytes((ENVELOPE_VERSION, flags, application, exported))
    else:
        counts = bytes((ENVELOPE_VERSION, flags)) + uvarint_of(application) + uvarint_of(exported)
    envelope = b"".join((counts, detail, header, annotations, properties, raw_application, footer, trailing))
    return b"".join(
        (
            key_part,
            value_part,
            length_of(application + exported + 1),
            application_headers,
            exported_headers,
            ENVELOPE_LEAD,
            length_of(len(envelope)),
            envelope,
        )
    )


def _other_body(section: int, bodies: list[bytes]) -> tuple[int, bytes | None, bytes]:
    """Flags, value and detail of a body that is not one Data section."""
    if section == SEQUENCE:
        return KIND_SEQUENCE | FLAG_ENCODED, b"".join(bodies), b""
    if section == VALUE:
        value = bodies[0]
        code = value[0]
        if code == 0x40:
            return KIND_VALUE, None, value
        if code == 0xA0 or code == 0xA1:
            return KIND_VALUE, value[2:], value[:1]
        if code == 0xB0 or code == 0xB1:
            return KIND_VALUE, value[5:], value[:1]
        return KIND_VALUE | FLAG_ENCODED, value, b""
    if not bodies:
        return KIND_MANY_DATA, None, uvarint_of(0)
    sizes = b"".join([uvarint_of(len(part)) for part in bodies[:-1]])
    return KIND_MANY_DATA, b"".join(bodies), uvarint_of(len(bodies)) + sizes


def _stored_annotations(data: bytes, at: int, end: int, added: bytes, producers: list[int] | None) -> tuple[int, bytes]:
    """The end of the annotations, and the section to store: without names that the broker owns, with its own entry."""
    begin = at
    stop, count, at = map_head(data, at, end)
    kept: list[bytes] = []
    producer: dict[bytes, int] = {}
    for _ in range(count >> 1):
        middle = value_end(data, at, stop, 1)
        after = value_end(data, middle, stop, 1)
        name = text_of(data, at, middle)
        if name in _OWNED:
            at = after
            continue
        if producers is not None and name in _PRODUCER_NAMES and data[middle] != 0x40:
            producer[name] = integer_of(data, middle, after)
        kept.append(data[at:after])
        at = after
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    if producer and producers is not None:
        if len(producer) != 3:
            raise Malformed("producer id, epoch and sequence number come together")
        producers += (producer[_PRODUCER_ID], producer[_PRODUCER_EPOCH], producer[_PRODUCER_SEQUENCE])
    if added:
        kept.append(added)
    elif len(kept) * 2 == count:
        return stop, b"\x00\x53\x72" + data[begin:stop] if kept else b""
    if not kept:
        return stop, b""
    return stop, map_section(MESSAGE_ANNOTATIONS, len(kept) * 2, b"".join(kept))


def _application_headers(data: bytes, at: int, end: int) -> tuple[int, int, bytes]:
    """The end of the application properties, their number, and the properties as record headers, encoded as they came.

    A number of zero means that the section must be stored as it is: it is empty, or a key is not a string.
    """
    stop, count, at = map_head(data, at, end)
    parts: list[bytes] = []
    are_headers = count > 0
    for _ in range(count >> 1):
        middle = at + 2 + data[at + 1] if at + 1 < stop and data[at] == 0xA1 else value_end(data, at, stop, 1)
        name = data[at:middle]
        lead = _HEADER_LEADS.get(name)
        if lead is None:
            lead = _header_lead(name)
            if not lead:
                are_headers = False
        at = middle
        if at >= stop:
            raise Malformed("a value is missing")
        shape = SHAPES[data[at]]
        if shape >= 0:
            middle = at + 1 + shape
        elif shape == VARIABLE8 and at + 1 < stop:
            middle = at + 2 + data[at + 1]
        else:
            middle = value_end(data, at, stop, 1)
        size = middle - at
        parts += (lead, LENGTHS[size] if size < TABLE_SIZE else encode_uvarint(size * 2), data[at:middle])
        at = middle
    if at != stop:
        raise Malformed("a compound's size and content disagree")
    if not are_headers:
        return stop, 0, b""
    return stop, count >> 1, b"".join(parts)


def _header_lead(encoded: bytes) -> bytes:
    """An encoded property name as the beginning of a record header; empty if it is not a string."""
    if encoded[:1] != b"\xa1" and encoded[:1] != b"\xb1":
        return b""
    name = text_of(encoded, 0, len(encoded))
    if not is_text(name):
        raise Malformed("a property's name is not UTF-8")
    lead = with_length(name)
    if len(_HEADER_LEADS) < MAX_CACHED_NAMES and len(encoded) < MAX_CACHED_NAME_BYTES:
        _HEADER_LEADS[encoded] = lead
    return lead
