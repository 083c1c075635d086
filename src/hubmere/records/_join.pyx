# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Several batches become one, with one copy of each record.

The same bytes as `join.join_interpreted` for the batches that are accepted here; all others are left to it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    BATCH_HEADER_BYTES = 61
    LENGTH_PREFIX_BYTES = 12
    # Positions of fields in a header.
    LENGTH_AT = 8
    CRC_AT = 17
    LAST_DELTA_AT = 23
    BASE_TIME_AT = 27
    MAX_TIME_AT = 35
    COUNT_AT = 57
    # A record becomes at most 14 bytes longer: 9 for its time, 4 for its number, 1 for its length.
    GROWTH_BYTES = 16
    MAX_RECORDS = 16777216

# Times are far below this; sums of larger numbers could overflow.
cdef int64_t MAX_DELTA_MS = <int64_t>1 << 60


cdef inline int64_t get_number(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int index
    for index in range(size):
        number = (number << 8) | at[index]
    return <int64_t>number


cdef inline void put_number(uint8_t *to, int64_t number, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        to[size - 1 - index] = <uint8_t>(number >> (8 * index))


cdef inline const uint8_t *get_varint(const uint8_t *at, const uint8_t *stop, uint64_t *value) noexcept nogil:
    """Read a varint of at most 63 bits; returns what follows it, or NULL."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at < stop and shift < 63:
        byte = at[0]
        at += 1
        value[0] |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            return at
        shift += 7
    return NULL


cdef inline int size_of_varint(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *to, uint64_t value) noexcept nogil:
    while value >= 0x80:
        to[0] = <uint8_t>(value | 0x80)
        value >>= 7
        to += 1
    to[0] = <uint8_t>value
    return to + 1


cdef uint8_t *put_records(
    const uint8_t *at, const uint8_t *end, int64_t count, uint8_t *to, int64_t delta, int64_t delta_ms
) noexcept nogil:
    """Write records with offset deltas from `delta` on; returns what follows them, or NULL for records of other forms."""
    cdef uint64_t size, raw, number
    cdef const uint8_t *start
    cdef const uint8_t *stop
    cdef int64_t index, time_ms, start_bytes
    for index in range(count):
        at = get_varint(at, end, &size)
        if at == NULL or size & 1 or size < 6 or size >> 1 > <uint64_t>(end - at):
            return NULL
        start, stop = at, at + (size >> 1)
        at = get_varint(at + 1, stop, &raw)
        if at == NULL:
            return NULL
        start_bytes = at - start
        at = get_varint(at, stop, &number)
        if at == NULL:
            return NULL
        if delta_ms:
            time_ms = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            if not -MAX_DELTA_MS < time_ms < MAX_DELTA_MS:
                return NULL
            time_ms += delta_ms
            raw = (<uint64_t>time_ms << 1) ^ <uint64_t>(time_ms >> 63)
            start_bytes = 1 + size_of_varint(raw)
        number = <uint64_t>(delta + index) << 1
        size = start_bytes + size_of_varint(number) + (stop - at)
        to = put_varint(to, size << 1)
        if delta_ms:
            to[0] = start[0]
            to = put_varint(to + 1, raw)
        else:
            memcpy(to, start, start_bytes)
            to += start_bytes
        to = put_varint(to, number)
        memcpy(to, at, stop - at)
        to += stop - at
        at = stop
    return to if at == end else NULL


cdef inline bint is_plain(const uint8_t *batch, int64_t size, int64_t first_ms) noexcept nogil:
    """Whether the header of a batch has a possible count, and a time near that of the first batch."""
    cdef int64_t count, delta_ms
    if size < BATCH_HEADER_BYTES:
        return False
    count, delta_ms = get_number(batch + COUNT_AT, 4), get_number(batch + BASE_TIME_AT, 8)
    if not (0 < count <= MAX_RECORDS and 0 <= delta_ms < MAX_DELTA_MS and 0 <= first_ms < MAX_DELTA_MS):
        return False
    # Each record has at least seven bytes, so this bounds the memory for a forged count.
    return count <= size


cdef int64_t measure(list batches) except -2:
    """The most bytes that the joined batch can have; -1 if one of the batches is not plain."""
    cdef Py_buffer view
    cdef int64_t total = BATCH_HEADER_BYTES, count = 0, first_ms = -1
    cdef bint is_fine
    for batch in batches:
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if first_ms < 0 and view.len >= BATCH_HEADER_BYTES:
                first_ms = get_number(<const uint8_t *>view.buf + BASE_TIME_AT, 8)
            is_fine = is_plain(<const uint8_t *>view.buf, view.len, first_ms)
            if is_fine:
                count += get_number(<const uint8_t *>view.buf + COUNT_AT, 4)
                total += view.len - BATCH_HEADER_BYTES
        finally:
            PyBuffer_Release(&view)
        if not is_fine or count > MAX_RECORDS:
            return -1
    return total + count * GROWTH_BYTES


def join_plain(list batches):
    """One batch with the records of all, and with the header of the first; None for batches of other forms."""
    cdef Py_buffer view
    cdef int64_t count = 0, newest_ms = 0, first_ms = 0, size = measure(batches)
    cdef const uint8_t *data
    cdef uint8_t *to
    cdef uint8_t *header
    if size < 0 or not batches:
        return None
    joined = PyByteArray_FromStringAndSize(NULL, size)
    header = <uint8_t *>PyByteArray_AS_STRING(joined)
    to = header + BATCH_HEADER_BYTES
    for batch in batches:
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *>view.buf
            if count == 0:
                memcpy(header, data, BATCH_HEADER_BYTES)
                first_ms, newest_ms = get_number(data + BASE_TIME_AT, 8), get_number(data + MAX_TIME_AT, 8)
            to = put_records(
                data + BATCH_HEADER_BYTES,
                data + view.len,
                get_number(data + COUNT_AT, 4),
                to,
                count,
                get_number(data + BASE_TIME_AT, 8) - first_ms,
            )
            count += get_number(data + COUNT_AT, 4)
            newest_ms = max(newest_ms, get_number(data + MAX_TIME_AT, 8))
        finally:
            PyBuffer_Release(&view)
        if to == NULL:
            return None
    size = to - header
    put_number(header + LENGTH_AT, size - LENGTH_PREFIX_BYTES, 4)
    put_number(header + CRC_AT, 0, 4)
    put_number(header + LAST_DELTA_AT, count - 1, 4)
    put_number(header + MAX_TIME_AT, newest_ms, 8)
    put_number(header + COUNT_AT, count, 4)
    PyByteArray_Resize(joined, size)
    return joined
