"""How results are shown: JSON as the node gave it, or plain columns for people, the same in a pipe."""

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
# A heading and where its value is: names joined by dots.
Column = tuple[str, str]

# What says nothing to a person who has just named the resource.
_NOT_SHOWN = frozenset({"id", "type", "systemData"})
_GAP = "  "


class Output(StrEnum):
    """How a result is shown."""

    TABLE = "table"
    JSON = "json"


def rendered(result: object, output: Output, columns: Sequence[Column]) -> str:
    """The text for a result: a resource, a list of them, or nothing."""
    if result is None:
        return ""
    if output is Output.JSON:
        return json.dumps(result, indent=2, ensure_ascii=False)
    if isinstance(result, list):
        return _grid([heading for heading, _ in columns], [[_at(row, path) for _, path in columns] for row in result])
    assert isinstance(result, dict)
    return _pairs(result)


def _grid(headings: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _pairs(resource: Json) -> str:
    rows = [(name, text) for name, value in _flat(resource) if (text := _text(value))]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}{_GAP}{text}" for name, text in rows)


def _flat(resource: Json, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Values by their path; the level `properties`, which every resource has, is left out of it."""
    for name, value in resource.items():
        if not prefix and name in _NOT_SHOWN:
            continue
        if isinstance(value, dict):
            yield from _flat(value, prefix if name == "properties" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _at(resource: Json, path: str) -> str:
    value: object = resource
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return _text(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(_inner(item) for item in value)
    return str(value)


def _inner(item: object) -> str:
    return _joined(item.values()) if isinstance(item, dict) else _text(item)


def _joined(values: Iterable[object]) -> str:
    return "=".join(_inner(value) for value in values)
