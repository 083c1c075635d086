"""The only package that touches the node's disk: partition logs, the catalog, the audit log, the node's secrets.

The names below are the protocols and values that the broker uses. The implementations (`local`, `memory`,
`catalog.sqlite`) are built by the node.
"""

from hubmere.store.engine import (
    AbortedTransaction,
    Catalog,
    Chunk,
    CompactionPass,
    LogConfig,
    LogEngine,
    LogId,
    LogState,
    OnDurable,
    OnOpened,
    PartitionLog,
    ProducerState,
    RetentionHold,
    Watcher,
    log_id,
)

__all__ = [
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
