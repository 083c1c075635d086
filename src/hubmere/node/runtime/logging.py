"""Log lines on standard error: text for people, JSON for log collectors; neither contains secrets."""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

log = logging.getLogger("hubmere.node")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# Fields from `extra=` that are part of a JSON line.
_CONTEXT = ("tracking_id", "namespace", "hub", "peer")


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: getattr(record, name) for name in _CONTEXT if hasattr(record, name)})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(log_format: str, level: str) -> None:
    """Send the log to standard error in the given format."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    if log_format == "json":
        _log_what_python_prints()


def is_logging_json() -> bool:
    """Whether this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _log_what_python_prints() -> None:
    """Log warnings, and errors that nobody catches: Python prints them as text, which a collector of JSON rejects."""
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    sys.unraisablehook = lambda found: log.error(
        "%s: %r", found.err_msg or "an error was ignored", found.object, exc_info=found.exc_value
    )
    threading.excepthook = lambda found: log.error(
        "the thread %s ended with an error", found.thread and found.thread.name, exc_info=found.exc_value
    )


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.error("the process ends with an error", exc_info=(kind, error, trace))
