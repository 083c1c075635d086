"""Profiles: the nodes that a person works with, by name, in one file of the user: `~/.config/hubmere/profiles.json`.

The file holds tokens and connection strings, hence mode 0600; it is written by rename, so a reader sees all of it or
nothing. One profile may be the default, for commands that name no node.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hubmere.cli.exit_codes import CommandFailed, Exit

_FILE = Path("hubmere") / "profiles.json"
_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One node: the values of the flags that name it."""

    data: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    connection_string: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    @property
    def place(self) -> str:
        """The address of the node, without secrets."""
        return self.url or self.data or "by connection string"


class Profiles:
    """The profiles of a user. Every change is written at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config"
        self.path = Path(base) / _FILE
        content = self._read()
        self.used: str | None = content.get("used")
        self.all = {str(name): Profile(**values) for name, values in content.get("profiles", {}).items()}

    def _read(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self.path.read_bytes())
            for values in content.get("profiles", {}).values():
                Profile(**values)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise CommandFailed(Exit.USAGE, f"{self.path} is not a valid file of profiles: {error}") from None
        return content

    def get(self, name: str) -> Profile:
        """The profile with a name; CommandFailed when there is none."""
        if name not in self.all:
            known = ", ".join(sorted(self.all)) or "none; `hubmere profile add` creates one"
            raise CommandFailed(Exit.USAGE, f"there is no profile '{name}'; there are: {known}")
        return self.all[name]

    def set(self, name: str, profile: Profile) -> None:
        """Add or replace a profile."""
        self.all[name] = profile
        self._write()

    def use(self, name: str | None) -> None:
        """Make a profile the default for commands that name no node; None selects the data folder again."""
        if name is not None:
            self.get(name)
        self.used = name
        self._write()

    def remove(self, name: str) -> None:
        """Remove a profile."""
        self.get(name)
        del self.all[name]
        if self.used == name:
            self.used = None
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"used": self.used, "profiles": {name: asdict(each) for name, each in sorted(self.all.items())}}
        fresh = self.path.with_suffix(f".{os.getpid()}.new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        fresh.replace(self.path)
