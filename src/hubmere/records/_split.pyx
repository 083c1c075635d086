# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Batch messages of plain events become records, with one copy of each body.

The same bytes as `kernels.split_batch` for the batches that are accepted here; all others are left to it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    BATCH_HEADER_BYTES = 61
    # A Data section: the descriptor 0x00 0x53 0x75, then binary with a length of one byte or of four.
    SHORT_LENGTH = 0xA0
    LONG_LENGTH = 0xB0


cdef struct Extent:
    int64_t first
    int64_t stop


cdef inline bint find_data(const uint8_t *data, int64_t at, int64_t end, Extent *content) noexcept nogil:
    """The content of the Data section at a position; False if there is none, or if it is cut off."""
    if end - at < 5 or data[at] != 0 or data[at + 1] != 0x53 or data[at + 2] != 0x75:
        return False
    if data[at + 3] == SHORT_LENGTH:
        content.first = at + 5
        content.stop = content.first + data[at + 4]
    elif data[at + 3] == LONG_LENGTH and end - at >= 8:
        content.first = at + 8
        content.stop = content.first + (
            (<uint32_t>data[at + 4] << 24) | (<uint32_t>data[at + 5] << 16) | (<uint32_t>data[at + 6] << 8) | data[at + 7]
        )
    else:
        return False
    return content.stop <= end


cdef inline bint find_body(const uint8_t *data, int64_t at, int64_t end, Extent *body) noexcept nogil:
    """The body of a plain event: a Data section whose content is one Data section and nothing else."""
    cdef Extent message
    if not find_data(data, at, end, &message):
        return False
    return find_data(data, message.first, message.stop, body) and body.stop == message.stop


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


cdef inline int64_t record_bytes(int64_t index, int64_t body_bytes, int64_t fixed_bytes) noexcept nogil:
    """The size of a record without its own length. Lengths and deltas are zig-zag: twice the number."""
    return 2 + size_of_varint(index * 2) + fixed_bytes + size_of_varint(body_bytes * 2) + body_bytes


cdef int64_t measure(const uint8_t *data, int64_t end, int64_t fixed_bytes, int64_t *count) noexcept nogil:
    """The size of all records, and their number; -1 if a section is not a plain event."""
    cdef Extent body
    cdef int64_t at = 0, total = 0, size
    count[0] = 0
    while at < end:
        if not find_body(data, at, end, &body):
            return -1
        size = record_bytes(count[0], body.stop - body.first, fixed_bytes)
        total += size_of_varint(size * 2) + size
        count[0] += 1
        at = body.stop
    return total


cdef void write(
    const uint8_t *data, int64_t end, const char *key, int64_t key_bytes, const char *tail, int64_t tail_bytes, uint8_t *to
) noexcept nogil:
    cdef Extent body
    cdef int64_t at = 0, index = 0, size
    while at < end:
        find_body(data, at, end, &body)
        size = body.stop - body.first
        to = put_varint(to, record_bytes(index, size, key_bytes + tail_bytes) * 2)
        to[0] = to[1] = 0  # attributes and time delta
        to = put_varint(to + 2, index * 2)
        memcpy(to, key, key_bytes)
        to = put_varint(to + key_bytes, size * 2)
        memcpy(to, data + body.first, size)
        memcpy(to + size, tail, tail_bytes)
        to += size + tail_bytes
        index += 1
        at = body.stop


def split_plain(object payload, bytes key, bytes tail):
    """The plain events of a batch as records behind 61 bytes for the header, and their number; None for other batches.

    `key` and `tail` are what each record has before and after its value.
    """
    cdef Py_buffer view
    cdef int64_t count = 0, size
    cdef int64_t key_bytes = PyBytes_GET_SIZE(key), tail_bytes = PyBytes_GET_SIZE(tail)
    cdef uint8_t *to
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        size = measure(<const uint8_t *>view.buf, view.len, key_bytes + tail_bytes, &count)
        if size <= 0:
            return None
        batch = PyByteArray_FromStringAndSize(NULL, BATCH_HEADER_BYTES + size)
        to = <uint8_t *>PyByteArray_AS_STRING(batch)
        memset(to, 0, BATCH_HEADER_BYTES)
        write(
            <const uint8_t *>view.buf,
            view.len,
            PyBytes_AS_STRING(key),
            key_bytes,
            PyBytes_AS_STRING(tail),
            tail_bytes,
            to + BATCH_HEADER_BYTES,
        )
    finally:
        PyBuffer_Release(&view)
    return batch, count
