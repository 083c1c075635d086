# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twins of `decode.Columns` and `capture.avro.Records`: records into Arrow's buffers or into Avro's bytes.

No Python object is made for a field. Bare events, events with a key and short string properties, and Kafka records with
usual headers are decoded here; any other record goes through `row_of` or `encoded_maps`, so that the meaning of an
event is defined in one place. Tests compare the twins. A malformed batch adds nothing. Formats: Kafka record batch v2, Arrow
columnar (32-bit offsets), Avro 1.11 binary.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

import pyarrow as pa

from hubmere.records.kernels import MAX_RECORDS, Malformed
from hubmere.pipeline.capture.files.schema import encoded_maps, time_text
from hubmere.translate.columns import row_of

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)

cdef enum:
    # Headers of one record that are decoded here; records with more are rare and go through `row_of`.
    MOST_HEADERS = 64
    FIRST_BYTES = 4096
    # Unused memory costs nothing until it is written, and large steps copy little of a large body.
    GROWTH = 4
    APPEND_TIME = 0x08
    UNKNOWN_POSITION = -1
    STRING8 = 0xA1

# The largest number of milliseconds whose microseconds fit 64 bits.
cdef int64_t MOST_MS = 9223372036854775
# Half of the range of 64 bits: the sum of two such numbers cannot overflow.
cdef int64_t HALF = 4611686018427387903

cdef bytes ENVELOPE = b"x-opt-amqp"
cdef bytes PARTITION_KEY = b"x-opt-partition-key"
cdef bytes KAFKA_KEY = b"x-opt-kafka-key"
cdef bytes NULL_TEXT = b"null"
# The system property of captured files with the time in ms (`capture.files.originals`).
cdef bytes TIME = b"x-hubmere-enqueued-time"
# What the text of a time can say: the years 1 to 9999.
cdef int64_t FIRST_SECOND = -62135596800
cdef int64_t LAST_SECOND = 253402300799

cdef frozenset FROM_HEADERS = frozenset(("publisher", "partitionKey", "properties", "systemProperties"))


# --- memory ----------------------------------------------------------------------------------------------------------


@cython.final
cdef class Block:
    """Memory that grows, and that Arrow keeps alive through the buffer protocol."""

    cdef uint8_t *data
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    def __cinit__(self):
        self.data = NULL
        self.used = 0
        self.room = 0
        self.grow(FIRST_BYTES)

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.used, 1, flags)

    cdef inline int need(self, Py_ssize_t more) except -1:
        return 0 if self.used + more <= self.room else self.grow(more)

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.room
        while room < self.used + more:
            room = room * GROWTH if room else FIRST_BYTES
        return self.reserve(room)

    cdef int reserve(self, Py_ssize_t room) except -1:
        """Have room for so many bytes, without a copy each time that it grows."""
        cdef uint8_t *grown
        if room <= self.room:
            return 0
        grown = <uint8_t *>realloc(self.data, room)
        if grown == NULL:
            raise MemoryError
        self.data = grown
        self.room = room
        return 0

    cdef inline int put(self, const uint8_t *source, Py_ssize_t count) except -1:
        self.need(count)
        memcpy(self.data + self.used, source, count)
        self.used += count
        return 0

    cdef int fill(self, uint8_t value, Py_ssize_t count) except -1:
        self.need(count)
        memset(self.data + self.used, value, count)
        self.used += count
        return 0

    cdef inline int put_byte(self, uint8_t value) except -1:
        self.need(1)
        self.data[self.used] = value
        self.used += 1
        return 0

    cdef inline int put_int32(self, int32_t value) except -1:
        self.need(4)
        (<int32_t *>(self.data + self.used))[0] = value
        self.used += 4
        return 0

    cdef inline int put_int64(self, int64_t value) except -1:
        self.need(8)
        (<int64_t *>(self.data + self.used))[0] = value
        self.used += 8
        return 0


@cython.final
cdef class Texts:
    """A column of nullable bytes or texts.

    Most columns have no nulls or only nulls: `present` is filled only after both occurred, `ends` after the first text.
    """

    cdef Block ends
    cdef Block data
    cdef Block present
    cdef Py_ssize_t count
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.ends = Block()
        self.data = Block()
        self.present = Block()
        self.count = 0
        self.nulls = 0
        self.ends.put_int32(0)

    cdef inline int add(self, const uint8_t *source, Py_ssize_t size) except -1:
        if self.nulls:
            if self.nulls == self.count:
                self.ends.fill(0, self.count * 4)
                self.present.fill(0, self.count)
            self.present.put_byte(1)
        if size > 0:
            self.data.put(source, size)
        self.ends.put_int32(<int32_t>self.data.used)
        self.count += 1
        return 0

    cdef inline int add_null(self) except -1:
        if self.nulls != self.count:
            if self.nulls == 0:
                self.present.fill(1, self.count)
            self.ends.put_int32(<int32_t>self.data.used)
            self.present.put_byte(0)
        self.count += 1
        self.nulls += 1
        return 0

    cdef int add_object(self, object text) except -1:
        cdef bytes encoded
        if text is None:
            return self.add_null()
        encoded = (<str>text).encode()
        return self.add(<const uint8_t *>PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))

    cdef int truncate(self, Py_ssize_t count, Py_ssize_t nulls) except -1:
        """Keep the first `count` values, `nulls` of which are null."""
        cdef Py_ssize_t kept = count if nulls != count else 0
        self.ends.used = (kept + 1) * 4
        self.data.used = (<int32_t *>self.ends.data)[kept]
        self.present.used = kept if nulls else 0
        self.count = count
        self.nulls = nulls
        return 0

    cdef object array(self, object kind):
        if self.nulls and self.nulls == self.count:
            return pa.nulls(self.count, kind)
        validity = pa.py_buffer(self.bits()) if self.nulls else None
        buffers = [validity, pa.py_buffer(self.ends), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind, self.count, buffers, self.nulls)

    cdef bytes bits(self):
        cdef Py_ssize_t index
        cdef bytearray packed = bytearray((self.count + 7) // 8)
        cdef uint8_t *out = <uint8_t *><char *>packed
        for index in range(self.count):
            out[index >> 3] |= <uint8_t>(self.present.data[index] << (index & 7))
        return bytes(packed)


@cython.final
cdef class Maps:
    """A column of maps from text to text; `ends` is filled after the first entry."""

    cdef Block ends
    cdef Texts names
    cdef Texts values
    cdef Py_ssize_t count

    def __cinit__(self):
        self.ends = Block()
        self.names = Texts()
        self.values = Texts()
        self.count = 0
        self.ends.put_int32(0)

    cdef inline int close(self) except -1:
        """Make one map of the entries that were added since the last call."""
        if self.names.count:
            if self.ends.used != (self.count + 1) * 4:
                self.ends.fill(0, self.count * 4)
            self.ends.put_int32(<int32_t>self.names.count)
        self.count += 1
        return 0

    cdef int add_object(self, dict entries) except -1:
        for name, value in entries.items():
            self.names.add_object(name)
            self.values.add_object(value)
        return self.close()

    cdef int truncate(self, Py_ssize_t count) except -1:
        """Keep the first `count` maps."""
        cdef Py_ssize_t entries = 0
        if self.ends.used > 4:
            entries = (<int32_t *>self.ends.data)[count]
        self.ends.used = (count + 1) * 4 if entries else 4
        self.names.truncate(entries, 0)
        self.values.truncate(entries, 0)
        self.count = count
        return 0

    cdef object array(self):
        if not self.names.count:
            self.ends.used = 0
            self.ends.fill(0, (self.count + 1) * 4)
        ends = pa.Array.from_buffers(pa.int32(), self.count + 1, [None, pa.py_buffer(self.ends)])
        return pa.MapArray.from_arrays(ends, self.names.array(pa.string()), self.values.array(pa.string()))


# --- reading ---------------------------------------------------------------------------------------------------------


cdef struct Piece:
    const uint8_t *data
    Py_ssize_t size  # -1: null


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline int read_varint(Cursor *cursor, int64_t *value) except -1:
    """A zig-zag varint of at most 64 bits; most take one byte."""
    cdef uint8_t byte
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        byte = cursor.at[0]
        cursor.at += 1
        value[0] = <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
        return 0
    return read_long_varint(cursor, value)


cdef int read_long_varint(Cursor *cursor, int64_t *value) except -1:
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 64:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            break
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
            return 0
        shift += 7
    raise Malformed("a varint is cut short or too long")


cdef inline int read_piece(Cursor *cursor, Piece *piece) except -1:
    """A length and that many bytes; -1 is null."""
    cdef int64_t size = 0
    read_varint(cursor, &size)
    if size < -1:
        raise Malformed("a length is negative")
    if size > cursor.end - cursor.at:
        raise Malformed("a record is cut short")
    piece.data = cursor.at
    piece.size = size
    if size > 0:
        cursor.at += size
    return 0


cdef inline bint is_text(const uint8_t *data, Py_ssize_t size) except -1:
    """Whether bytes are UTF-8."""
    cdef Py_ssize_t index
    for index in range(size):
        if data[index] & 0x80:
            try:
                PyUnicode_DecodeUTF8(<const char *>data, size, NULL)
            except UnicodeDecodeError:
                return False
            return True
    return True


cdef inline bint is_same(Piece *piece, bytes wanted):
    return piece.size == PyBytes_GET_SIZE(wanted) and (
        memcmp(piece.data, PyBytes_AS_STRING(wanted), piece.size) == 0
    )


cdef inline object object_of(Piece *piece):
    return None if piece.size < 0 else PyBytes_FromStringAndSize(<const char *>piece.data, piece.size)


cdef inline Py_ssize_t digits_of(uint64_t number, uint8_t *room):
    """Write a number as decimal text to the end of 20 bytes; returns where the text begins."""
    cdef Py_ssize_t at = 20
    while True:
        at -= 1
        room[at] = <uint8_t>(48 + number % 10)
        number //= 10
        if number == 0:
            return at


cdef class RecordWalk:
    """Walks over the records of a batch and calls `event` for those in the range, with their headers in `names`."""

    cdef bint wants_offsets
    cdef Piece names[MOST_HEADERS]
    cdef Piece contents[MOST_HEADERS]
    cdef Py_ssize_t header_count
    cdef list more_headers  # all headers as objects, if there are more than `names` can hold

    cdef int event(self, Piece *key, Piece *value, int64_t sequence, int64_t offset, int64_t time_us) except -1:
        raise NotImplementedError

    cdef int walk(
        self, header, int64_t position, const uint8_t[::1] opened, Py_ssize_t at, int64_t low, int64_t high
    ) except -1:
        cdef const uint8_t *begin = &opened[0] if opened.shape[0] else NULL
        cdef const uint8_t *stop = begin + opened.shape[0]
        cdef int64_t records = header.record_count
        cdef int64_t last_delta = header.last_delta
        cdef int64_t base = header.base_sequence_number
        cdef int64_t size_bytes = header.size_bytes
        cdef bint is_append_time = header.attributes & APPEND_TIME
        cdef int64_t time_ms = header.max_time_ms if is_append_time else header.base_time_ms
        cdef int64_t index, size = 0, time_delta = 0, delta = 0, before = -1, offset
        cdef Piece key, value
        cdef Cursor cursor
        if records < 0 or records > MAX_RECORDS:
            raise Malformed("a record count is not possible")
        cursor.at = begin + at
        for index in range(records):
            cursor.end = stop
            read_varint(&cursor, &size)
            if size < 1 or size > stop - cursor.at:
                raise Malformed("a record is cut short")
            cursor.end = cursor.at + size
            cursor.at += 1
            read_varint(&cursor, &time_delta)
            read_varint(&cursor, &delta)
            read_piece(&cursor, &key)
            read_piece(&cursor, &value)
            if delta > last_delta:
                raise Malformed("an offset delta is outside its batch")
            if delta <= before:
                raise Malformed("offset deltas do not increase")
            before = delta
            self.read_headers(&cursor)
            if not low <= delta < high:
                continue
            offset = base + delta
            if self.wants_offsets and position != UNKNOWN_POSITION:
                offset = position + delta * size_bytes // (last_delta + 1)
            self.event(&key, &value, base + delta, offset, microseconds(time_ms, 0 if is_append_time else time_delta))
        if cursor.at != stop:
            raise Malformed("a batch holds more than its records")
        return 0

    cdef int read_headers(self, Cursor *cursor) except -1:
        """Read the headers, up to the end of the record."""
        cdef int64_t count = 0
        cdef int64_t index
        cdef Piece name, content
        if self.more_headers is not None:
            self.more_headers = None
        read_varint(cursor, &count)
        if count < 0:
            raise Malformed("a header count is negative")
        if count > MOST_HEADERS:
            self.more_headers = []
        for index in range(count):
            read_piece(cursor, &name)
            if name.size < 0:
                raise Malformed("a header has no name")
            read_piece(cursor, &content)
            if self.more_headers is not None:
                self.more_headers.append((object_of(&name), object_of(&content)))
            else:
                self.names[index] = name
                self.contents[index] = content
        if cursor.at != cursor.end:
            raise Malformed("a record holds more or less than its fields")
        self.header_count = count
        return 0

    cdef list headers(self):
        """The headers of the event as objects."""
        cdef Py_ssize_t index
        if self.more_headers is not None:
            return self.more_headers
        return [(object_of(&self.names[index]), object_of(&self.contents[index])) for index in range(self.header_count)]

    cdef bint is_message(self) except -1:
        """Whether the last header may be the envelope of a message."""
        cdef Py_ssize_t last = self.header_count - 1
        return last >= 0 and is_same(&self.names[last], ENVELOPE) and self.contents[last].size >= 0

    cdef bint is_plain_envelope(self) except -1:
        """Whether the last header is the envelope of a body and properties, all short strings with different names."""
        cdef Py_ssize_t count = self.header_count
        cdef Piece *envelope = &self.contents[count - 1]
        cdef Py_ssize_t index
        if envelope.size != 4 or envelope.data[0] != 1 or envelope.data[1] != 0:
            return False
        if envelope.data[2] != count - 1 or envelope.data[3] != 0:
            return False
        for index in range(count - 1):
            if self.contents[index].size < 2 or self.contents[index].data[0] != STRING8:
                return False
            if self.contents[index].data[1] != self.contents[index].size - 2:
                return False
            if not is_text(self.contents[index].data + 2, self.contents[index].size - 2):
                return False
        return self.are_names_plain(count - 1)

    cdef bint are_names_plain(self, Py_ssize_t count) except -1:
        """Whether all names are UTF-8 and none is repeated."""
        cdef Py_ssize_t index, other
        for index in range(count):
            if not is_text(self.names[index].data, self.names[index].size):
                return False
            for other in range(index):
                if self.names[index].size == self.names[other].size and (
                    memcmp(self.names[index].data, self.names[other].data, self.names[index].size) == 0
                ):
                    return False
        return True


# --- Arrow -----------------------------------------------------------------------------------------------------------


@cython.final
cdef class Columns(RecordWalk):
    """See `decode.Columns`."""

    cdef str partition
    cdef bint wants_bodies, wants_rows
    cdef Texts bodies, offsets, publishers, keys
    cdef Maps properties, systems
    cdef Block sequences, times_us
    cdef Py_ssize_t count

    def __cinit__(self, str partition, wanted, Py_ssize_t expected_bytes=0):
        self.partition = partition
        self.wants_bodies = "body" in wanted
        self.wants_offsets = "offset" in wanted
        self.wants_rows = not FROM_HEADERS.isdisjoint(wanted)
        self.bodies = Texts()
        self.offsets = Texts()
        self.publishers = Texts()
        self.keys = Texts()
        self.properties = Maps()
        self.systems = Maps()
        self.sequences = Block()
        self.times_us = Block()
        self.count = 0
        if self.wants_bodies:
            self.bodies.data.reserve(expected_bytes)

    def __len__(self):
        return self.count

    def add(self, header, int64_t position, const uint8_t[::1] opened, Py_ssize_t at, int64_t low, int64_t high):
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t nulls[4]
        nulls[0], nulls[1] = self.bodies.nulls, self.offsets.nulls
        nulls[2], nulls[3] = self.publishers.nulls, self.keys.nulls
        try:
            self.walk(header, position, opened, at, low, high)
        except Malformed:
            self.truncate(count, nulls)
            raise

    cdef int truncate(self, Py_ssize_t count, Py_ssize_t *nulls) except -1:
        """Keep the first `count` events."""
        if self.wants_bodies:
            self.bodies.truncate(count, nulls[0])
        if self.wants_offsets:
            self.offsets.truncate(count, nulls[1])
        if self.wants_rows:
            self.publishers.truncate(count, nulls[2])
            self.keys.truncate(count, nulls[3])
            self.properties.truncate(count)
            self.systems.truncate(count)
        self.sequences.used = self.times_us.used = count * 8
        self.count = count
        return 0

    cdef int event(self, Piece *key, Piece *value, int64_t sequence, int64_t offset, int64_t time_us) except -1:
        cdef uint8_t room[20]
        cdef Py_ssize_t first
        if self.wants_rows:
            self.add_row(key, value)
        if self.wants_bodies:
            if value.size < 0:
                self.bodies.add_null()
            else:
                self.bodies.add(value.data, value.size)
        if self.wants_offsets:
            first = digits_of(offset, room)
            self.offsets.add(room + first, 20 - first)
        self.sequences.put_int64(sequence)
        self.times_us.put_int64(time_us)
        self.count += 1
        return 0

    cdef int add_row(self, Piece *key, Piece *value) except -1:
        """Add the columns that depend on key and headers."""
        if self.more_headers is None and self.add_usual_row(key, value):
            return 0
        row = row_of(object_of(key), object_of(value), self.headers())
        self.keys.add_object(row.partition_key)
        self.publishers.add_object(row.publisher)
        self.properties.add_object(row.properties)
        self.systems.add_object(row.system_properties)
        return 0

    cdef bint add_usual_row(self, Piece *key, Piece *value) except -1:
        """Add the row of a usual record; returns False, and adds nothing, for any other."""
        cdef Py_ssize_t count = self.header_count
        cdef bint is_amqp = self.is_message()
        if key.size >= 0 and not is_text(key.data, key.size):
            return False
        if is_amqp:
            if value.size < 0 or not self.is_plain_envelope():
                return False
            count -= 1
        elif not self.is_plain_kafka():
            return False
        self.add_properties(count, 2 if is_amqp else 0)
        self.publishers.add_null()
        if key.size < 0:
            self.keys.add_null()
        else:
            if is_amqp:
                self.keys.add(key.data, key.size)
                self.add_entry(self.systems, PARTITION_KEY, key)
            else:
                self.keys.add_null()
                self.add_entry(self.systems, KAFKA_KEY, key)
        self.systems.close()
        return True

    cdef bint is_plain_kafka(self) except -1:
        cdef Py_ssize_t index
        for index in range(self.header_count):
            if self.contents[index].size > 0 and not is_text(self.contents[index].data, self.contents[index].size):
                return False
        return self.are_names_plain(self.header_count)

    cdef int add_properties(self, Py_ssize_t count, Py_ssize_t skipped) except -1:
        """Add one map of the first headers, without the leading bytes of each value that are not text."""
        cdef Py_ssize_t index
        for index in range(count):
            self.properties.names.add(self.names[index].data, self.names[index].size)
            if self.contents[index].size < 0:
                self.properties.values.add(<const uint8_t *>PyBytes_AS_STRING(NULL_TEXT), 4)
            else:
                self.properties.values.add(self.contents[index].data + skipped, self.contents[index].size - skipped)
        return self.properties.close()

    cdef int add_entry(self, Maps maps, bytes name, Piece *text) except -1:
        maps.names.add(<const uint8_t *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        maps.values.add(text.data, text.size)
        return 0

    def build(self, schema):
        return pa.RecordBatch.from_arrays([self.array(name) for name in schema.names], schema=schema)

    cdef object array(self, str name):
        if name == "body":
            return self.bodies.array(pa.binary())
        if name == "partition":
            return pa.repeat(pa.scalar(self.partition, pa.string()), self.count)
        if name == "offset":
            return self.offsets.array(pa.string())
        if name == "sequenceNumber":
            return pa.Array.from_buffers(pa.int64(), self.count, [None, pa.py_buffer(self.sequences)])
        if name == "enqueuedTime":
            kind = pa.timestamp("us", tz="UTC")
            return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(self.times_us)])
        if name == "publisher":
            return self.publishers.array(pa.string())
        if name == "partitionKey":
            return self.keys.array(pa.string())
        return (self.properties if name == "properties" else self.systems).array()


cdef inline int64_t microseconds(int64_t time_ms, int64_t delta_ms):
    """A time in microseconds, limited to 64 bits: a producer may write any time."""
    if (time_ms < 0) == (delta_ms < 0):
        # Only numbers of the same sign can overflow, and half of the range is beyond the limit anyway.
        time_ms = min(max(time_ms, -HALF), HALF)
        delta_ms = min(max(delta_ms, -HALF), HALF)
    return min(max(time_ms + delta_ms, -MOST_MS), MOST_MS) * 1000


# --- Avro ------------------------------------------------------------------------------------------------------------

# The branches of a union, as zig-zag numbers (Avro 1.11, Complex Types).
cdef enum:
    KIND_LONG = 0
    KIND_STRING = 4
    KIND_BYTES = 6
    KIND_NULL = 8
    BODY_NULL = 0
    BODY_BYTES = 2
    MICROSECONDS = 1000000


cdef inline int put_long(Block block, int64_t number) except -1:
    cdef uint64_t bits = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    block.need(10)
    while bits > 0x7F:
        block.data[block.used] = <uint8_t>(bits & 0x7F | 0x80)
        block.used += 1
        bits >>= 7
    block.data[block.used] = <uint8_t>bits
    block.used += 1
    return 0


cdef inline int put_sized(Block block, const uint8_t *data, Py_ssize_t size) except -1:
    put_long(block, size)
    return block.put(data, size) if size > 0 else 0


@cython.final
cdef class Records(RecordWalk):
    """See `capture.avro.Records`."""

    cdef Block data
    cdef readonly Py_ssize_t count
    cdef int64_t first_us, last_us, second
    # Whether the text of the time does not say its milliseconds: then a system property does.
    cdef bint tells_time
    cdef int64_t time_ms
    cdef bytes text

    def __cinit__(self):
        self.wants_offsets = True
        self.text = b""
        self.second = -1
        self.clear()

    def __len__(self):
        return self.data.used

    @property
    def times_us(self):
        return self.first_us, self.last_us

    def add(self, header, int64_t position, const uint8_t[::1] opened, Py_ssize_t at, int64_t low, int64_t high):
        cdef Py_ssize_t used = self.data.used, count = self.count
        cdef int64_t last_us = self.last_us
        try:
            self.walk(header, position, opened, at, low, high)
        except Malformed:
            self.data.used, self.count, self.last_us = used, count, last_us
            raise

    def take(self):
        cdef Block taken = self.data
        self.clear()
        return taken

    cdef void clear(self):
        self.data = Block()
        self.count = 0
        self.first_us = self.last_us = 0

    cdef int event(self, Piece *key, Piece *value, int64_t sequence, int64_t offset, int64_t time_us) except -1:
        cdef Block data = self.data
        cdef uint8_t room[20]
        cdef Py_ssize_t first = digits_of(offset, room)
        put_long(data, sequence)
        put_sized(data, room + first, 20 - first)
        self.put_time(time_us)
        self.put_maps(key, value)
        if value.size < 0:
            data.put_byte(BODY_NULL)
        else:
            data.put_byte(BODY_BYTES)
            put_sized(data, value.data, value.size)
        if self.count == 0:
            self.first_us = time_us
        self.last_us = time_us
        self.count += 1
        return 0

    cdef int put_time(self, int64_t time_us) except -1:
        """The time as text, made once for each second."""
        cdef int64_t second = time_us // MICROSECONDS, time_ms = time_us // 1000, implied_ms
        if time_us < 0 and second * MICROSECONDS != time_us:
            second -= 1
        implied_ms = self.time_ms if self.count > 0 and second == self.second else second * 1000
        self.tells_time = time_ms != implied_ms or second < FIRST_SECOND or second > LAST_SECOND
        self.time_ms = time_ms
        if second != self.second or not self.text:
            self.text = time_text(second)
            self.second = second
        return put_sized(self.data, <const uint8_t *>PyBytes_AS_STRING(self.text), PyBytes_GET_SIZE(self.text))

    cdef int put_maps(self, Piece *key, Piece *value) except -1:
        cdef bytes maps
        if self.more_headers is None:
            if not self.is_message():
                if self.are_names_plain(self.header_count):
                    self.put_key(KAFKA_KEY, key, KIND_BYTES)
                    return self.put_properties(self.header_count, 0, KIND_BYTES)
            elif value.size >= 0 and (key.size < 0 or is_text(key.data, key.size)) and self.is_plain_envelope():
                self.put_key(PARTITION_KEY, key, KIND_STRING)
                return self.put_properties(self.header_count - 1, 2, KIND_STRING)
        told = self.time_ms if self.tells_time else None
        maps = encoded_maps(object_of(key), object_of(value), self.headers(), told)
        return self.data.put(<const uint8_t *>PyBytes_AS_STRING(maps), PyBytes_GET_SIZE(maps))

    cdef int put_key(self, bytes name, Piece *key, uint8_t kind) except -1:
        """The map with the key and the time, if there are any."""
        cdef int64_t count = (1 if key.size >= 0 else 0) + (1 if self.tells_time else 0)
        if count > 0:
            put_long(self.data, count)
        if key.size >= 0:
            put_sized(self.data, <const uint8_t *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            self.data.put_byte(kind)
            put_sized(self.data, key.data, key.size)
        if self.tells_time:
            put_sized(self.data, <const uint8_t *>PyBytes_AS_STRING(TIME), PyBytes_GET_SIZE(TIME))
            self.data.put_byte(KIND_LONG)
            put_long(self.data, self.time_ms)
        return self.data.put_byte(0)

    cdef int put_properties(self, Py_ssize_t count, Py_ssize_t skipped, uint8_t kind) except -1:
        """Add one map of the first headers, without the `skipped` leading bytes of each value.

        A header without a value becomes null.
        """
        cdef Py_ssize_t index
        if count > 0:
            put_long(self.data, count)
        for index in range(count):
            put_sized(self.data, self.names[index].data, self.names[index].size)
            if self.contents[index].size < 0:
                self.data.put_byte(KIND_NULL)
            else:
                self.data.put_byte(kind)
                put_sized(self.data, self.contents[index].data + skipped, self.contents[index].size - skipped)
        return self.data.put_byte(0)
