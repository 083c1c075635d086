# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `validate.first_fault_interpreted`: the same faults for the same bytes, without copying them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    LENGTH = 1
    VARINT = 2
    DELTA = 3
    NO_KEY = 4
    BLOB = 5
    HEADERS = 6
    END = 7
    TRAILING = 8
    COUNT = 9
    MAX_RECORDS = 16777216


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *stop
    int64_t delta
    int fault


cdef inline int64_t read_int(Cursor *cursor) noexcept nogil:
    """A zig-zag varint of at most 32 bits; sets `fault` if there is none."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.stop and shift < 35:
        byte = cursor.at[0]
        cursor.at += 1
        value |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            if value >> 32:
                break
            return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
        shift += 7
    cursor.fault = VARINT
    return 0


cdef inline void skip_long(Cursor *cursor) noexcept nogil:
    """A zig-zag varint of at most 64 bits, whose value does not matter."""
    cdef int count = 0
    cdef uint8_t byte
    while cursor.at < cursor.stop and count < 10:
        byte = cursor.at[0]
        cursor.at += 1
        count += 1
        if byte < 0x80:
            if count == 10 and byte > 1:
                break
            return
    cursor.fault = VARINT


cdef inline int64_t skip_blob(Cursor *cursor) noexcept nogil:
    """The length of a key, value or header, which is passed over; -1 for null."""
    cdef int64_t length = read_int(cursor)
    if cursor.fault:
        return 0
    if length < -1 or length > cursor.stop - cursor.at:
        cursor.fault = BLOB
        return 0
    if length > 0:
        cursor.at += length
    return length


cdef void walk_record(Cursor *cursor, int64_t least_delta, bint is_dense, bint keys_required) noexcept nogil:
    cdef int64_t delta, headers
    if cursor.at < cursor.stop:
        cursor.at += 1  # attributes, unused
    else:
        cursor.fault = VARINT
        return
    skip_long(cursor)
    if cursor.fault:
        return
    delta = read_int(cursor)
    if cursor.fault:
        return
    if delta < least_delta or (is_dense and delta != least_delta):
        cursor.fault = DELTA
        return
    cursor.delta = delta
    if skip_blob(cursor) < 0 and keys_required:
        cursor.fault = NO_KEY
    if cursor.fault:
        return
    skip_blob(cursor)
    if cursor.fault:
        return
    headers = read_int(cursor)
    if cursor.fault:
        return
    if headers < 0:
        cursor.fault = HEADERS
        return
    while headers > 0:
        headers -= 1
        if skip_blob(cursor) < 0 and not cursor.fault:
            cursor.fault = BLOB
        if cursor.fault:
            return
        skip_blob(cursor)
        if cursor.fault:
            return


cdef int walk(
    const uint8_t *at, const uint8_t *end, int64_t count, bint keys_required, bint is_dense, int64_t *index
) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t length
    index[0] = 0
    cursor.delta = -1
    while index[0] < count:
        cursor.at = at
        cursor.stop = end
        cursor.fault = 0
        length = read_int(&cursor)
        if cursor.fault:
            return cursor.fault
        if length < 0 or length > end - cursor.at:
            return LENGTH
        cursor.stop = cursor.at + length
        walk_record(&cursor, cursor.delta + 1, is_dense, keys_required)
        if cursor.fault:
            return cursor.fault
        if cursor.at != cursor.stop:
            return END
        at = cursor.stop
        index[0] += 1
    return 0 if at == end else TRAILING


def first_fault(object data, Py_ssize_t start, Py_ssize_t end, int64_t count, bint keys_required, bint is_dense=True):
    """The first fault of `count` uncompressed records between two positions; None if there is none."""
    cdef Py_buffer view
    cdef int64_t index = 0
    cdef int fault
    if count <= 0 or count > MAX_RECORDS:
        return 0, COUNT
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise IndexError("the records do not lie inside the buffer")
        fault = walk(
            <const uint8_t *>view.buf + start,
            <const uint8_t *>view.buf + end,
            count,
            keys_required,
            is_dense,
            &index,
        )
    finally:
        PyBuffer_Release(&view)
    return (index, fault) if fault else None
