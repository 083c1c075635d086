"""`--set`, `--add` and `--remove` of `az`: changes of a resource by the names in its JSON.

| option | example | effect |
|---|---|---|
| `--set` | `properties.status=Disabled`, `tags.team=blue` | sets a value: JSON, or else a text |
| `--add` | `rights Listen`, `ipRules ipMask=10.0.0.0/8 action=Allow` | appends values or an object to a list |
| `--remove` | `tags.team`, `rights 0` | removes a property, or one element of a list |

A path names objects by `.`, and elements of lists by `[0]` or `[name=value]`. `properties.` may be left out, as in what
`az` prints. The edits are applied in the order of the command line to what the node has; what differs then is sent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hubmere.cli.arm.client import Json
from hubmere.cli.exit_codes import CommandFailed, Exit

SET, ADD, REMOVE, FORCE_STRING = "--set", "--add", "--remove", "--force-string"
_INNER = "properties"
# Objects that a request replaces as a whole.
_WHOLE = ("tags",)
_ELEMENT = re.compile(r"\[(?P<index>-?\d+)\]|\[(?P<name>[^=\]]+)=(?P<value>[^\]]*)\]")
# The first sign outside of brackets separates.
_ASSIGNMENT = re.compile(r"(?P<path>(?:\[[^\]]*\]|[^=\[])+)=(?P<value>.*)", re.DOTALL)
# Words of Python that `az` accepts for those of JSON.
_WORDS: Mapping[str, object] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Edits:
    """Options with their values, in the order of the command line."""

    options: Sequence[tuple[str, Sequence[str]]]
    is_text: bool
    # Names that a resource may have although the node does not return them now.
    known: frozenset[str]

    def changes(self, present: Json) -> Json:
        """The part of a resource that the edits change, to be merged into it; None for a value that is removed."""
        edited = deepcopy(present)
        for flag, values in self.options:
            if not values:
                raise _wrong(flag, "it needs a value")
            if flag == SET:
                for value in values:
                    self._set(edited, value)
            elif flag == ADD:
                self._add(edited, values[0], values[1:])
            else:
                self._remove(edited, values)
        return _difference(present, edited)

    def _set(self, resource: Json, text: str) -> None:
        match = _ASSIGNMENT.fullmatch(text)
        if match is None:
            raise _wrong(SET, f"'{text}' is not of the form path=value")
        path, value = match["path"], match["value"]
        holder, last = self._holder(resource, path, SET)
        is_tag = any(holder is resource.get(name) for name in _WHOLE)
        if isinstance(last, str) and last not in holder and last not in self.known and not is_tag:
            raise _missing(SET, last, path, holder)
        # Values of tags are texts: `tags.build=5` must not become a number.
        holder[last] = value if is_tag else self._read(value)

    def _add(self, resource: Json, path: str, values: Sequence[str]) -> None:
        there = self._find(resource, path, _parts(path), ADD)
        if not isinstance(there, list):
            raise _wrong(ADD, f"'{path}' is not a list")
        entry: Json = {}
        for value in values:
            name, sign, text = value.partition("=")
            if sign and not value.startswith(("{", "[", '"')):
                entry[name] = text
            else:
                there += [entry, self._read(value)] if entry else [self._read(value)]
                entry = {}
        there += [entry] if entry else []

    def _remove(self, resource: Json, values: Sequence[str]) -> None:
        path, *index = values
        if len(index) > 1:
            raise _wrong(REMOVE, "expected a path, and the index of the element if the path names a list")
        holder: Any
        last: str | int
        if index:
            holder, last = self._find(resource, path, _parts(path), REMOVE), _index(index[0])
        else:
            holder, last = self._holder(resource, path, REMOVE)
        try:
            if isinstance(last, str) and isinstance(holder[last], list):
                holder[last] = []
            else:
                del holder[last]
        except (LookupError, TypeError):
            raise _wrong(REMOVE, f"there is no '{' '.join(values)}'; {_names(holder)}") from None

    def _find(self, resource: Json, path: str, parts: Sequence[str], flag: str) -> Any:
        """What the first parts of a path lead to."""
        found: Any = resource
        for part in parts:
            holder, key = _step(found, part, path, flag)
            if (key in self.known or key in _WHOLE) and holder.get(key) is None:
                holder[key] = {}
            try:
                found = holder[key]
            except (LookupError, TypeError):
                raise _missing(flag, part, path, holder) from None
        return found

    def _holder(self, resource: Json, path: str, flag: str) -> tuple[Any, str | int]:
        """The object or list that holds the last name of a path, and this name or index."""
        parts = _parts(path)
        if not parts:
            raise _wrong(flag, f"'{path}' names no property")
        *above, last = parts
        return _step(self._find(resource, path, above, flag), last, path, flag)

    def _read(self, text: str) -> object:
        """A value as JSON, or as the text itself."""
        if self.is_text:
            return text
        try:
            return _WORDS[text] if text in _WORDS else json.loads(text)
        except ValueError:
            return text


def take_edits(args: Sequence[str], known: frozenset[str]) -> tuple[list[str], Edits]:
    """The arguments without these options, and the edits."""
    others: list[str] = []
    options: list[tuple[str, list[str]]] = []
    is_text = False
    target = others
    for arg in args:
        flag, sign, value = arg.partition("=")
        if flag in (SET, ADD, REMOVE):
            target = [value] if sign else []
            options.append((flag, target))
        elif arg == FORCE_STRING:
            is_text, target = True, others
        else:
            if arg.startswith("-") and not arg[1:].isdigit():
                target = others
            target.append(arg)
    return others, Edits(options, is_text, known)


# --- paths ---


def _parts(path: str) -> list[str]:
    """`a.b[0].c` as `a`, `b`, `[0]`, `c`; a dot inside of brackets does not separate."""
    return re.findall(r"\[[^\]]*\]|[^.\[\]]+", path)


def _step(found: Any, part: str, path: str, flag: str) -> tuple[Any, str | int]:
    """Where a part of a path is: an object and a name, or a list and an index."""
    element = _ELEMENT.fullmatch(part)
    if element is None:
        if not isinstance(found, dict):
            raise _wrong(flag, f"'{part}' of '{path}' is not in an object")
        inner = found.get(_INNER)
        is_inner = part not in found and isinstance(inner, dict) and part not in _WHOLE
        return (inner if is_inner else found), part
    if not isinstance(found, list):
        raise _wrong(flag, f"'{part}' of '{path}' is not in a list")
    if element["index"] is not None:
        index = int(element["index"])
        if not -len(found) <= index < len(found):
            raise _wrong(flag, f"there is no '{part}' of '{path}'; the list has {len(found)} elements")
        return found, index
    same = [
        at
        for at, each in enumerate(found)
        if isinstance(each, dict) and str(each.get(element["name"])) == element["value"]
    ]
    if len(same) != 1:
        raise _wrong(flag, f"'{part}' of '{path}' selects {len(same)} elements of the list; expected one")
    return found, same[0]


def _index(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _wrong(REMOVE, f"'{text}' is not the index of an element") from None


def _missing(flag: str, part: str, path: str, holder: object) -> CommandFailed:
    place = "" if part == path else f" of '{path}'"
    return _wrong(flag, f"there is no '{part}'{place}; {_names(holder)}")


def _names(holder: object) -> str:
    if isinstance(holder, dict):
        return f"there are {', '.join(holder)}" if holder else "it is empty"
    return f"the list has {len(holder)} elements" if isinstance(holder, list) else "it is neither an object nor a list"


def _wrong(flag: str, why: str) -> CommandFailed:
    return CommandFailed(Exit.USAGE, f"{flag}: {why}")


def _difference(present: Json, edited: Json) -> Json:
    """What has changed: objects by their parts, except those that a request replaces as a whole."""
    changed: Json = {}
    for name in {**present, **edited}:
        before, value = present.get(name), edited.get(name)
        if before == value and type(before) is type(value):
            continue
        if name in _WHOLE:
            changed[name] = value or {}
        elif isinstance(value, dict) and isinstance(before, dict):
            changed[name] = _difference(before, value)
        else:
            changed[name] = value
    return changed
