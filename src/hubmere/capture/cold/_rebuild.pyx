# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Compiled twin of `rebuild.records_to_batches`: the same bytes, without the interpreter's lock."""

from array import array

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from hubmere.pipeline.capture.files.avro_layout import Damaged

cdef enum:
    HEADER_BYTES = 61
    BATCH_BYTES = 128 * 1024
    APPEND_TIME = 8
    # Entries of the two maps of a record; a record with more is read by the interpreted loop.
    MAX_HEADERS = 256
    ENVELOPE_VERSION = 1
    KIND_DATA = 0
    # What a record may need beyond the bytes that it has in the file.
    ROOM_BYTES = 192

cdef enum:
    FINE = 0
    CUT = 1
    ORDER = 2
    UNUSUAL = 3

cdef const uint8_t *TIME = b"x-hubmere-enqueued-time"
cdef const uint8_t *RECORD = b"x-hubmere-record"
cdef const uint8_t *PARTITION_KEY = b"x-opt-partition-key"
cdef const uint8_t *KAFKA_KEY = b"x-opt-kafka-key"
cdef const uint8_t *ENVELOPE = b"x-opt-amqp"

# A null among the sizes of a packed record.
cdef int64_t NULL_SIZE = 4294967295

cdef struct Piece:
    const uint8_t *data
    int64_t size  # -1: null

cdef struct Header:
    Piece name
    Piece value
    int kind  # 2: text, 3: bytes, 4: null

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end

cdef struct Event:
    int64_t sequence
    int64_t offset
    int64_t time_ms
    Piece body
    Piece key
    Piece packed
    int has_partition_key
    int count
    Header headers[MAX_HEADERS]

cdef struct Out:
    uint8_t *base
    uint8_t *at


cdef inline int read_long(Cursor *cursor, int64_t *value) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 70:
        byte = cursor.at[0]
        cursor.at += 1
        bits |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            return FINE
        shift += 7
    return CUT


cdef inline int read_piece(Cursor *cursor, Piece *piece) noexcept nogil:
    cdef int64_t size = 0
    if read_long(cursor, &size) or size < 0 or size > cursor.end - cursor.at:
        return CUT
    piece.data = cursor.at
    piece.size = size
    cursor.at += size
    return FINE


cdef inline bint is_named(Piece *piece, const uint8_t *name, int64_t size) noexcept nogil:
    return piece.size == size and memcmp(piece.data, name, size) == 0


cdef int read_number(Cursor *cursor, int64_t *value) noexcept nogil:
    """Decimal digits up to the next other character."""
    cdef int64_t found = 0
    cdef int digits = 0
    while cursor.at < cursor.end and 48 <= cursor.at[0] <= 57 and digits < 18:
        found = found * 10 + (cursor.at[0] - 48)
        cursor.at += 1
        digits += 1
    value[0] = found
    return FINE if digits else CUT


cdef int time_of_text(Piece *text, int64_t *time_ms) noexcept nogil:
    """`M/d/yyyy h:mm:ss AM` in milliseconds since 1970."""
    cdef Cursor cursor
    cdef int64_t parts[6]
    cdef int index
    cdef int64_t year, era, day_of_era, year_of_era, day_of_year, hour, month
    cursor.at = text.data
    cursor.end = text.data + text.size
    for index in range(6):
        if read_number(&cursor, &parts[index]) or cursor.at >= cursor.end:
            return CUT
        cursor.at += 1
    if cursor.end - cursor.at != 2 or (cursor.at[0] != 65 and cursor.at[0] != 80):
        return CUT
    hour = parts[3] % 12 + (12 if cursor.at[0] == 80 else 0)
    # Days from the civil date: years begin in March, so that the leap day is the last of its year.
    month = parts[0]
    year = parts[2] - (1 if month <= 2 else 0)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + parts[1] - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    time_ms[0] = (((era * 146097 + day_of_era - 719468) * 24 + hour) * 3600 + parts[4] * 60 + parts[5]) * 1000
    return FINE


cdef int read_scalar(Cursor *cursor, int *kind, Piece *piece, int64_t *number) noexcept nogil:
    cdef int64_t branch = 0
    if read_long(cursor, &branch):
        return CUT
    kind[0] = <int>branch
    piece.data = NULL
    piece.size = -1
    if branch == 0:
        return read_long(cursor, number)
    if branch == 1:
        if cursor.end - cursor.at < 8:
            return CUT
        cursor.at += 8
        return FINE
    if branch == 2 or branch == 3:
        return read_piece(cursor, piece)
    return FINE if branch == 4 else CUT


cdef int read_system(Cursor *cursor, Event *event, bint *has_time) noexcept nogil:
    cdef int64_t count = 0, size = 0, number = 0
    cdef Piece name, value
    cdef int kind = 0
    while True:
        if read_long(cursor, &count):
            return CUT
        if count == 0:
            return FINE
        if count < 0:
            count = -count
            if read_long(cursor, &size):
                return CUT
        while count > 0:
            count -= 1
            if read_piece(cursor, &name) or read_scalar(cursor, &kind, &value, &number):
                return CUT
            if kind == 0 and is_named(&name, TIME, 23):
                has_time[0] = True
                event.time_ms = number
            elif kind == 3 and is_named(&name, RECORD, 16):
                event.packed = value
            elif kind == 2 and is_named(&name, PARTITION_KEY, 19):
                event.has_partition_key = 1
                event.key = value
            elif kind == 3 and is_named(&name, KAFKA_KEY, 15) and not event.has_partition_key:
                event.key = value


cdef int read_properties(Cursor *cursor, Event *event) noexcept nogil:
    cdef int64_t count = 0, size = 0, number = 0
    cdef Header *header
    cdef Header ignored
    while True:
        if read_long(cursor, &count):
            return CUT
        if count == 0:
            return FINE
        if count < 0:
            count = -count
            if read_long(cursor, &size):
                return CUT
        while count > 0:
            count -= 1
            if event.packed.size < 0 and event.count >= MAX_HEADERS - 1:
                return UNUSUAL
            header = &event.headers[event.count] if event.packed.size < 0 else &ignored
            if read_piece(cursor, &header.name) or read_scalar(cursor, &header.kind, &header.value, &number):
                return CUT
            if event.packed.size < 0:
                event.count += 1


cdef int read_event(Cursor *cursor, Event *event, Piece *text_before, int64_t time_before) noexcept nogil:
    cdef Piece offset, text
    cdef Cursor digits
    cdef bint has_time = False
    cdef int64_t branch = 0
    cdef int fault
    event.key.data = NULL
    event.key.size = -1
    event.packed.size = -1
    event.has_partition_key = 0
    event.count = 0
    if read_long(cursor, &event.sequence) or read_piece(cursor, &offset) or read_piece(cursor, &text):
        return CUT
    digits.at = offset.data
    digits.end = offset.data + offset.size
    if read_number(&digits, &event.offset) or digits.at != digits.end:
        return CUT
    if read_system(cursor, event, &has_time):
        return CUT
    fault = read_properties(cursor, event)
    if fault:
        return fault
    if read_long(cursor, &branch):
        return CUT
    event.body.data = NULL
    event.body.size = -1
    if branch and read_piece(cursor, &event.body):
        return CUT
    if not has_time:
        if text_before.size == text.size and memcmp(text_before.data, text.data, text.size) == 0:
            event.time_ms = time_before
        elif time_of_text(&text, &event.time_ms):
            return CUT
    text_before[0] = text
    return FINE


cdef inline int64_t zigzag_size(int64_t number) noexcept nogil:
    cdef uint64_t bits = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int64_t size = 1
    while bits > 0x7F:
        bits >>= 7
        size += 1
    return size


cdef inline void put_long(Out *out, int64_t number) noexcept nogil:
    cdef uint64_t bits = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while bits > 0x7F:
        out.at[0] = <uint8_t>(bits & 0x7F) | 0x80
        out.at += 1
        bits >>= 7
    out.at[0] = <uint8_t>bits
    out.at += 1


cdef inline void put_piece(Out *out, Piece *piece) noexcept nogil:
    put_long(out, piece.size)
    if piece.size > 0:
        memcpy(out.at, piece.data, piece.size)
        out.at += piece.size


cdef inline int64_t piece_size(Piece *piece) noexcept nogil:
    return zigzag_size(piece.size) + (piece.size if piece.size > 0 else 0)


cdef inline void put_fixed(uint8_t *at, uint64_t number, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        at[index] = <uint8_t>(number >> (8 * (size - 1 - index)))


cdef int unpack(Event *event) noexcept nogil:
    """Key and headers of a packed record: each part with its size in four bytes before it."""
    cdef const uint8_t *at = event.packed.data
    cdef const uint8_t *end = at + event.packed.size
    cdef Piece piece
    cdef int64_t size
    cdef int parts = 0
    while at < end:
        if end - at < 4:
            return CUT
        size = (<int64_t>at[0] << 24) | (<int64_t>at[1] << 16) | (<int64_t>at[2] << 8) | at[3]
        at += 4
        piece.data = at
        piece.size = -1
        if size != NULL_SIZE:
            if size > end - at:
                return CUT
            piece.size = size
            at += size
        if parts == 0:
            event.key = piece
        elif parts % 2:
            if event.count >= MAX_HEADERS:
                return UNUSUAL
            event.headers[event.count].name = piece
            event.headers[event.count].kind = 3
            if piece.size < 0:
                event.headers[event.count].name.size = 0
            event.headers[event.count].value.size = -1
            event.count += 1
        else:
            event.headers[event.count - 1].value = piece
        parts += 1
    return FINE if parts % 2 else CUT


cdef bint is_message(Event *event) noexcept nogil:
    """Whether the maps are those of an AMQP event; otherwise of a Kafka record."""
    cdef int index
    if event.packed.size >= 0:
        return False
    if event.has_partition_key:
        return True
    for index in range(event.count):
        if event.headers[index].kind != 3 and event.headers[index].kind != 4:
            return True
    return False


cdef int put_record(Out *out, Event *event, int64_t time_delta, int64_t delta) noexcept nogil:
    cdef int64_t size, value_size
    cdef int index
    cdef bint message = is_message(event)
    cdef int64_t count = event.count + (1 if message else 0)
    size = 1 + zigzag_size(time_delta) + zigzag_size(delta) + piece_size(&event.key) + piece_size(&event.body)
    size += zigzag_size(count)
    for index in range(event.count):
        size += piece_size(&event.headers[index].name)
        if message:
            if event.headers[index].kind != 2:
                return UNUSUAL
            value_size = event.headers[index].value.size
            value_size += 2 if value_size < 256 else 5
            size += zigzag_size(value_size) + value_size
        else:
            size += piece_size(&event.headers[index].value)
    if message:
        if event.count > 0x7F:
            return UNUSUAL
        size += 1 + 10 + 1 + 4
    put_long(out, size)
    out.at[0] = 0
    out.at += 1
    put_long(out, time_delta)
    put_long(out, delta)
    put_piece(out, &event.key)
    put_piece(out, &event.body)
    put_long(out, count)
    for index in range(event.count):
        put_piece(out, &event.headers[index].name)
        if message:
            put_string(out, &event.headers[index].value)
        else:
            put_piece(out, &event.headers[index].value)
    if message:
        put_long(out, 10)
        memcpy(out.at, ENVELOPE, 10)
        out.at += 10
        put_long(out, 4)
        out.at[0] = ENVELOPE_VERSION
        out.at[1] = KIND_DATA
        out.at[2] = <uint8_t>event.count
        out.at[3] = 0
        out.at += 4
    return FINE


cdef void put_string(Out *out, Piece *text) noexcept nogil:
    """A string of AMQP 1.0, 1.6.20, as the value of a header."""
    if text.size < 256:
        put_long(out, text.size + 2)
        out.at[0] = 0xA1
        out.at[1] = <uint8_t>text.size
        out.at += 2
    else:
        put_long(out, text.size + 5)
        out.at[0] = 0xB1
        put_fixed(out.at + 1, <uint64_t>text.size, 4)
        out.at += 5
    memcpy(out.at, text.data, text.size)
    out.at += text.size


cdef struct Batch:
    int64_t at
    int64_t base
    int64_t count
    int64_t time_ms
    int64_t newest_ms
    int64_t last


cdef void close_batch(Out *out, Batch *batch, bint is_append_time) noexcept nogil:
    cdef uint8_t *header = out.base + batch.at
    memset(header, 0, HEADER_BYTES)
    put_fixed(header, <uint64_t>batch.base, 8)
    put_fixed(header + 8, <uint64_t>(out.at - header - 12), 4)
    memset(header + 12, 0xFF, 4)
    header[16] = 2
    header[22] = APPEND_TIME if is_append_time else 0
    put_fixed(header + 23, <uint64_t>(batch.last - batch.base), 4)
    put_fixed(header + 27, <uint64_t>batch.time_ms, 8)
    put_fixed(header + 35, <uint64_t>batch.newest_ms, 8)
    memset(header + 43, 0xFF, 14)
    put_fixed(header + 57, <uint64_t>batch.count, 4)


cdef int rebuild(
    const uint8_t *data, int64_t size, int64_t count, bint is_append_time, Out *out, int64_t *offsets, Batch *batches,
    int64_t *batch_count, Event *event
) noexcept nogil:
    cdef Cursor cursor
    cdef Piece text
    cdef int64_t index, time_before = 0, last = -1
    cdef Batch *batch = NULL
    cdef int fault
    cursor.at = data
    cursor.end = data + size
    text.data = data
    text.size = -1
    for index in range(count):
        fault = read_event(&cursor, event, &text, time_before)
        if not fault and event.packed.size >= 0:
            event.count = 0
            fault = unpack(event)
        if fault:
            return fault
        time_before = event.time_ms
        if event.sequence <= last:
            return ORDER
        if batch != NULL and (
            out.at - out.base - batch.at >= BATCH_BYTES
            or event.sequence != last + 1
            or (is_append_time and event.time_ms != batch.time_ms)
        ):
            close_batch(out, batch, is_append_time)
            batch = NULL
        if batch == NULL:
            batch = &batches[batch_count[0]]
            batch_count[0] += 1
            batch.at = out.at - out.base
            batch.base = event.sequence
            batch.count = 0
            batch.time_ms = batch.newest_ms = event.time_ms
            out.at += HEADER_BYTES
        fault = put_record(
            out, event, 0 if is_append_time else event.time_ms - batch.time_ms, event.sequence - batch.base
        )
        if fault:
            return fault
        offsets[index] = event.offset
        batch.count += 1
        batch.last = last = event.sequence
        if event.time_ms > batch.newest_ms:
            batch.newest_ms = event.time_ms
    if batch != NULL:
        close_batch(out, batch, is_append_time)
    return FINE if cursor.at == cursor.end else CUT


def records_to_batches(bytes content, int64_t count, bint is_append_time):
    """See `rebuild.records_to_batches`; a record that is unusual is left to the interpreted loop."""
    cdef const uint8_t *data = content
    cdef int64_t size = len(content)
    cdef int64_t batch_count = 0, index
    cdef int fault
    cdef Out out
    cdef int64_t *offsets
    cdef Batch *batches
    cdef Event *event
    # The shortest record has 7 bytes: more records than this cannot be there.
    if count < 0 or count > size // 7 + 1:
        raise Damaged("a record count is not possible")
    out.base = out.at = <uint8_t *>malloc(2 * size + count * ROOM_BYTES + HEADER_BYTES)
    offsets = <int64_t *>malloc(count * sizeof(int64_t) + 8)
    batches = <Batch *>malloc(count * sizeof(Batch) + 8)
    event = <Event *>malloc(sizeof(Event))
    try:
        if out.base == NULL or offsets == NULL or batches == NULL or event == NULL:
            raise MemoryError
        with nogil:
            fault = rebuild(data, size, count, is_append_time, &out, offsets, batches, &batch_count, event)
        if fault == UNUSUAL:
            from hubmere.capture.cold.rebuild import records_to_batches as interpreted

            return interpreted(content, count, is_append_time)
        if fault == ORDER:
            raise Damaged("sequence numbers do not increase")
        if fault:
            raise Damaged("a record is cut off, or a block holds more than its records")
        numbers = array("q")
        numbers.frombytes((<uint8_t *>offsets)[: count * sizeof(int64_t)])
        return (
            bytearray(out.base[: out.at - out.base]),
            [
                (batches[index].at, batches[index].base, batches[index].last + 1, batches[index].count)
                for index in range(batch_count)
            ],
            numbers,
        )
    finally:
        free(out.base)
        free(offsets)
        free(batches)
        free(event)
