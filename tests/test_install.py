"""`tools/install.py`: the packages that a target of the Makefile installs, and its progress line."""

import importlib.util
import io
import re
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
# pip and setuptools, which Python itself installs into a virtual environment, and the package.
_ALWAYS = {"pip", "setuptools", "hubmere"}
MOST_PACKAGES = 65


@pytest.fixture(scope="module")
def install() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def needed_by(requirement: str, found: set[str]) -> None:
    """Add a package and its dependencies, from the installed metadata."""
    match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
    assert match is not None
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    if name in found:
        return
    found.add(name)
    for further in distribution(name).requires or []:
        what, _, condition = further.partition(";")
        if "extra ==" not in condition and _holds(condition):
            needed_by(what, found)


def _holds(condition: str) -> bool:
    from packaging.markers import Marker

    return not condition.strip() or Marker(condition).evaluate()


def test_the_base_needs_few_packages(install: ModuleType) -> None:
    """`make run` installs only these, so that a new user does not wait long."""
    found: set[str] = set(_ALWAYS)

    for requirement in install.requirements(install.read_project(), []):
        needed_by(requirement.partition(";")[0], found)

    assert len(found) <= MOST_PACKAGES, sorted(found)


def test_extra_may_include_another(install: ModuleType) -> None:
    """`pipelines` is `spark` and more; no package is named twice."""
    project = {
        "project": {
            "dependencies": ["rich"],
            "optional-dependencies": {"spark": ["pyspark", "rich"], "pipelines": ["hubmere[spark]", "pandas<3"]},
        }
    }

    assert install.requirements(project, []) == ["rich"]
    assert install.requirements(project, ["pipelines", "spark"]) == ["rich", "pandas<3", "pyspark"]


def test_an_unknown_extra_is_refused(install: ModuleType) -> None:
    """The error lists the extras."""
    with pytest.raises(install.InstallFailed, match=r"unknown extra 'sparks'; expected one of .*spark"):
        install.requirements(install.read_project(), ["sparks"])


def test_makefile_uses_existing_extras(install: ModuleType) -> None:
    """Otherwise the first use of the target would find a misspelt one."""
    lists = re.findall(r"^(?:FOR_\w+|EVERYTHING) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [word for line in lists for word in line.split() if not word.startswith("$")]

    assert named
    assert install.requirements(install.read_project(), named)


def test_progress_shows_what_pip_does_and_how_much_is_done(install: ModuleType) -> None:
    """On a terminal it is one line that changes."""
    out = Terminal()
    reader = install.PipReader(install.Progress(out, clock=lambda: 7.0), "packages")

    reader.read("Collecting rich (from -c constraints.txt (line 3))\n")
    reader.read("  Downloading rich-15.0.0-py3-none-any.whl (243 kB)\n")
    reader.read("Installing collected packages: rich, Jinja2, typing_extensions\n")
    reader.count(["rich", "typing_extensions"])

    lines = out.getvalue().split("\r\x1b[K")
    assert lines[1] == "[  0 s] packages: resolving versions (1 found, rich)"
    assert lines[2] == "[  0 s] packages: resolving versions (1 found, downloading rich, 243 kB)"
    assert lines[-1] == "[  0 s] packages: installing 3 packages (2 of 3 done)"


def test_log_file_gets_one_line_for_each_stage(install: ModuleType) -> None:
    """It does not get a line for each package."""
    out = io.StringIO()
    progress = install.Progress(out, clock=lambda: 7.0)

    for number in range(5):
        progress.show("packages", "resolving versions", f"({number} found)")
    progress.show("packages", "done")
    progress.finish("installed 5 packages")

    assert out.getvalue().splitlines() == [
        "[  0 s] packages: resolving versions (0 found)", "[  0 s] packages: done", "installed 5 packages in 0 s",
    ]  # fmt: skip


def test_a_python_that_is_too_old_is_reported(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the remedy, and nothing is created."""
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))

    code = install.main([])

    result = capsys.readouterr().err
    assert code == 1
    assert "needs Python 3.11 or newer" in result
    assert "make PYTHON=python3.11" in result
