"""The only disk: partition logs and the catalog. What neighbours may use of the logs is listed here."""

from hubmere.store.engine import (
    AbortedTransaction,
    Chunk,
    LogConfig,
    LogEngine,
    LogId,
    LogState,
    PartitionLog,
    Watcher,
    log_id,
)
from hubmere.store.files import FolderInUse, Lock, acquire_lock
from hubmere.store.local import LocalEngine
from hubmere.store.memory import MemoryEngine

__all__ = [
    "AbortedTransaction",
    "Chunk",
    "LogConfig",
    "LogEngine",
    "LogId",
    "LogState",
    "PartitionLog",
    "Watcher",
    "log_id",
    "FolderInUse",
    "Lock",
    "acquire_lock",
    "LocalEngine",
    "MemoryEngine",
]
