"""How results are shown: the formats of `az --output` and the filter of `az --query`, on the objects that `az` prints.

1. `flatten` turns a resource of the management API into what `az` prints: the level `properties` is gone, and
   `resourceGroup` is added from the id.
2. A JMESPath query selects from that (https://jmespath.org).
3. A format writes it: JSON with sorted keys, YAML, rows of tab-separated values, or a table. Colours need a terminal.
   A query without a result prints nothing in any format, as with `az`: scripts test whether the text is empty.

Without `--output` and HUBMERE_OUTPUT people at a terminal get a table, and scripts get JSON, the default of `az`.
"""

import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.colours import has_colours
from hubmere.cli.output.tables import Column, automatic_table, resource_table

Json = dict[str, Any]

OUTPUT_VARIABLE = "HUBMERE_OUTPUT"
_RESOURCE_GROUP = re.compile(r"/resourceGroups/([^/]+)/", re.IGNORECASE)
# Plain scalars of YAML: everything else is quoted, which JSON's quoting is valid for (YAML 1.2, 7.3.1).
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?:[ :][A-Za-z0-9_./-]+)*")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class Output(StrEnum):
    """The formats of a result."""

    TABLE = "table"
    JSON = "json"
    JSONC = "jsonc"
    YAML = "yaml"
    YAMLC = "yamlc"
    TSV = "tsv"
    NONE = "none"


def default_output() -> Output:
    """The format when none is given: HUBMERE_OUTPUT, else a table at a terminal and JSON in a script."""
    text = os.environ.get(OUTPUT_VARIABLE, "").lower()
    if not text:
        return Output.TABLE if sys.stdout.isatty() else Output.JSON
    if text not in list(Output):
        raise CommandFailed(Exit.USAGE, f"{OUTPUT_VARIABLE} is '{text}'; expected one of {', '.join(Output)}")
    return Output(text)


def render(result: object, output: Output | None, columns: Sequence[Column], query: str | None = None) -> str:
    """Format a result: a resource, a list of them, or nothing."""
    output = output or default_output()
    if result is None or output is Output.NONE:
        return ""
    if query is None and output is Output.TABLE:
        return resource_table(result, columns)
    shown = flatten(result)
    if query is not None:
        shown = apply_query(query, shown)
        if shown is None:
            return ""
    return _TEXTS[output](shown)


def flatten(result: object) -> object:
    """Convert a resource, or a list of them, to the form that `az` prints: without the level `properties`."""
    if isinstance(result, list):
        return [flatten(item) for item in result]
    if not isinstance(result, dict):
        return result
    properties = result.get("properties")
    inner = properties if isinstance(properties, dict) else {}
    outer = {name: value for name, value in result.items() if value is not properties or not inner}
    flat = {name: flatten(value) for name, value in {**inner, **outer}.items()}
    found = _RESOURCE_GROUP.search(str(result.get("id", "")))
    if found is not None:
        flat["resourceGroup"] = found.group(1)
    return flat


def check_query(query: str | None, flag: str = "--query") -> None:
    """Refuse a query that is not JMESPath, before the command changes anything."""
    if query is None:
        return
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(query)
    except (JMESPathError, ValueError) as error:
        raise _bad_query(flag, query, error) from None


def _bad_query(flag: str, query: str, error: Exception) -> CommandFailed:
    return CommandFailed(Exit.USAGE, f"{flag} {query}: {' '.join(str(error).split())}")


def apply_query(query: str, result: object, flag: str = "--query") -> object:
    """The result of a JMESPath query on a flattened result."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        # Objects that the query makes keep the order of its names, in rows too.
        return jmespath.search(query, result, jmespath.Options(dict_cls=OrderedDict))
    except (JMESPathError, ValueError) as error:
        raise _bad_query(flag, query, error) from None


# --- formats ---


def _json_text(result: object) -> str:
    return json.dumps(result, indent=2, ensure_ascii=False, sort_keys=True)


def _yaml_text(result: object) -> str:
    return "\n".join(_yaml_lines(result))


def _yaml_lines(value: object) -> Iterator[str]:
    """Block style for objects and arrays that are not empty, as PyYAML writes it."""
    if isinstance(value, Mapping) and value:
        for name in sorted(value):
            yield from _yaml_entry(f"{_yaml_scalar(name)}:", value[name])
    elif isinstance(value, list) and value:
        for item in value:
            lines = list(_yaml_lines(item))
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _yaml_scalar(value)


def _yaml_entry(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, Mapping | list) or not value:
        yield f"{name} {_yaml_scalar(value)}"
        return
    yield name
    indent = "  " if isinstance(value, Mapping) else ""
    yield from (f"{indent}{line}" for line in _yaml_lines(value))


def _yaml_scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS and ": " not in value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _tsv_text(result: object) -> str:
    """A row for each item: values by name, the length of an array inside, nothing for an object inside (as `az`)."""
    return "\n".join(map(_tsv_row, result if isinstance(result, list) else [result]))


def _tsv_row(item: object) -> str:
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, Mapping):
        ordered = item.items() if isinstance(item, OrderedDict) else sorted(item.items())
        return "\t".join(_tsv_cell(value) for _, value in ordered)
    return "\t".join(map(_tsv_cell, item)) if isinstance(item, list) else _tsv_cell(item)


def _tsv_cell(value: object) -> str:
    if isinstance(value, list):
        return str(len(value))
    return "" if isinstance(value, Mapping) else str(value)


def _highlight(text: str, lexer_name: str) -> str:
    if not has_colours():
        return text
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import get_lexer_by_name

    return str(highlight(text, get_lexer_by_name(lexer_name), TerminalFormatter())).rstrip("\n")


_TEXTS = {
    Output.JSON: _json_text,
    Output.JSONC: lambda result: _highlight(_json_text(result), "json"),
    Output.YAML: _yaml_text,
    Output.YAMLC: lambda result: _highlight(_yaml_text(result), "yaml"),
    Output.TSV: _tsv_text,
    Output.TABLE: automatic_table,
}
