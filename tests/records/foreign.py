"""Record builders and readers of other projects; the deprecation warnings of their imports are suppressed."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
    from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

__all__ = ["AioBatch", "AioBuilder", "KafkaPythonBuilder", "KafkaPythonRecords"]
