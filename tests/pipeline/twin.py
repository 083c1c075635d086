"""The compiled twins of the decoder and of the Avro encoder, built aside once for each state of their source."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

from hubmere.pipeline import decode
from hubmere.pipeline.decode import Columns

SOURCE = Path(decode.__file__).with_name("_decode.pyx")
BUILD_SECONDS = 300
_BUILD = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(ext_modules=cythonize([Extension("_decode", ["_decode.pyx"])], quiet=True))
"""


def compiled_columns() -> Callable[[str, Collection[str]], Columns]:
    """`Columns` of the compiled decoder."""
    return cast("Callable[[str, Collection[str]], Columns]", compiled_twins().Columns)


@cache
def compiled_twins() -> ModuleType:
    """The compiled module."""
    digest = hashlib.sha256(SOURCE.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir(), f"hubmere-decode-{os.getuid()}-{digest}")
    extension = home / f"_decode{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not extension.exists():
        home.mkdir(mode=0o700, exist_ok=True)
        _build(extension)
    spec = importlib.util.spec_from_file_location("_decode", extension)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(extension: Path) -> None:
    """Compile aside and move into place: another test process may be doing the same."""
    with tempfile.TemporaryDirectory(dir=extension.parent) as directory:
        shutil.copy(SOURCE, directory)
        built = subprocess.run(
            [sys.executable, "-c", _BUILD, "build_ext", "--inplace"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        assert built.returncode == 0, built.stdout + built.stderr
        Path(directory, extension.name).replace(extension)
