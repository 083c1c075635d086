"""Records become AMQP messages, with the annotations that give an event's position in its partition."""

from struct import Struct
from typing import Final

from .amqp_values import (
    APPLICATION_PROPERTIES,
    DATA32,
    DATA_HEADS,
    DELIVERY_ANNOTATIONS,
    EMPTY_DATA,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SHAPES,
    VALUE,
    VARIABLE8,
    Malformed,
    encode_sized,
    is_text,
    list_end,
    list_head,
    map_head,
    map_section,
    value_end,
    values_end,
)
from .record_layout import (
    ENVELOPE_NAME,
    ENVELOPE_VERSION,
    FLAG_ANNOTATIONS,
    FLAG_ENCODED,
    FLAG_FOOTER,
    FLAG_HEADER,
    FLAG_PROPERTIES,
    FLAG_RAW_APPLICATION,
    KEYLESS,
    KIND_MANY_DATA,
    KIND_MASK,
    KIND_SEQUENCE,
    KIND_VALUE,
    MAX_CACHED_NAME_BYTES,
    MAX_CACHED_NAMES,
    MAX_RECORDS,
    PLAIN_HEADERS,
    TABLE_SIZE,
    encode_uvarint,
    read_record,
    read_uvarint,
)

_PROPERTY_LEADS: Final[dict[bytes, bytes]] = {}

# The epoch (int -1: the hub was never restored or replicated) is constant, so it is written with the next name.
_SEQUENCE_ENTRY: Final = b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff\xa3\x15x-opt-sequence-number\x81"
_OFFSET_ENTRY: Final = b"\xa3\x0cx-opt-offset\xa1"
_TIME_ENTRY: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_PARTITION_KEY_ENTRY: Final = b"\xa3\x13x-opt-partition-key"
_KAFKA_KEY_ENTRY: Final = b"\xa3\x0fx-opt-kafka-key"
# Bytes of the four entries without the digits of the offset: names, epoch, two 8-byte numbers, one length.
_ENTRIES_BYTES: Final = len(_SEQUENCE_ENTRY) + 8 + len(_OFFSET_ENTRY) + 1 + len(_TIME_ENTRY) + 8
# The annotations of an event by the number of digits of its offset: lead, sequence number, name, digits, name, time.
_LEADS: Final[list[bytes]] = [
    bytes((0, 0x53, MESSAGE_ANNOTATIONS, 0xC1, _ENTRIES_BYTES + digits + 1, 8)) + _SEQUENCE_ENTRY
    for digits in range(21)
]
_OFFSET_LEADS: Final[list[bytes]] = [_OFFSET_ENTRY + bytes((digits,)) for digits in range(21)]
_ENTRIES: Final[list[Struct]] = [
    Struct(f">{len(_SEQUENCE_ENTRY)}sq{len(_OFFSET_LEADS[digits])}s{digits}s{len(_TIME_ENTRY)}sq")
    for digits in range(21)
]
# The same with a field less, for events that share their time.
_ANNOTATIONS: Final[list[Struct]] = [
    Struct(f">{len(_LEADS[digits])}sq{len(_OFFSET_LEADS[digits])}s{digits}s{len(_TIME_ENTRY) + 8}s")
    for digits in range(21)
]


def encode_messages(
    records: bytes,
    at: int,
    count: int,
    last_delta: int,
    base_sequence: int,
    offset: int,
    size_bytes: int,
    time_ms: int,
    is_append_time: bool,
    offsets: list[int] | None = None,
    skipped: int = 0,
) -> tuple[list[bytes], list[int]]:
    """The events of one batch, or of a slice of it, as encoded AMQP messages, and their sequence numbers.

    The list of numbers is empty if they are dense from `base_sequence`. `records` is uncompressed from `at` to its end
    and holds `count` records of the batch, behind `skipped` others.
    The offset of an event is `offset` plus its share of `size_bytes`; if that is zero, it is the event's own one in
    `offsets` or, without these, its sequence number.
    `time_ms` is the time of every event if `is_append_time`, otherwise the base of their deltas.
    """
    end = len(records)
    messages: list[bytes] = []
    numbers: list[int] = []
    if count < 0 or skipped < 0 or skipped + count > last_delta + 1 or count > MAX_RECORDS:
        raise Malformed("a record count is not possible")
    if offsets is not None and len(offsets) != count:
        raise Malformed("not every record has an offset")
    spread = last_delta + 1
    width = 0
    pack = _ANNOTATIONS[width].pack
    lead = _LEADS[width]
    offset_lead = _OFFSET_LEADS[width]
    time_entry = _TIME_ENTRY + time_ms.to_bytes(8, "big", signed=True)
    is_dense = True
    for index in range(skipped, skipped + count):
        if at + 2 > end:
            raise Malformed("a record is cut short")
        size = records[at]
        if size < 0x80:
            at += 1
        elif records[at + 1] < 0x80:
            size = (size & 0x7F) | records[at + 1] << 7
            at += 2
        else:
            size, at = read_uvarint(records, at, end)
        stop = at + (size >> 1)
        if size & 1 or stop > end:
            raise Malformed("a record is cut short")

        # The plain event: attributes 0, time delta 0, the expected offset delta, no key, a value, no headers.
        prefix = KEYLESS[index] if index < TABLE_SIZE else b"\x00\x00" + encode_uvarint(index * 2) + b"\x01"
        first = at + len(prefix)
        if is_dense and records[at:first] == prefix and first + 1 < stop and records[stop - 1] == 0:
            size = records[first]
            if size < 0x80:
                first += 1
            elif records[first + 1] < 0x80:
                size = (size & 0x7F) | records[first + 1] << 7
                first += 2
            else:
                size, first = read_uvarint(records, first, stop)
            if first + (size >> 1) == stop - 1 and not size & 1:
                sequence = base_sequence + index
                digits = b"%d" % (
                    offset + index * size_bytes // spread
                    if size_bytes
                    else sequence
                    if offsets is None
                    else offsets[index - skipped]
                )
                if len(digits) != width:
                    width = len(digits)
                    pack = _ANNOTATIONS[width].pack
                    lead = _LEADS[width]
                    offset_lead = _OFFSET_LEADS[width]
                size >>= 1
                messages.append(
                    pack(lead, sequence, offset_lead, digits, time_entry)
                    + (DATA_HEADS[size] if size < 256 else DATA32 + size.to_bytes(4, "big"))
                    + records[first : stop - 1]
                )
                at = stop
                continue

        time_delta, delta, key, value, headers = read_record(records, at, stop)
        if delta > last_delta or delta < index or (numbers and base_sequence + delta <= numbers[-1]):
            raise Malformed("offset deltas do not increase")
        if is_dense and delta != index:
            is_dense = False
            numbers = [base_sequence + n for n in range(skipped, index)]
        if not is_dense:
            numbers.append(base_sequence + delta)
        sequence = base_sequence + delta
        digits = b"%d" % (
            offset + delta * size_bytes // spread
            if size_bytes
            else sequence
            if offsets is None
            else offsets[index - skipped]
        )
        entries = _ENTRIES[len(digits)].pack(
            _SEQUENCE_ENTRY,
            sequence,
            _OFFSET_LEADS[len(digits)],
            digits,
            _TIME_ENTRY,
            time_ms if is_append_time else _time_of(time_ms, time_delta),
        )
        messages.append(_message(key, value, headers, entries, 8))
        at = stop
    if at != end:
        raise Malformed("a batch holds more than its records")
    return messages, numbers


def _time_of(time_ms: int, delta: int) -> int:
    """An event's own time, limited to 64 bits: a producer may write any."""
    return min(max(time_ms + delta, -0x8000_0000_0000_0000), 0x7FFF_FFFF_FFFF_FFFF)


def message_of(key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]]) -> bytes:
    """The message of a record without the four annotations for its position and time."""
    return _message(key, value, headers, b"", 0)


def _message(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]], entries: bytes, count: int
) -> bytes:
    """The message of a record: rebuilt from its envelope, or the AMQP view of a Kafka record.

    `entries` are the first annotations, `count` keys and values. A Kafka client may write a header with the name of the
    envelope: it is used if it comes last and is valid, otherwise it is a header like any other.
    """
    is_ours = headers is PLAIN_HEADERS and value is not None and key is not None and key.isascii()
    if is_ours and key is not None:
        count += 2
        entries = entries + _PARTITION_KEY_ENTRY + encode_sized(0xA1, key)
    elif headers:
        name, envelope = headers[-1]
        if name == ENVELOPE_NAME and envelope is not None:
            try:
                return _from_envelope(key, value, headers, entries, count, envelope)
            except Malformed:
                pass
    if key is not None and not is_ours:
        count += 2
        entries = entries + _KAFKA_KEY_ENTRY + encode_sized(0xA0, key)
    section = map_section(MESSAGE_ANNOTATIONS, count, entries)
    if headers and not is_ours:
        section += _binary_properties(headers)
    if not value:
        return section + EMPTY_DATA
    size = len(value)
    return section + (DATA_HEADS[size] if size < 256 else DATA32 + size.to_bytes(4, "big")) + value


def _binary_properties(headers: list[tuple[bytes, bytes | None]]) -> bytes:
    """Headers of a Kafka producer as application properties: unchanged bytes, the last value of a repeated name."""
    last: dict[bytes, bytes] = {}
    for name, content in headers:
        lead = _PROPERTY_LEADS.get(name)
        if lead is None:
            lead = _property_lead(name if is_text(name) else name.decode("utf-8", "replace").encode())
        last[lead] = b"\x40" if content is None else encode_sized(0xA0, content)
    parts: list[bytes] = []
    for lead, encoded in last.items():
        parts += (lead, encoded)
    return map_section(APPLICATION_PROPERTIES, len(parts), b"".join(parts))


def _from_envelope(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
    entries: bytes,
    count: int,
    envelope: bytes,
) -> bytes:
    """The message as it was sent, without its header section, which the service does not deliver either.

    A reader that respects the time-to-live of a header would discard events that the hub still keeps.
    """
    end = len(envelope)
    if end < 4 or envelope[0] != ENVELOPE_VERSION:
        raise Malformed("an envelope is of another version")
    flags = envelope[1]
    if envelope[2] < 0x80 and envelope[3] < 0x80:
        application = envelope[2]
        exported = envelope[3]
        at = 4
    else:
        application, at = read_uvarint(envelope, 2, end)
        exported, at = read_uvarint(envelope, at, end)
    if application + exported + 1 != len(headers):
        raise Malformed("an envelope does not fit its headers")
    if flags & 0x07 == 0 and value is not None:
        size = len(value)
        body = (DATA_HEADS[size] if size < 256 else DATA32 + size.to_bytes(4, "big")) + value
    else:
        body, at = _body_sections(value, envelope, at, end)

    if flags & FLAG_HEADER:
        at = _raw_section(envelope, at, end, HEADER)
    if key is not None:
        if not is_text(key):
            raise Malformed("a partition key is not UTF-8")
        count += 2
        entries = entries + _PARTITION_KEY_ENTRY + encode_sized(0xA1, key)
    if flags & FLAG_ANNOTATIONS:
        begin = at + 3
        at = _raw_section(envelope, at, end, MESSAGE_ANNOTATIONS)
        _, stored, first = map_head(envelope, begin, at)
        count += stored
        entries = entries + envelope[first:at]
    begin = at
    if flags & FLAG_PROPERTIES:
        at = _raw_section(envelope, at, end, PROPERTIES)
    if flags & FLAG_RAW_APPLICATION:
        if application:
            raise Malformed("application properties are given twice")
        at = _raw_section(envelope, at, end, APPLICATION_PROPERTIES)
    properties = envelope[begin:at]
    begin = at
    if flags & FLAG_FOOTER:
        at = _raw_section(envelope, at, end, FOOTER)
    if at < end:
        at = _raw_section(envelope, at, end, DELIVERY_ANNOTATIONS)
    if at != end:
        raise Malformed("an envelope holds more than its sections")
    return b"".join(
        (
            map_section(MESSAGE_ANNOTATIONS, count, entries),
            properties,
            _verbatim_properties(headers, application) if application else b"",
            body,
            envelope[begin:],
        )
    )


def _raw_section(envelope: bytes, at: int, end: int, section: int) -> int:
    """The end of a section in an envelope, which must be the expected one and valid."""
    if at + 4 > end or envelope[at] != 0 or envelope[at + 1] != 0x53 or envelope[at + 2] != section:
        raise Malformed("an envelope lacks a section")
    if section in (HEADER, PROPERTIES):
        stop, count, at = list_head(envelope, at + 3, end)
    else:
        stop, count, at = map_head(envelope, at + 3, end)
    if values_end(envelope, count, at, stop, 1) != stop:
        raise Malformed("a compound's size and content disagree")
    return stop


def _verbatim_properties(headers: list[tuple[bytes, bytes | None]], count: int) -> bytes:
    """The first headers as application properties, each with the encoding of its publisher."""
    parts: list[bytes] = []
    for name, content in headers[:count]:
        lead = _PROPERTY_LEADS.get(name)
        if lead is None:
            lead = _property_lead(name)
        if not content:
            raise Malformed("a header is not an application property")
        size = len(content)
        shape = SHAPES[content[0]]
        is_plain = shape == size - 1 or (shape == VARIABLE8 and size > 1 and content[1] == size - 2)
        if not is_plain and value_end(content, 0, size, 1) != size:
            raise Malformed("a header is not an application property")
        parts += (lead, content)
    return map_section(APPLICATION_PROPERTIES, count * 2, b"".join(parts))


def _property_lead(name: bytes) -> bytes:
    """The name of a property as an AMQP string."""
    if not is_text(name):
        raise Malformed("a property's name is not UTF-8")
    lead = encode_sized(0xA1, name)
    if len(_PROPERTY_LEADS) < MAX_CACHED_NAMES and len(name) < MAX_CACHED_NAME_BYTES:
        _PROPERTY_LEADS[name] = lead
    return lead


def _body_sections(value: bytes | None, envelope: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The body sections of a stored message, and the position in the envelope after their detail."""
    flags = envelope[1]
    kind = flags & KIND_MASK
    if kind == KIND_MANY_DATA:
        return _data_sections(value, envelope, at, end)
    if flags & FLAG_ENCODED:
        if value is None:
            raise Malformed("a body is missing")
        return (_sequence_sections(value) if kind == KIND_SEQUENCE else _value_section(value)), at
    if kind != KIND_VALUE or at >= end:
        raise Malformed("a body does not fit its kind")
    code = envelope[at]
    if code == 0x40 and value is None:
        return b"\x00\x53\x77\x40", at + 1
    if value is not None:
        if (code == 0xA0 or code == 0xA1) and len(value) < 256:
            return bytes((0, 0x53, VALUE, code, len(value))) + value, at + 1
        if code == 0xB0 or code == 0xB1:
            return bytes((0, 0x53, VALUE, code)) + len(value).to_bytes(4, "big") + value, at + 1
    raise Malformed("a body does not fit its kind")


def _value_section(value: bytes) -> bytes:
    if value_end(value, 0, len(value), 0) != len(value):
        raise Malformed("a body is not one value")
    return b"\x00\x53\x77" + value


def _sequence_sections(value: bytes) -> bytes:
    """One section for each list in the value of the record."""
    parts: list[bytes] = []
    at = 0
    end = len(value)
    while at < end:
        stop = list_end(value, at, end)
        parts += (b"\x00\x53\x76", value[at:stop])
        at = stop
    if not parts:
        raise Malformed("a body is missing")
    return b"".join(parts)


def _data_sections(value: bytes | None, envelope: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Several data sections, taken from the value of the record; or none, or one that holds null."""
    count, at = read_uvarint(envelope, at, end)
    if value is None and count < 2:
        return (b"\x00\x53\x75\x40" if count else b""), at
    if count == 0 or value is None:
        raise Malformed("a body does not fit its kind")
    parts: list[bytes] = []
    begin = 0
    for _ in range(count - 1):
        size, at = read_uvarint(envelope, at, end)
        if begin + size > len(value):
            raise Malformed("a body does not fit its kind")
        parts += (b"\x00\x53\x75", encode_sized(0xA0, value[begin : begin + size]))
        begin += size
    parts += (b"\x00\x53\x75", encode_sized(0xA0, value[begin:]))
    return b"".join(parts), at
