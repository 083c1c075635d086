"""Source text of a generated function: the common part of generated readers and writers.

The text is made of our own declarations only; nothing that a peer sent ever reaches it.
"""

from collections.abc import Mapping
from typing import Any

from hubmere.wire.kafka.schema import WireField, wire_fields


class Source:
    """The lines of a generated function, and the objects that they refer to."""

    def __init__(self, version: int, flexible: bool, names: Mapping[str, Any]) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names = dict(names)
        self.indent = 1
        self._fresh = 0

    def emit(self, line: str) -> None:
        """Add one line at the current depth."""
        self.lines.append("    " * self.indent + line)

    def fresh(self, stem: str) -> str:
        """A local name that is not yet used."""
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def constant(self, stem: str, value: Any) -> str:
        """Bind an object to a global name of the function."""
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def fields_of(self, cls: type) -> tuple[list[WireField], list[WireField], list[WireField]]:
        """The fields of a struct in this version: in line, tagged (by tag), and those it lacks."""
        here = [spec for spec in wire_fields(cls) if spec.is_in(self.version)]
        plain = [spec for spec in here if spec.tag is None]
        tagged = sorted((spec for spec in here if spec.tag is not None), key=lambda spec: spec.tag or 0)
        lacking = [spec for spec in wire_fields(cls) if not spec.is_in(self.version)]
        return plain, tagged, lacking

    def finish(self, signature: str, name: str) -> Any:
        """Compile the text and return the function."""
        text = "\n".join([f"def {signature}:", *self.lines])
        exec(compile(text, f"<kafka {name} v{self.version}>", "exec"), self.names)  # noqa: S102 - text made of our own declarations only
        return self.names[signature.partition("(")[0]]
