"""The files under `deploy/`: what they name exists in the product, and the tools that read them take them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hubmere.settings import SETTINGS, Settings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "hubmere.service"
CONTAINER = ROOT / "deploy" / "container" / "Containerfile"
COMPOSE = ROOT / "deploy" / "container" / "compose.yaml"
_VARIABLE = re.compile(r"\b(HUBMERE_[A-Z_]+)=")


def default_ports() -> set[str]:
    settings = Settings()
    ports = ("amqp_port", "amqps_port", "kafka_port", "kafkas_port", "http_port", "https_port")
    return {str(getattr(settings, port)) for port in ports}


@pytest.mark.parametrize("path", [UNIT, CONTAINER], ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    """A misspelt one would be silent."""
    named = set(_VARIABLE.findall(path.read_text(encoding="utf-8")))

    assert named
    assert named <= {setting.variable for setting in SETTINGS}


def test_the_container_opens_the_ports_of_the_node() -> None:
    """All six, in the image and in the composition."""
    exposed = re.search(r"^EXPOSE (.+)$", CONTAINER.read_text(encoding="utf-8"), re.MULTILINE)
    published = re.findall(r'- "(\d+):(\d+)"', COMPOSE.read_text(encoding="utf-8"))

    assert exposed is not None
    assert set(exposed.group(1).split()) == default_ports()
    assert {inside for _, inside in published} == default_ports()


def test_the_container_copies_files_that_are_there_and_asks_for_extras_that_exist() -> None:
    """What a build would find out late."""
    text = CONTAINER.read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    extras = re.findall(r"\[([a-z,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert [extra for group in extras for extra in group.split(",") if extra not in known] == []


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Judged by systemd's own verifier, with a command that is there."""
    judge = shutil.which("systemd-analyze")
    if judge is None:
        pytest.skip("no systemd-analyze on the path")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/hubmere/bin/hubmere", sys.executable))

    told = subprocess.run(
        [judge, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip

    assert [line for line in told.stderr.splitlines() if UNIT.name in line] == []
    assert told.returncode == 0, told.stderr
