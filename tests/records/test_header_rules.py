"""The rules for the header of a batch that is offered to the log, and the inner loop that checks them inline."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.records.compression import Codec
from hubmere.records.header import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    UNSEALED,
    BatchHeader,
    read_header,
    write_header,
)
from hubmere.records.runs import check_run
from hubmere.records.validate import HEADER_RULES, HeaderFault, find_broken_rule
from records.builders import HEADER_CHANGES, a_changed_batch

_ANY_TIME_MS = 1 << 62
_IDEMPOTENT = {"producer_id": 9, "producer_epoch": 0, "producer_sequence": 0}


# Header fields for each fault, and a part of its reason.
_BROKEN: list[tuple[HeaderFault, dict[str, int], str]] = [
    (HeaderFault.MAGIC, {"magic": 1}, "magic is 1, not 2"),
    (HeaderFault.CUT_OFF, {"length": 1 << 20}, "length is 1048576"),
    (HeaderFault.CUT_OFF, {"length": -5}, "length is -5"),
    (HeaderFault.SECOND_BATCH, {"length": 60}, "length is 60"),
    (HeaderFault.CODEC, {"attributes": 5}, "compression 5"),
    (HeaderFault.CONTROL, {"attributes": CONTROL}, "only the service"),
    (HeaderFault.COUNT, {"record_count": 0, "last_delta": -1}, "record count is 0"),
    (HeaderFault.LAST_DELTA, {"last_delta": 7}, "last offset delta is 7"),
    (HeaderFault.NO_PRODUCER, {"attributes": TRANSACTIONAL}, "without a producer id"),
    (HeaderFault.NO_SEQUENCE, {**_IDEMPOTENT, "producer_sequence": -1}, "without a sequence number"),
    (HeaderFault.NO_EPOCH, {**_IDEMPOTENT, "producer_epoch": -1}, "without an epoch"),
]


@pytest.mark.parametrize(("fault", "fields", "reason"), _BROKEN)
def test_broken_rule_is_named(fault: HeaderFault, fields: dict[str, int], reason: str) -> None:
    """Each case breaks one rule; the reason names the field."""
    broken = find_broken_rule(a_changed_batch(fields))

    assert broken is not None
    assert broken.fault is fault
    assert reason in broken.reason


def test_every_fault_has_one_rule_in_order() -> None:
    """TOO_SHORT has no rule: without a header no rule can be checked."""
    assert [HeaderFault.TOO_SHORT, *(rule.fault for rule in HEADER_RULES)] == list(HeaderFault)


def test_less_than_a_header_is_too_short() -> None:
    """It is the first check, because every other one reads the header."""
    broken = find_broken_rule(bytes(HEADER_BYTES - 1))

    assert broken is not None
    assert broken.fault is HeaderFault.TOO_SHORT


def test_wrong_checksum_is_detected() -> None:
    """A batch without a checksum is accepted only if the node itself made it."""
    batch = a_changed_batch({})
    header = read_header(batch)
    write_header(batch, header._replace(crc=header.crc ^ 1))
    unsealed = a_changed_batch({})
    write_header(unsealed, read_header(unsealed)._replace(crc=UNSEALED))

    faults = [find_broken_rule(batch, may_be_unsealed=True), find_broken_rule(unsealed)]

    assert [broken and broken.fault for broken in faults] == [HeaderFault.CHECKSUM, HeaderFault.CHECKSUM]
    assert find_broken_rule(unsealed, may_be_unsealed=True) is None


@settings(max_examples=1_000, deadline=None)
@given(changes=HEADER_CHANGES, is_sealed=st.booleans())
def test_run_accepts_what_the_rules_accept(changes: dict[str, int], is_sealed: bool) -> None:
    """A run accepts a batch if it meets every rule, belongs to no transaction, and has readable records."""
    batch = a_changed_batch(changes)
    if not is_sealed:
        write_header(batch, read_header(batch)._replace(crc=12_345))
    header = read_header(batch)

    run = check_run(bytearray(batch), [len(batch)], _ANY_TIME_MS)

    is_accepted = find_broken_rule(batch) is None and not header.is_transactional and has_three_records(header)
    assert (run is not None) is is_accepted


def has_three_records(header: BatchHeader) -> bool:
    """Whether the header matches the records, which are three and not compressed."""
    return header.record_count == 3 and not header.attributes & CODEC_MASK and header.attributes <= CODEC_MASK | 0x18


@pytest.mark.parametrize("fields", [{}, _IDEMPOTENT, {"attributes": APPEND_TIME}])
@pytest.mark.parametrize("codec", Codec)
def test_ordinary_batches_keep_every_rule(fields: dict[str, int], codec: Codec) -> None:
    """This holds for every codec, with and without an idempotent producer; the log overwrites the timestamp type."""
    attributes = fields.get("attributes", 0) | codec
    batch = a_changed_batch({**fields, "attributes": attributes}, codec)

    assert find_broken_rule(batch) is None
    assert check_run(bytearray(batch), [len(batch)], _ANY_TIME_MS) is not None
