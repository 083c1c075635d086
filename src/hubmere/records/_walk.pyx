# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `walk.walk_batches_interpreted`: the same result for the same bytes, without the interpreter."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

cdef enum:
    HEADER_BYTES = 61
    LENGTH_PREFIX_BYTES = 12
    CHECKED_FROM = 21
    TRANSACTIONAL_OR_CONTROL = 0x30
    INTERVAL_BYTES = 4096
    REMEMBERED = 5
    MAX_WALKED_BYTES = 16384


# --- CRC-32C, eight bytes at a time ("slicing by 8") ---

cdef uint32_t _TABLES[8][256]


cdef void _fill_tables() noexcept:
    cdef uint32_t crc
    cdef int byte, bit, table
    for byte in range(256):
        crc = <uint32_t>byte
        for bit in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0x82F63B78 if crc & 1 else 0)
        _TABLES[0][byte] = crc
    for byte in range(256):
        crc = _TABLES[0][byte]
        for table in range(1, 8):
            crc = _TABLES[0][crc & 0xFF] ^ (crc >> 8)
            _TABLES[table][byte] = crc


_fill_tables()


cdef uint32_t _crc32c(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = ~(<uint32_t>0)
    while size >= 8:
        crc ^= <uint32_t>at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)
        crc = (
            _TABLES[7][crc & 0xFF] ^ _TABLES[6][(crc >> 8) & 0xFF]
            ^ _TABLES[5][(crc >> 16) & 0xFF] ^ _TABLES[4][crc >> 24]
            ^ _TABLES[3][at[4]] ^ _TABLES[2][at[5]] ^ _TABLES[1][at[6]] ^ _TABLES[0][at[7]]
        )
        at += 8
        size -= 8
    while size > 0:
        crc = _TABLES[0][(crc ^ at[0]) & 0xFF] ^ (crc >> 8)
        at += 1
        size -= 1
    return ~crc


# --- big-endian numbers ---

cdef inline uint32_t _u32(const uint8_t *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline int64_t _i64(const uint8_t *at) noexcept nogil:
    return <int64_t>((<uint64_t>_u32(at) << 32) | <uint64_t>_u32(at + 4))


cdef inline int16_t _i16(const uint8_t *at) noexcept nogil:
    return <int16_t>((<int>at[0] << 8) | <int>at[1])


# --- the walk ---

cdef struct Entry:
    int64_t last
    int64_t position
    int64_t max_time_ms
    int64_t max_time_sequence


cdef struct Numbered:
    int64_t producer_id
    int16_t epoch
    int32_t first
    int32_t last_delta
    int64_t last
    int64_t time_ms


cdef struct Walk:
    int64_t next_sequence
    int64_t position
    int64_t unindexed_bytes
    int64_t max_time_ms
    int64_t max_time_sequence
    int64_t first_time_ms
    int64_t newest_ms
    int64_t last_at
    int64_t last_size
    int64_t last_count
    Py_ssize_t entries
    Py_ssize_t numbered
    Py_ssize_t same_producer


cdef void _walk(
    const uint8_t *data, Py_ssize_t size, int64_t end_before, bint is_sparse, Walk *walk, Entry *entries,
    Numbered *numbered, Py_ssize_t *walked, Py_ssize_t *count,
) noexcept nogil:
    cdef const uint8_t *at = data
    cdef Py_ssize_t left = size
    cdef int64_t length, base, last, time_ms, producer_id
    cdef int32_t last_delta, records
    cdef Numbered *slot
    cdef Py_ssize_t index
    while left >= HEADER_BYTES:
        length = <int64_t><int32_t>_u32(at + 8) + LENGTH_PREFIX_BYTES
        if at[16] != 2 or length < HEADER_BYTES or length > left or length > MAX_WALKED_BYTES:
            return
        base = _i64(at)
        last_delta = <int32_t>_u32(at + 23)
        records = <int32_t>_u32(at + 57)
        if last_delta < 0 or records < 0 or base < walk.next_sequence or (base > walk.next_sequence and not is_sparse):
            return
        if base >= end_before - last_delta:
            return
        last = base + last_delta
        if at[22] & TRANSACTIONAL_OR_CONTROL:
            return
        if _crc32c(at + CHECKED_FROM, length - CHECKED_FROM) != _u32(at + 17):
            return
        time_ms = _i64(at + 35)
        producer_id = _i64(at + 43)
        if time_ms > walk.max_time_ms:
            walk.max_time_ms = time_ms
            walk.max_time_sequence = last
        if time_ms > walk.newest_ms:
            walk.newest_ms = time_ms
        if walk.unindexed_bytes > INTERVAL_BYTES:
            entries[walk.entries].last = last
            entries[walk.entries].position = walk.position
            entries[walk.entries].max_time_ms = walk.max_time_ms
            entries[walk.entries].max_time_sequence = walk.max_time_sequence
            walk.entries += 1
            walk.unindexed_bytes = 0
        if walk.position == 0:
            walk.first_time_ms = time_ms
        if records:
            walk.last_at = walk.position
            walk.last_size = length
            walk.last_count = records
        if producer_id >= 0:
            if walk.numbered and numbered[walk.numbered - 1].producer_id == producer_id \
                    and numbered[walk.numbered - 1].epoch == _i16(at + 51):
                walk.same_producer += 1
            else:
                walk.same_producer = 1
            if walk.same_producer > REMEMBERED:
                # Only the last five batches of a producer are remembered.
                for index in range(walk.numbered - REMEMBERED, walk.numbered - 1):
                    numbered[index] = numbered[index + 1]
                slot = &numbered[walk.numbered - 1]
            else:
                slot = &numbered[walk.numbered]
                walk.numbered += 1
            slot.producer_id = producer_id
            slot.epoch = _i16(at + 51)
            slot.first = <int32_t>_u32(at + 53)
            slot.last_delta = last_delta
            slot.last = last
            slot.time_ms = time_ms
        walk.unindexed_bytes += length
        walk.position += length
        walk.next_sequence = last + 1
        walked[0] += length
        count[0] += 1
        at += length
        left -= length


def walk_batches(
    object data, int64_t next_sequence, int64_t end_before, bint is_sparse, int64_t position,
    int64_t unindexed_bytes, int64_t max_time_ms, int64_t max_time_sequence,
):
    """See `walk.walk_batches_interpreted`."""
    cdef Py_buffer view
    cdef Walk walk
    cdef Entry *entries
    cdef Numbered *numbered
    cdef Py_ssize_t walked = 0, count = 0, index
    walk.next_sequence, walk.position, walk.unindexed_bytes = next_sequence, position, unindexed_bytes
    walk.max_time_ms, walk.max_time_sequence = max_time_ms, max_time_sequence
    walk.first_time_ms = walk.newest_ms = walk.last_at = -1
    walk.last_size = walk.last_count = 0
    walk.entries = walk.numbered = walk.same_producer = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    entries = <Entry *>malloc((view.len // INTERVAL_BYTES + 2) * sizeof(Entry))
    numbered = <Numbered *>malloc((view.len // HEADER_BYTES + 1) * sizeof(Numbered))
    try:
        if entries == NULL or numbered == NULL:
            raise MemoryError
        with nogil:
            _walk(
                <const uint8_t *>view.buf, view.len, end_before, is_sparse, &walk, entries, numbered, &walked, &count
            )
        return (
            walked, count, walk.next_sequence, walk.unindexed_bytes, walk.max_time_ms, walk.max_time_sequence,
            walk.first_time_ms, walk.newest_ms, walk.last_at, walk.last_size, walk.last_count,
            [
                (entries[index].last, entries[index].position, entries[index].max_time_ms,
                 entries[index].max_time_sequence)
                for index in range(walk.entries)
            ],
            [
                (numbered[index].producer_id, numbered[index].epoch, numbered[index].first,
                 numbered[index].last_delta, numbered[index].last, numbered[index].time_ms)
                for index in range(walk.numbered)
            ],
        )
    finally:
        free(entries)
        free(numbered)
        PyBuffer_Release(&view)
