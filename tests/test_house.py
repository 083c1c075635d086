"""Setup and CI gate: what `make` installs and when, and in which order `.ci/run` checks."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def a_tool(path: Path, script: str) -> None:
    """A fake of an installed tool, which records that it was called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def a_checkout(folder: Path) -> Path:
    """A clean checkout of the files that set-up and gate use, with tools that log their calls in `calls`."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt", "tools/install.py", ".ci/run"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for tool in ("python", "ruff", "mypy", "lint-imports", "mkdocs", "hubmere"):
        a_tool(folder / ".venv" / "bin" / tool, f'echo "{tool} $*" >> calls\ntest "$RED" != {tool}')
    # Otherwise `make browser` and `make prometheus` would install them on this machine.
    for program in ("chromium", "prometheus", "promtool"):
        a_tool(folder / "programs" / program, "exit 1")
    return folder


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def run(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}", "RED": "", **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def installs(folder: Path) -> list[str]:
    """The arguments of each call of pip."""
    return [call.partition("constraints.txt ")[2] for call in calls(folder) if " -m pip install " in call]


def test_make_run_installs_only_the_base(tmp_path: Path) -> None:
    """Spark and the test clients are ten times as large, and a node needs none of them."""
    checkout = a_checkout(tmp_path)

    result = run(checkout, "make", "run", "ARGS=--memory")

    assert result.returncode == 0, result.stderr
    assert not any(name in call for call in installs(checkout) for name in ("pyspark", "hypothesis", "ruff", "mkdocs"))
    assert "compiled kernels: compiling" in result.stderr
    assert calls(checkout)[-1] == "hubmere up --memory"


def test_second_run_installs_nothing(tmp_path: Path) -> None:
    """From the second time on `make run` only starts `hubmere up`."""
    checkout = a_checkout(tmp_path)
    run(checkout, "make", "run")
    before = len(calls(checkout))

    result = run(checkout, "make", "run", "ARGS=--memory")

    assert result.returncode == 0
    assert calls(checkout)[before:] == ["hubmere up --memory"]


def test_extra_is_installed_when_a_target_needs_it(tmp_path: Path) -> None:
    """Only the decoder for Spark is compiled for it."""
    checkout = a_checkout(tmp_path)
    run(checkout, "make", "run")
    before = len(calls(checkout))

    run(checkout, "make", "setup")

    added = calls(checkout)[before:]
    first, second = (call for call in added if " -m pip install " in call)
    assert len(added) == 5
    assert "hypothesis" in first
    assert "mkdocs" in first
    assert any("setup.py --quiet build_ext" in call for call in added)
    # They are published as source code only, and are built while the others are installed.
    for name in ("pyspark", "python-qpid-proton"):
        assert name not in first
        assert name in second
        assert any(" -m pip wheel " in call and call.endswith(f" {name}") for call in added)


def test_changed_requirements_are_installed_again(tmp_path: Path) -> None:
    """After a pull, the next `make` installs changed requirements."""
    checkout = a_checkout(tmp_path)
    run(checkout, "make", "setup")
    before = len(calls(checkout))

    (checkout / "constraints.txt").write_text("rich==1\nmypy==2.4.1\n", encoding="utf-8")
    run(checkout, "make", "setup")

    assert any("pyspark" in call for call in calls(checkout)[before:])


def test_failed_install_is_tried_again(tmp_path: Path) -> None:
    """An interrupted installation must not count as complete."""
    checkout = a_checkout(tmp_path)

    failed = run(checkout, "make", "setup", RED="python")
    again = run(checkout, "make", "setup")

    assert (failed.returncode, again.returncode) == (2, 0)
    assert "failed: " in failed.stderr
    assert sum(call.endswith(" pyspark") for call in calls(checkout)) == 2


# The commands of the gate after everything is installed.
_GATE = [
    "ruff format --check",
    "ruff check .",
    "mypy",
    "lint-imports",
    "python -m pytest",
    "python tests/conformance/clients.py js",
    "python tests/conformance/clients.py axe",
    "python tests/conformance/clients.py java",
    "python tests/conformance/clients.py kafka",
    "python tests/conformance/clients.py keycloak",
    "python tests/conformance/clients.py go",
    "python tests/conformance/clients.py rust",
    "python tests/conformance/clients.py period",
    "python -m pytest",
    "mkdocs build --strict",
]


def gate_calls(folder: Path) -> list[str]:
    """The calls of the gate without those of the set-up."""
    shown = [" ".join(call.split()[:3]) for call in calls(folder)]
    return [call for call in shown if not call.startswith(("python -m pip", "python setup.py"))]


def test_gate_runs_the_cheapest_step_first(tmp_path: Path) -> None:
    """The order is the one that the contributors' guide promises; no test runs twice."""
    checkout = a_checkout(tmp_path)

    gate = run(checkout, ".ci/run")

    assert gate.returncode == 0, gate.stderr
    assert gate_calls(checkout) == _GATE
    first, second = (call for call in calls(checkout) if "-m pytest" in call)
    assert "-m not full" in first
    assert "-m full" in second


@pytest.mark.parametrize(("red", "reached"), [("ruff", 1), ("mypy", 3), ("lint-imports", 4), ("mkdocs", 15)])
def test_gate_stops_at_the_first_failed_step(tmp_path: Path, red: str, reached: int) -> None:
    """Tests of code that does not type-check are not run."""
    checkout = a_checkout(tmp_path)

    gate = run(checkout, ".ci/run", RED=red)

    assert gate.returncode != 0
    assert gate_calls(checkout) == _GATE[:reached]
    assert "green" not in gate.stdout


def test_every_target_of_make_is_in_the_contributors_guide() -> None:
    """`make` lists the targets; the guide says when to use them."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    targets = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)

    assert {"setup", "run", "test", "lint", "bench", "docs", "torture", "clean"} <= set(targets)
    assert [target for target in targets if f"make {target}" not in guide and target != "help"] == []
