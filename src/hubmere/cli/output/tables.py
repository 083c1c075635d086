"""Tables for people: chosen columns of resources, the values of one resource, or columns made from any result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hubmere.cli.output.colours import has_colours, paint

Json = dict[str, Any]
# A heading and the path of its value: names joined by dots.
Column = tuple[str, str]

# Keys that are left out: they are useless to a person who has just named the resource.
_NOT_SHOWN = frozenset({"id", "type", "systemData"})
_GAP = "  "


def resource_table(result: object, columns: Sequence[Column]) -> str:
    """A list of resources in columns, or one resource as names and values."""
    if isinstance(result, list):
        return _grid([heading for heading, _ in columns], [[_at(row, path) for _, path in columns] for row in result])
    assert isinstance(result, dict)
    return _pairs(result)


def automatic_table(result: object) -> str:
    """The result of a query in columns, as `az` makes them: names of simple values, or Column1, Column2, ..."""
    rows = [_simple_values(item) for item in (result if isinstance(result, list) else [result])]
    headings = list(dict.fromkeys(name for row in rows for name in row))
    if not headings:
        return ""
    return _grid(headings, [[row.get(heading, "") for heading in headings] for row in rows])


def _simple_values(item: object) -> dict[str, str]:
    if isinstance(item, Mapping):
        simple = {name: value for name, value in item.items() if value is not None}
        return {
            name[:1].upper() + name[1:]: _text(value)
            for name, value in simple.items()
            if not isinstance(value, Mapping | list) and name not in _NOT_SHOWN
        }
    if isinstance(item, list):
        return {f"Column{number}": _text(value) for number, value in enumerate(item, 1)}
    return {"Result": _text(item)}


def _grid(headings: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    heading, rule, *body = (
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
    is_on = has_colours()
    return "\n".join([paint(heading, "bold", is_on=is_on), paint(rule, "dim", is_on=is_on), *body])


def _pairs(resource: Json) -> str:
    rows = [(name, text) for name, value in _flat(resource) if (text := _text(value))]
    width = max((len(name) for name, _ in rows), default=0)
    is_on = has_colours()
    return "\n".join(f"{paint(name.ljust(width), 'dim', is_on=is_on)}{_GAP}{text}" for name, text in rows)


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
    return _pair_text(item.values()) if isinstance(item, dict) else _text(item)


def _pair_text(values: Iterable[object]) -> str:
    return "=".join(_inner(value) for value in values)
