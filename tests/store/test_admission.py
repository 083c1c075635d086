"""The log accepts exactly the batches that meet the rules for headers and records."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.model.errors import CorruptBatch, InvalidBatch
from hubmere.records.header import HEADER_BYTES, UNSEALED, read_header, write_header
from hubmere.records.validate import HeaderFault, find_broken_rule, is_readable
from hubmere.store.engine import LogConfig
from hubmere.store.memory import MemoryFiles
from records.builders import HEADER_CHANGES, a_changed_batch
from store.builders import LOG_0, Owner, an_engine, open_log


@settings(max_examples=600, deadline=None)
@given(changes=HEADER_CHANGES, crc=st.sampled_from([None, None, UNSEALED, 12_345]))
def test_log_accepts_what_the_rules_accept(changes: dict[str, int], crc: int | None) -> None:
    """The inline check of an ordinary batch gives the same result as the rules."""
    batch = a_changed_batch(changes)
    if crc is not None:
        write_header(batch, read_header(batch)._replace(crc=crc))
    broken, header = find_broken_rule(batch, may_be_unsealed=True), read_header(batch)
    log = open_log(an_engine(Path("/memory"), Owner(), MemoryFiles()), LOG_0, LogConfig())

    refusal: Exception | None = None
    try:
        log.append(bytearray(batch), 1_000)
    except (CorruptBatch, InvalidBatch) as raised:
        refusal = raised

    if broken is not None:
        assert type(refusal) is (CorruptBatch if broken.fault is HeaderFault.CHECKSUM else InvalidBatch)
        assert broken.reason in str(refusal)
    else:
        is_trusted = header.crc == UNSEALED
        is_accepted = is_trusted or is_readable(batch, HEADER_BYTES, len(batch), header.codec, header.record_count)
        assert (refusal is None) is is_accepted
