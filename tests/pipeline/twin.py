"""The compiled versions of the decoder, the Avro encoder and the sink's encoder: the installed ones, or built here."""

import hashlib
import importlib
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
from hubmere.pipeline.encode import Encoder

FOLDER = Path(decode.__file__).parent
BUILD_SECONDS = 3000
_BUILD = """
from Cython.Build import cythonize
from setuptools import Extension, setup
setup(ext_modules=cythonize([Extension("{name}", ["{name}.pyx"])], quiet=True))
"""


def compiled_columns() -> Callable[[str, Collection[str], int], Columns]:
    """`Columns` of the compiled decoder."""
    return cast("Callable[[str, Collection[str], int], Columns]", compiled_twins().Columns)


def compiled_encoder() -> Encoder:
    """The compiled encoder of the sink."""
    return cast("Encoder", _compiled("_encode"))


def compiled_twins() -> ModuleType:
    """The compiled decoder and Avro encoder."""
    return _compiled("_decode")


@cache
def _compiled(name: str) -> ModuleType:
    """A compiled module: that of the package, if it was built from this source."""
    source = FOLDER / f"{name}.pyx"
    installed = source.with_name(f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    if installed.exists() and installed.stat().st_mtime >= source.stat().st_mtime:
        return importlib.import_module(f"hubmere.pipeline.{name}")
    digest = hashlib.sha256(source.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir(), f"hubmere{name}-{os.getuid()}-{digest}")
    extension = home / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not extension.exists():
        home.mkdir(mode=0o700, exist_ok=True)
        _build(source, extension)
    spec = importlib.util.spec_from_file_location(name, extension)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(source: Path, extension: Path) -> None:
    """Compile in a temporary folder and rename it: another test process may be doing the same."""
    with tempfile.TemporaryDirectory(dir=extension.parent) as directory:
        shutil.copy(source, directory)
        built = subprocess.run(
            [sys.executable, "-c", _BUILD.format(name=source.stem), "build_ext", "--inplace"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        assert built.returncode == 0, built.stdout + built.stderr
        Path(directory, extension.name).replace(extension)
