# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twins of `encode.Segment` and `encode.RowGroup`: Arrow's columns to record batches.

No Python object is made for a row. The bytes and the limits are those of the interpreted twins, so that a repeat of the
same rows is recognized whichever of the two wrote them first; tests compare them. Errors are raised by the functions of
`encode`. Formats: Kafka record batch v2, Arrow columnar (32-bit offsets), AMQP 1.0 strings, Jenkins' lookup3.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import pyarrow as pa

from hubmere.model.keys import check_partition_key
from hubmere.pipeline.encode import (
    BATCH_BYTES as _BATCH_BYTES, partition_number, refuse_partition, refuse_two_targets, write_batch_header,
)
from hubmere.records.header import HEADER_BYTES as _HEADER_BYTES
from hubmere.translate.columns import encode_headers

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)

cdef enum:
    # A batch grows in two steps from here to its largest size.
    FIRST_BYTES = 65536
    GROWTH = 4
    # A varint of 64 bits.
    MOST_VARINT_BYTES = 10
    # Overhead of a record besides its key, value and headers, and of a header besides its name and value, as the
    # interpreted twin counts them.
    RECORD_BYTES = 16
    ENTRY_BYTES = 4
    NULL_LENGTH = 1
    AMQP_NULL = 0x40
    STRING8 = 0xA1
    STRING32 = 0xB1
    ENVELOPE_VERSION = 1
    # More characters than bytes is impossible, so a key of this many bytes is short enough.
    SHORT_KEY_BYTES = 128

cdef Py_ssize_t HEADER_BYTES = _HEADER_BYTES
cdef Py_ssize_t BATCH_BYTES = _BATCH_BYTES
cdef bytes ENVELOPE_NAME = b"x-opt-amqp"
cdef uint64_t HIGH_BITS = 0x8080808080808080


# --- pieces of bytes -------------------------------------------------------------------------------------------------


cdef struct Piece:
    const uint8_t *data
    Py_ssize_t size  # -1: null


cdef inline Piece piece_of(object content):
    """The bytes of an object, or null; valid as long as the object."""
    cdef Piece piece
    piece.data = NULL
    piece.size = -1
    if content is not None:
        piece.data = <const uint8_t *>PyBytes_AS_STRING(content)
        piece.size = PyBytes_GET_SIZE(content)
    return piece


cdef inline int check_text(Piece *text) except -1:
    """Raise UnicodeDecodeError unless the bytes are UTF-8; most are ASCII."""
    cdef Py_ssize_t at = 0
    cdef uint64_t eight
    while at + 8 <= text.size:
        memcpy(&eight, text.data + at, 8)
        if eight & HIGH_BITS:
            PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)
            return 0
        at += 8
    while at < text.size:
        if text.data[at] & 0x80:
            PyUnicode_DecodeUTF8(<const char *>text.data, text.size, NULL)
            return 0
        at += 1
    return 0


cdef inline Py_ssize_t characters_of(Piece *text) noexcept:
    """The number of characters of a text in UTF-8."""
    cdef Py_ssize_t index, count = 0
    for index in range(text.size):
        count += (text.data[index] & 0xC0) != 0x80
    return count


cdef inline Py_ssize_t varint_bytes(uint64_t number) noexcept:
    cdef Py_ssize_t count = 1
    while number > 0x7F:
        number >>= 7
        count += 1
    return count


cdef inline Py_ssize_t length_bytes(uint64_t number) noexcept:
    """The bytes of a length as a zig-zag varint."""
    return varint_bytes(number << 1)


cdef inline uint8_t *put_varint(uint8_t *to, uint64_t number) noexcept:
    while number > 0x7F:
        to[0] = <uint8_t>(number & 0x7F | 0x80)
        to += 1
        number >>= 7
    to[0] = <uint8_t>number
    return to + 1


cdef inline uint8_t *put_length(uint8_t *to, uint64_t number) noexcept:
    return put_varint(to, number << 1)


cdef inline uint8_t *put_bytes(uint8_t *to, const uint8_t *data, Py_ssize_t size) noexcept:
    if size > 0:
        memcpy(to, data, size)
    return to + size


# --- columns of Arrow ------------------------------------------------------------------------------------------------


@cython.final
cdef class Texts:
    """A column of nullable bytes or texts."""

    cdef object buffers  # keeps the memory
    cdef const uint8_t *present
    cdef const int32_t *ends
    cdef const uint8_t *data
    cdef Py_ssize_t offset

    def __cinit__(self, array):
        self.buffers = array.buffers()
        self.present = address_of(self.buffers[0])
        self.ends = <const int32_t *>address_of(self.buffers[1])
        self.data = address_of(self.buffers[2])
        self.offset = array.offset

    cdef inline void read(self, Py_ssize_t index, Piece *piece) noexcept:
        index += self.offset
        if self.present != NULL and not (self.present[index >> 3] >> (index & 7)) & 1:
            piece.data = NULL
            piece.size = -1
            return
        piece.data = self.data + self.ends[index]
        piece.size = self.ends[index + 1] - self.ends[index]


@cython.final
cdef class Maps:
    """A column of nullable maps from text to text."""

    cdef object buffers
    cdef const uint8_t *present
    cdef const int32_t *ends
    cdef Py_ssize_t offset
    cdef Texts names, values

    def __cinit__(self, array):
        self.buffers = array.buffers()
        self.present = address_of(self.buffers[0])
        self.ends = <const int32_t *>address_of(self.buffers[1])
        self.offset = array.offset
        self.names = Texts(array.keys)
        self.values = Texts(array.items)

    cdef inline void read(self, Py_ssize_t index, Py_ssize_t *first, Py_ssize_t *end) noexcept:
        """The entries of a map; none if it is null."""
        index += self.offset
        first[0] = end[0] = 0
        if self.present == NULL or (self.present[index >> 3] >> (index & 7)) & 1:
            first[0] = self.ends[index]
            end[0] = self.ends[index + 1]


cdef uint8_t *address_of(object buffer) except? NULL:
    return NULL if buffer is None else <uint8_t *><uintptr_t>buffer.address


# --- the partition of a key ------------------------------------------------------------------------------------------


cdef inline uint32_t rotate(uint32_t value, int bits) noexcept:
    return (value << bits) | (value >> (32 - bits))


cdef inline uint32_t word(const uint8_t *at, Py_ssize_t left) noexcept:
    """Four bytes, little-endian; those behind the end are 0."""
    cdef uint32_t value = 0
    cdef Py_ssize_t index
    for index in range(min(left, 4)):
        value |= <uint32_t>at[index] << (8 * index)
    return value


cdef int64_t partition_of_key(Piece *key, int64_t count) noexcept:
    """See `model.keys.partition_of_key`."""
    cdef uint32_t a, b, c
    cdef const uint8_t *at = key.data
    cdef Py_ssize_t left = key.size
    cdef int64_t folded
    a = b = c = <uint32_t>0xDEADBEEF + <uint32_t>key.size
    while left > 12:
        a += word(at, 4)
        b += word(at + 4, 4)
        c += word(at + 8, 4)
        a -= c; a ^= rotate(c, 4); c += b
        b -= a; b ^= rotate(a, 6); a += c
        c -= b; c ^= rotate(b, 8); b += a
        a -= c; a ^= rotate(c, 16); c += b
        b -= a; b ^= rotate(a, 19); a += c
        c -= b; c ^= rotate(b, 4); b += a
        at += 12
        left -= 12
    if left > 0:
        a += word(at, left)
        b += word(at + 4, left - 4)
        c += word(at + 8, left - 8)
        c ^= b; c -= rotate(b, 14)
        a ^= c; a -= rotate(c, 11)
        b ^= a; b -= rotate(a, 25)
        c ^= b; c -= rotate(b, 16)
        a ^= c; a -= rotate(c, 4)
        b ^= a; b -= rotate(a, 14)
        c ^= b; c -= rotate(b, 24)
    folded = (c ^ b) & 0xFFFF
    if folded & 0x8000:
        folded = 0x10000 - folded
    return folded % count


# --- batches ---------------------------------------------------------------------------------------------------------


@cython.final
cdef class Lane:
    """The batch of one partition to which events are added: the space for its header, and its records."""

    cdef object batch  # a bytearray
    cdef Py_ssize_t used, room
    cdef int64_t count
    cdef Py_ssize_t size_bytes

    def __cinit__(self):
        self.batch = PyByteArray_FromStringAndSize(NULL, FIRST_BYTES)
        self.room = FIRST_BYTES
        self.used = HEADER_BYTES
        self.count = 0
        self.size_bytes = 0

    cdef uint8_t *need(self, Py_ssize_t more) except NULL:
        """Where the next bytes go; there is room for so many."""
        if self.used + more > self.room:
            while self.used + more > self.room:
                self.room *= GROWTH
            PyByteArray_Resize(self.batch, self.room)
        return <uint8_t *>PyByteArray_AS_STRING(self.batch) + self.used

    cdef object take(self, int64_t now_ms):
        """The batch, with its header."""
        PyByteArray_Resize(self.batch, self.used)
        write_batch_header(self.batch, self.count, now_ms)
        return self.batch


@cython.final
cdef class Segment:
    """See `encode.Segment`."""

    cdef int64_t now_ms
    cdef dict lanes
    cdef list batches
    cdef readonly Py_ssize_t size_bytes

    def __cinit__(self, int64_t now_ms):
        self.now_ms = now_ms
        self.lanes = {}
        self.batches = []
        self.size_bytes = 0

    def add(self, partition, row):
        cdef Piece body, key, tail
        cdef bytes headers = b"\x00"
        cdef Py_ssize_t headers_bytes = 0
        text = row.partition_key
        key_bytes = None if text is None else (<str>text).encode()
        if row.properties or text is not None:
            headers, headers_bytes = encode_headers(row.properties, has_body=row.body is not None)
        body, key, tail = piece_of(row.body), piece_of(key_bytes), piece_of(headers)
        to = self.begin(partition, &body, &key, tail.size, headers_bytes)
        put_bytes(to, tail.data, tail.size)

    def close_all(self):
        for partition in sorted(self.lanes):
            self.batches.append((partition, (<Lane>self.lanes[partition]).take(self.now_ms)))
        self.lanes = {}
        return self.batches

    cdef uint8_t *begin(
        self, object partition, Piece *body, Piece *key, Py_ssize_t tail_bytes, Py_ssize_t headers_bytes
    ) except NULL:
        """Add a record up to its headers, which the caller writes to where the result points."""
        cdef Py_ssize_t size_bytes = RECORD_BYTES + max(body.size, 0) + max(key.size, 0) + headers_bytes
        cdef Lane lane = self.lane_for(partition, size_bytes)
        cdef Py_ssize_t record_bytes = 2 + length_bytes(lane.count) + tail_bytes
        cdef uint8_t *start
        cdef uint8_t *to
        record_bytes += 1 if key.size < 0 else length_bytes(key.size) + key.size
        record_bytes += 1 if body.size < 0 else length_bytes(body.size) + body.size
        start = lane.need(record_bytes + MOST_VARINT_BYTES)
        to = put_length(start, record_bytes)
        to[0] = to[1] = 0
        to = put_piece(put_piece(put_length(to + 2, lane.count), key), body)
        lane.used += (to - start) + tail_bytes
        lane.count += 1
        lane.size_bytes += size_bytes
        self.size_bytes += size_bytes
        return to

    cdef Lane lane_for(self, object partition, Py_ssize_t size_bytes):
        """The open batch of a partition that has room for an event."""
        cdef Lane lane = self.lanes.get(partition)
        if lane is not None and lane.size_bytes + size_bytes > BATCH_BYTES:
            self.batches.append((partition, lane.take(self.now_ms)))
            lane = None
        if lane is None:
            lane = self.lanes[partition] = Lane()
        return lane


cdef inline uint8_t *put_piece(uint8_t *to, Piece *piece) noexcept:
    """A length and that many bytes."""
    if piece.size < 0:
        to[0] = NULL_LENGTH
        return to + 1
    return put_bytes(put_length(to, piece.size), piece.data, piece.size)


# --- rows ------------------------------------------------------------------------------------------------------------


@cython.final
cdef class RowGroup:
    """See `encode.RowGroup`; the rows of one Arrow batch."""

    cdef Texts bodies, keys
    cdef Maps maps
    cdef list targets  # the columns with a partition, as Python values
    cdef bint is_text
    cdef Py_ssize_t at, count

    def __cinit__(self, batch, columns):
        body = batch.column("body")
        self.is_text = pa.types.is_string(body.type)
        self.bodies = Texts(body)
        self.keys = Texts(batch.column("partitionKey")) if "partitionKey" in columns else None
        self.maps = Maps(batch.column("properties")) if "properties" in columns else None
        self.targets = [batch.column(name).to_pylist() for name in ("partition", "partitionId") if name in columns]
        self.at = 0
        self.count = batch.num_rows

    def move_to(self, Segment segment, spread, Py_ssize_t full_bytes):
        cdef Py_ssize_t first = self.at
        cdef int64_t turn = spread.turn, count = spread.count, partition
        cdef Piece body, key
        key.data, key.size = NULL, -1
        try:
            while self.at < self.count and segment.size_bytes < full_bytes:
                self.bodies.read(self.at, &body)
                if self.is_text and body.size > 0:
                    check_text(&body)
                if self.keys is not None:
                    self.read_key(&key)
                target = self.target(&key)
                if target is not None:
                    if target >= count:
                        refuse_partition(target, count)
                    partition = target
                elif key.size >= 0:
                    partition = partition_of_key(&key, count)
                else:
                    partition = turn
                    turn = (turn + 1) % count
                self.write(segment, partition, &body, &key)
                self.at += 1
        finally:
            spread.turn = turn
        return self.at - first

    cdef int read_key(self, Piece *key) except -1:
        self.keys.read(self.at, key)
        if key.size > 0:
            check_text(key)
            if key.size > SHORT_KEY_BYTES:
                check_partition_key(key.data[:key.size].decode())
        return 0

    cdef object target(self, Piece *key):
        """The partition that the row names, or None."""
        cdef list values
        for values in self.targets:
            value = values[self.at]
            if value is not None:
                if key.size >= 0:
                    refuse_two_targets(value, key.data[:key.size].decode())
                return value if type(value) is int and value >= 0 else partition_number(value)
        return None

    cdef int write(self, Segment segment, int64_t partition, Piece *body, Piece *key) except -1:
        cdef Py_ssize_t first = 0, end = 0, tail_bytes, headers_bytes, envelope_bytes
        cdef uint8_t *to
        if self.maps is not None:
            self.maps.read(self.at, &first, &end)
        if first == end and key.size < 0:
            to = segment.begin(partition, body, key, 1, 0)
            to[0] = 0
            return 0
        envelope_bytes = 3 + varint_bytes(end - first) + (1 if body.size < 0 else 0)
        tail_bytes, headers_bytes = 0, 0
        self.measure(first, end, &tail_bytes, &headers_bytes)
        tail_bytes += length_bytes(end - first + 1)
        tail_bytes += 1 + PyBytes_GET_SIZE(ENVELOPE_NAME) + 1 + envelope_bytes
        headers_bytes += PyBytes_GET_SIZE(ENVELOPE_NAME) + envelope_bytes + ENTRY_BYTES
        to = segment.begin(partition, body, key, tail_bytes, headers_bytes)
        to = self.put_entries(put_length(to, end - first + 1), first, end)
        to = put_length(to, PyBytes_GET_SIZE(ENVELOPE_NAME))
        to = put_bytes(to, <const uint8_t *>PyBytes_AS_STRING(ENVELOPE_NAME), PyBytes_GET_SIZE(ENVELOPE_NAME))
        to = put_length(to, envelope_bytes)
        to[0], to[1] = ENVELOPE_VERSION, 1 if body.size < 0 else 0
        to = put_varint(to + 2, end - first)
        to[0] = 0
        if body.size < 0:
            to[1] = 0
        return 0

    cdef int measure(self, Py_ssize_t first, Py_ssize_t end, Py_ssize_t *size, Py_ssize_t *counted) except -1:
        """Add the bytes of the entries as headers, and their size as the limits count it."""
        cdef Piece name, value
        cdef Py_ssize_t index, value_bytes
        for index in range(first, end):
            self.maps.names.read(index, &name)
            self.maps.values.read(index, &value)
            check_text(&name)
            check_text(&value)
            value_bytes = string_bytes(&value)
            size[0] += length_bytes(name.size) + name.size + length_bytes(value_bytes) + value_bytes
            counted[0] += characters_of(&name) + value_bytes + ENTRY_BYTES
        return 0

    cdef uint8_t *put_entries(self, uint8_t *to, Py_ssize_t first, Py_ssize_t end) except NULL:
        cdef Piece name, value
        cdef Py_ssize_t index
        for index in range(first, end):
            self.maps.names.read(index, &name)
            self.maps.values.read(index, &value)
            to = put_piece(to, &name)
            to = put_string(put_length(to, string_bytes(&value)), &value)
        return to


cdef inline Py_ssize_t string_bytes(Piece *text) noexcept:
    """The bytes of a text as an AMQP value."""
    if text.size < 0:
        return 1
    return text.size + (2 if text.size < 256 else 5)


cdef inline uint8_t *put_string(uint8_t *to, Piece *text) noexcept:
    """A text as an AMQP value (AMQP 1.0, 1.6)."""
    if text.size < 0:
        to[0] = AMQP_NULL
        return to + 1
    if text.size < 256:
        to[0], to[1] = STRING8, <uint8_t>text.size
        return put_bytes(to + 2, text.data, text.size)
    to[0] = STRING32
    to[1], to[2] = <uint8_t>(text.size >> 24), <uint8_t>(text.size >> 16)
    to[3], to[4] = <uint8_t>(text.size >> 8), <uint8_t>text.size
    return put_bytes(to + 5, text.data, text.size)
