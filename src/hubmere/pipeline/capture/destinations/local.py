"""Captured files in a folder of this machine or of a file system that all executors share.

Files are written in `.hubmere-staging` below the folder, made durable, and linked to their names, which fails if a name
is taken; the file and every folder above it are synchronised before a file counts as published.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from hubmere.pipeline.capture.checkpoints import anchor, synchronise
from hubmere.pipeline.capture.destinations.base import InvalidDestination, NameTaken, Stored, Token
from hubmere.pipeline.capture.files.content import span_in
from hubmere.pipeline.capture.files.names import NameFormat, Span

# Spark, Hive and most globs skip names that begin with a dot.
STAGING: Final = ".hubmere-staging"


def open_destination(url: str, _options: Mapping[str, str]) -> "LocalFolder":
    """The folder of a URL."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidDestination(url, "is not of the form file:///folder")
    return LocalFolder(Path(unquote(parts.path)))


class LocalFolder:
    """See `base.Destination`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def url_of(self, name: str) -> str:
        """The URL of a file."""
        return self._path(name).as_uri()

    def upload(self, name: str, span: Span, attempt: str) -> "LocalUpload":
        """Start to stage a file."""
        folder = self._root / STAGING / span.hub_id
        folder.mkdir(parents=True, exist_ok=True)
        return LocalUpload(folder / f"{span.partition}-{span.first}-{span.end}.{attempt}")

    def publish(self, name: str, span: Span, token: Token) -> None:
        """Link the file to its name."""
        staged, final = Path(str(token["path"])), self._path(name)
        anchor(self._root)
        _make_folders(final.parent)
        try:
            os.link(staged, final)
        except FileExistsError:
            if self.span_of(name) != span:
                raise NameTaken(self.url_of(name)) from None
        except FileNotFoundError:
            # Published by an earlier call that crashed before it returned.
            if self.span_of(name) != span:
                raise
        synchronise(final.parent)
        staged.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Whether any file has the name."""
        return self._path(name).exists()

    def span_of(self, name: str) -> Span | None:
        """The span of the published file of a name."""
        try:
            with self._path(name).open("rb") as file:
                text = span_in(name, file)
        except FileNotFoundError:
            return None
        span = None if text is None else Span.parse(text)
        if span is None:
            raise NameTaken(self.url_of(name))
        return span

    def sweep(self, hub_id: str, names: NameFormat) -> None:
        """Delete the hub's staging folder."""
        shutil.rmtree(self._root / STAGING / hub_id, ignore_errors=True)

    def files(self, prefix: str) -> Iterator[Stored]:
        """The published files whose names have the prefix."""
        top = self._root / prefix if prefix.endswith("/") else (self._root / prefix).parent
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(each for each in folders if each != STAGING)
            for each in sorted(names):
                path = Path(folder, each)
                name = path.relative_to(self._root).as_posix()
                if name.startswith(prefix):
                    yield Stored(name, path.stat().st_size)

    def open(self, name: str) -> BinaryIO:
        """Open a published file for reading."""
        return self._path(name).open("rb")

    def _path(self, name: str) -> Path:
        path = Path(os.path.normpath(self._root / name))
        if not path.is_relative_to(self._root):
            raise InvalidDestination(self._root.as_uri(), f"does not hold '{name}'")
        return path


class LocalUpload:
    """See `base.Upload`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes."""
        return self._file.write(data)

    def finish(self) -> Token:
        """Make the file durable."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"path": str(self._path)}

    def abandon(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)


def _make_folders(folder: Path) -> None:
    """Create a folder and its parents; each new entry is synced."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    synchronise(folder.parent)
