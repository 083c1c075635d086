"""C code of a benchmark client: compiled at the start of a `with` block and called through `ctypes`. The client must
never be the limit, so its inner loops are C. Without a compiler the benchmark reports that it cannot measure.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class BenchFailed(Exception):
    """A measurement failed; the text is the reason."""


class Library:
    """One source file as a shared library."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._code: ctypes.CDLL | None = None

    def __enter__(self) -> Self:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise BenchFailed("no C compiler: a client in Python would be slower than the broker")
        library = Path(self._folder.name, self._source.with_suffix(".so").name)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(self._source)]
        subprocess.run(command, check=True, capture_output=True)
        self._code = ctypes.CDLL(str(library))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def code(self) -> ctypes.CDLL:
        """The functions."""
        assert self._code is not None
        return self._code
