"""The package by which Spark finds `format("eventhubs")`.

Spark imports every top-level package whose name begins with `pyspark_` and takes its `DefaultSource`; an error on the
way would be swallowed and the format not found, so this imports the source only when it is asked for.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(name)
    from hubmere.pipeline.source import EventHubsDataSource

    return EventHubsDataSource
