"""Segments are read by a foreign implementation: their format is the one that Kafka's tools expect."""

from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

import hubmere.store
from hubmere.store.engine import LogConfig
from hubmere.store.log.segments.segment import LOG, stem
from store.builders import LOG_0, Owner, an_engine, open_log


def a_foreign_batch(*values: bytes, compression: int = 0) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, value in enumerate(values):
        builder.append(index, timestamp=500, key=b"k", value=value, headers=[("h", b"v")])
    return bytearray(builder.build())


def test_aiokafka_reads_our_segment_file(tmp_path: Path) -> None:
    """Batches of a foreign producer are stamped by the log, and read from its file by the same foreign code."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    log = open_log(engine, LOG_0, LogConfig())
    for compression in (0, 1):
        log.append(a_foreign_batch(b"one", b"two", b"three", compression=compression), 9_000)
    log.append_marker(7, 0, 9_500, commit=True)
    owner.run()
    engine.close()

    found = []
    stored = MemoryRecords((tmp_path / "log" / LOG_0 / (stem(0) + LOG)).read_bytes())
    while (batch := stored.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.value) for record in batch if not batch.is_control_batch]

    assert found == list(zip(range(6), [9_000] * 6, [b"one", b"two", b"three"] * 2, strict=True))


def test_marker_is_a_control_batch_for_aiokafka(tmp_path: Path) -> None:
    """Consumers must skip it and continue."""
    owner = Owner()
    engine = an_engine(tmp_path, owner)
    open_log(engine, LOG_0, LogConfig()).append_marker(7, 3, 9_500, commit=False)
    owner.run()
    engine.close()

    batch = MemoryRecords((tmp_path / "log" / LOG_0 / (stem(0) + LOG)).read_bytes()).next_batch()

    assert batch is not None
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id, batch.producer_epoch) == (
        True,
        True,
        7,
        3,
    )
    assert [(record.key, record.offset) for record in batch] == [(b"\0\0\0\0", 0)]


def test_exported_names_of_the_package_are_the_documented_list() -> None:
    """Other packages may rely on the list: a new name is added here on purpose."""
    assert sorted(hubmere.store.__all__) == [
        "AbortedTransaction",
        "Catalog",
        "Chunk",
        "CompactionPass",
        "LogConfig",
        "LogEngine",
        "LogId",
        "LogState",
        "OnDurable",
        "OnOpened",
        "PartitionLog",
        "ProducerState",
        "RetentionHold",
        "Watcher",
        "log_id",
    ]
    assert all(hasattr(hubmere.store, name) for name in hubmere.store.__all__)
