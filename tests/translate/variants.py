"""The kernels twice, side by side: interpreted from source, and compiled by mypyc into a directory of their own."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import hubmere

SOURCE = Path(hubmere.__file__).with_name("kernels.py")
BUILD_SECONDS = 300


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpreted() -> ModuleType:
    """The kernels as source."""
    return _load(SOURCE)


def compiled() -> ModuleType:
    """The kernels as an extension, built once for each state of the source."""
    digest = hashlib.sha256(SOURCE.read_bytes() + sys.version.encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir(), f"hubmere-kernels-{os.getuid()}-{digest}")
    extension = home / f"kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not extension.exists():
        home.mkdir(mode=0o700, exist_ok=True)
        _build(extension)
    return _load(extension)


def _build(extension: Path) -> None:
    """Compile aside and move into place: another test process may be doing the same."""
    with tempfile.TemporaryDirectory(dir=extension.parent) as directory:
        shutil.copy(SOURCE, directory)
        command = [sys.executable, "-m", "mypyc", SOURCE.name]
        built = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
        )
        assert built.returncode == 0, built.stdout + built.stderr
        Path(directory, extension.name).replace(extension)
