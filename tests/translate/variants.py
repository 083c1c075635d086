"""Two copies of the kernels, one interpreted and one compiled by mypyc."""

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import hubmere

SOURCES = sorted(Path(hubmere.__file__).parent.joinpath("records", "kernels").glob("*.py"))
BUILD_SECONDS = 3000


def interpreted() -> ModuleType:
    """The kernels as source code."""
    return _import(_home() / "interpreted", "kernels_interpreted")


def compiled() -> ModuleType:
    """The compiled kernels: those of the package, if they were built from this source, or else built here.

    `make test` builds the package first.
    """
    if all(_is_built(source) for source in SOURCES if source.name != "__init__.py"):
        return importlib.import_module("hubmere.records.kernels")
    return _import(_home() / "compiled", "kernels_compiled", is_compiled=True)


def _is_built(source: Path) -> bool:
    built = source.with_name(f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}")
    return built.exists() and built.stat().st_mtime >= source.stat().st_mtime


def _home() -> Path:
    digest = hashlib.sha256(sys.version.encode())
    for source in SOURCES:
        digest.update(source.name.encode() + source.read_bytes())
    home = Path(tempfile.gettempdir(), f"hubmere-kernels-{os.getuid()}-{digest.hexdigest()[:16]}")
    home.mkdir(mode=0o700, exist_ok=True)
    return home


def _import(directory: Path, package: str, *, is_compiled: bool = False) -> ModuleType:
    if not directory.exists():
        _make(directory, package, is_compiled=is_compiled)
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module(package)
    finally:
        sys.path.remove(str(directory))


def _make(directory: Path, package: str, *, is_compiled: bool) -> None:
    """Copy and compile in a temporary folder, then rename it: another test process may be doing the same."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as aside:
        target = Path(aside, "target")
        target.joinpath(package).mkdir(parents=True)
        for source in SOURCES:
            shutil.copy(source, target / package)
        if is_compiled:
            _compile(target, [f"{package}/{source.name}" for source in SOURCES if source.name != "__init__.py"])
        try:
            target.rename(directory)
        except OSError:
            assert directory.exists()


def _compile(directory: Path, modules: list[str]) -> None:
    command = [sys.executable, "-m", "mypyc", *modules]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.rmtree(directory / "build", ignore_errors=True)
