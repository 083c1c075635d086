"""The wheel is built, installed into an empty virtual environment, started, and used."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_INSTALL_SECONDS = 3000
_RUN_SECONDS = 600


def run(*command: str | Path, folder: Path = ROOT, seconds: float = _RUN_SECONDS) -> str:
    """The output of a command; a failure shows its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of an environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    run("make", "--no-print-directory", "wheel", f"DIST={folder}", f"PYTHON={sys.executable}", seconds=_INSTALL_SECONDS)
    [wheel] = folder.glob("hubmere-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    programs = folder / "venv" / "bin"
    install = ("-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    run(programs / "python", *install, "-c", ROOT / "constraints.txt", wheel, folder=folder, seconds=_INSTALL_SECONDS)
    return programs


@pytest.fixture(scope="module")
def served(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a node that runs from the wheel, on free ports."""
    folder = tmp_path_factory.mktemp("node")
    config = folder / "hubmere.toml"
    ports = "".join(f"{name}_port = 0\n" for name in ("amqp", "amqps", "kafka", "kafkas", "http", "https"))
    config.write_text(f'data = "{folder / "data"}"\n{ports}[[hubs]]\nname = "orders"\n', encoding="utf-8")
    ready = folder / "ready.json"
    command = [str(installed / "hubmere"), "up", "--config", str(config), "--ready-file", str(ready)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as node:
        deadline = time.monotonic() + _RUN_SECONDS
        while not ready.exists():
            assert node.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "the node did not become ready"
            time.sleep(0.05)
        yield folder / "data"
        node.send_signal(signal.SIGTERM)
        assert node.wait(_RUN_SECONDS) == 0


def test_wheel_has_the_compiled_kernels(installed: Path, tmp_path: Path) -> None:
    """Without them a node works, but slower, which would not be noticed."""
    names = [
        "hubmere.records.kernels.to_records",
        "hubmere.records._validate",
        "hubmere.records._walk",
        "hubmere.records._split",
        "hubmere.records._join",
        "hubmere.capture.cold._rebuild",
        "hubmere.pipeline._decode",
        "hubmere.pipeline._encode",
    ]
    code = "import json, sys; from importlib.util import find_spec; "
    code += "print(json.dumps([find_spec(name).origin for name in sys.argv[1:]]))"

    origins = json.loads(run(installed / "python", "-c", code, *names, folder=tmp_path))

    assert [Path(origin).suffix for origin in origins] == [".so"] * len(names)
    assert all(Path(origin).is_relative_to(installed.parent) for origin in origins)


def test_wheel_has_the_pages_of_the_portal(installed: Path, tmp_path: Path) -> None:
    """They include files that are not Python; without one of them the import fails."""
    run(installed / "python", "-c", "import hubmere.portal.nicegui_app", folder=tmp_path)


def test_node_from_the_wheel_publishes_and_reads(installed: Path, served: Path, tmp_path: Path) -> None:
    """It uses its own commands, as a user without a clone does."""
    run(installed / "hubmere", "send", "orders", "--data", served, "hello", folder=tmp_path)
    read = run(installed / "hubmere", "tail", "orders", "--data", served, "--from", "first", "--count", "1")

    assert "hello" in read


def test_a_missing_extra_is_reported_with_the_command_that_adds_it(
    installed: Path, served: Path, tmp_path: Path
) -> None:
    """The wheel has no Spark: enabling capture names the command that installs it, and fails."""
    command = [str(installed / "hubmere"), "capture", "enable", "--name", "orders", "--data", str(served)]

    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False)

    assert output.returncode == 1
    assert "pyspark and pyarrow not installed" in output.stderr
    assert f"{installed / 'python'} -m pip install 'hubmere[capture]'" in output.stderr
