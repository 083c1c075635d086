"""Set-up and gate: what `make` installs and when, and in which order `.ci/run` checks."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def a_tool(path: Path, script: str) -> None:
    """A fake of an installed tool: the tests check which tool is called when."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def a_checkout(folder: Path) -> Path:
    """A clean checkout of the files that set-up and gate use, with tools that log their calls in `calls`."""
    for name in ("Makefile", "pyproject.toml", ".ci/run"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / "tests" / "model").mkdir(parents=True)
    (folder / "tests" / "test_house.py").touch()
    (folder / "tests" / "model" / "test_names.py").touch()
    for tool in ("python", "ruff", "mypy", "lint-imports", "mkdocs", "hubmere"):
        a_tool(folder / ".venv" / "bin" / tool, f'echo "{tool} $*" >> calls\ntest "$RED" != {tool}')
    return folder


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def run(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "RED": "", **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_second_run_does_no_install_work(tmp_path: Path) -> None:
    """From the second time on `make run` is `hubmere up` and nothing else."""
    checkout = a_checkout(tmp_path)

    results = [run(checkout, "make", "run", "ARGS=--memory").returncode for _ in range(2)]

    assert results == [0, 0]
    assert [call.split()[0] for call in calls(checkout)] == ["python", "hubmere", "hubmere"]
    assert calls(checkout)[-1] == "hubmere up --memory"


def test_changed_requirements_are_installed_again(tmp_path: Path) -> None:
    """After a pull, the next `make` installs what the change needs."""
    checkout = a_checkout(tmp_path)
    run(checkout, "make", "setup")
    stamp = checkout / ".venv" / ".installed"
    os.utime(stamp, (0, 0))

    (checkout / "constraints.txt").write_text("rich==1\n", encoding="utf-8")
    run(checkout, "make", "setup")

    assert ["-c constraints.txt" in call for call in calls(checkout)] == [False, True]


def test_failed_install_is_tried_again(tmp_path: Path) -> None:
    """A network that was down must not leave a half-made environment that counts as made."""
    checkout = a_checkout(tmp_path)

    results = [run(checkout, "make", "setup", RED="python").returncode, run(checkout, "make", "setup").returncode]

    assert results == [2, 0]
    assert len(calls(checkout)) == 2


def test_gate_runs_the_cheapest_step_first(tmp_path: Path) -> None:
    """The order is the one that the contributors' guide promises."""
    checkout = a_checkout(tmp_path)

    gate = run(checkout, ".ci/run")

    assert gate.returncode == 0, gate.stderr
    assert [" ".join(call.split()[:3]) for call in calls(checkout)[1:]] == [
        "ruff format --check",
        "ruff check .",
        "mypy",
        "lint-imports",
        "python tests/conformance/clients.py js",
        "python tests/conformance/clients.py java",
        "python tests/conformance/clients.py kafka",
        "python tests/conformance/clients.py go",
        "python tests/conformance/clients.py rust",
        "python tests/conformance/clients.py period",
        "python -m pytest",
        "python -m pytest",
        "mkdocs build --strict",
    ]


@pytest.mark.parametrize(("red", "reached"), [("ruff", 2), ("mypy", 4), ("lint-imports", 5), ("mkdocs", 14)])
def test_gate_stops_at_the_first_red_step(tmp_path: Path, red: str, reached: int) -> None:
    """Nobody waits for tests of code that does not type-check."""
    checkout = a_checkout(tmp_path)

    gate = run(checkout, ".ci/run", RED=red)

    assert gate.returncode != 0
    assert len(calls(checkout)) == reached
    assert "green" not in gate.stdout


def test_every_target_of_make_is_in_the_contributors_guide() -> None:
    """`make` lists them; the guide says when to use them."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    targets = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)

    assert {"setup", "run", "test", "lint", "bench", "docs", "torture", "clean"} <= set(targets)
    assert [target for target in targets if f"make {target}" not in guide and target != "help"] == []
