"""The package by which Spark finds `format("eventhubs")`.

Spark imports every top-level package whose name begins with `pyspark_` and takes its `DefaultSource`. It ignores
errors of this import and would then not find the format, so the source is imported only on use.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from hubmere.pipeline.bad_events import DeadLetters, parse_json
    from hubmere.pipeline.progress import events_behind

__all__ = ["DeadLetters", "DefaultSource", "events_behind", "parse_json", "use_this_python"]


def use_this_python(script: str | None = None) -> None:
    """Make Spark start its Python processes with the current Python; call it before the session is created.

    Spark looks for data sources, reads and writes in processes of their own, which it starts with the `python3` of the
    path. If that is another installation, `eventhubs` is not found (DATA_SOURCE_NOT_FOUND).
    `PYSPARK_PYTHON`, if it is set, and the setting `spark.pyspark.python` come first.

    `script` is a file to write and to start them with: they then connect to Spark before they import anything, since
    Spark gives the process of a stream's source 10 seconds, which a busy machine may need for the imports alone. For
    sessions whose processes all run on this machine, with `spark.python.unix.domain.socket.enabled`. Spark divides the
    path at spaces when it looks for data sources: if the path has one, the script is in a temporary folder instead.
    """
    python = sys.executable
    if script is not None or " " in python:
        from pathlib import Path

        from hubmere.pipeline.early_worker import write_script

        path = Path(script or python).absolute()
        python = str(write_script(_temporary_folder() / "python" if " " in str(path) else path))
    os.environ.setdefault("PYSPARK_PYTHON", python)


def _temporary_folder() -> "Path":
    """A new folder, which this process deletes when it ends."""
    import atexit
    import shutil
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp(prefix="hubmere-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def __getattr__(name: str) -> Any:
    if name in ("DeadLetters", "parse_json"):
        from hubmere.pipeline import bad_events

        return getattr(bad_events, name)
    if name == "events_behind":
        from hubmere.pipeline.progress import events_behind

        return events_behind
    if name != "DefaultSource":
        raise AttributeError(name)
    try:
        from hubmere.pipeline.source import EventHubsDataSource
    except ModuleNotFoundError as missing:
        return _source_without(missing)
    return EventHubsDataSource


def _source_without(missing: ModuleNotFoundError) -> Any:
    """A source that says which package is missing. Spark would ignore an error at this place, but it shows this one."""
    from hubmere.model.extras import missing_for_spark

    text = missing_for_spark(str(missing.name))
    try:
        from pyspark.sql.datasource import DataSource
    except ImportError:
        raise ImportError(text) from None

    class EventHubsWithoutPackages(DataSource):
        """Refuses every read and write."""

        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(text)

        @classmethod
        def name(cls) -> str:
            return "eventhubs"

    return EventHubsWithoutPackages
