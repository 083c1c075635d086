"""How a setting is declared: a field with its kind, default and sentence, and the flag, variable and key of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

from hubmere.settings.kinds import Kind

ENV_PREFIX = "HUBMERE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    """Declaration of a setting besides its type and default; kept in the field's metadata."""

    kind: Kind[Any]
    sentence: str
    panel: str
    key: str | None


def declare(panel: str, kind: Kind[Any], default: Any, sentence: str, key: str | None = None) -> Any:
    """A field of `Settings` that is also a setting, with its panel in the help, its kind, default and sentence."""
    return field(
        default=default, metadata={"setting": _Declaration(kind=kind, sentence=sentence, panel=panel, key=key)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, with its flag, variable, key and description."""

    field_name: str
    key: str
    kind: Kind[Any]
    default: object
    sentence: str
    panel: str

    @property
    def flag(self) -> str:
        """The flag of `hubmere up`."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENV_PREFIX + self.key.upper()

    @property
    def shown_default(self) -> str:
        """The default as a user would type it; empty if there is none."""
        return self.kind.show(self.default) if self.default is not None else ""


def declared_settings(tree: Any) -> Iterator[Setting]:
    """The settings of a class whose fields are made by `declare`, in their order."""
    for row in fields(tree):
        if "setting" in row.metadata:
            declared = cast("_Declaration", row.metadata["setting"])
            yield Setting(
                field_name=row.name,
                key=declared.key or row.name,
                kind=declared.kind,
                default=row.default,
                sentence=declared.sentence,
                panel=declared.panel,
            )
