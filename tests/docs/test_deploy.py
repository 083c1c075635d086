"""The files under `deploy/`: the names in them exist in the product, and the tools that use them accept them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

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
    """A misspelt variable would be ignored."""
    named = set(_VARIABLE.findall(path.read_text(encoding="utf-8")))

    assert named
    assert named <= {setting.variable for setting in SETTINGS}


def test_the_container_opens_the_ports_of_the_node() -> None:
    """All six are in the image and in the composition."""
    exposed = re.search(r"^EXPOSE (.+)$", CONTAINER.read_text(encoding="utf-8"), re.MULTILINE)
    published = re.findall(r'- "(\d+):(\d+)"', COMPOSE.read_text(encoding="utf-8"))

    assert exposed is not None
    assert set(exposed.group(1).split()) == default_ports()
    assert {inside for _, inside in published} == default_ports()


def test_container_file_copies_existing_files_and_installs_existing_extras() -> None:
    """Otherwise a build would fail late."""
    text = CONTAINER.read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    extras = re.findall(r"\[([a-z,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert [extra for group in extras for extra in group.split(",") if extra not in known] == []


# --- the container, step by step -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of the container file, with its lines joined."""

    name: str
    text: str


def steps() -> list[Step]:
    lines = [line for line in CONTAINER.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Step(*line.split(" ", 1)) for line in joined.splitlines() if line.strip()]


def texts_of(name: str) -> list[str]:
    return [step.text for step in steps() if step.name == name]


# Commands of the base image, apart from those of the shell.
_IMAGE_COMMANDS = {"apt-get", "rm", "python", "useradd", "/opt/hubmere/bin/pip"}


def test_every_step_is_an_instruction_and_every_shell_text_parses() -> None:
    """A quote that is not closed would stop the build."""
    known = {"FROM", "RUN", "ARG", "WORKDIR", "COPY", "USER", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}

    assert {step.name for step in steps()} <= known | {"ENTRYPOINT", "CMD"}
    for text in texts_of("RUN"):
        subprocess.run(["sh", "-n", "-c", text], check=True, timeout=600)


def test_steps_use_commands_that_the_image_has() -> None:
    """The first word of every command is checked in both stages; the second stage uses no build tool."""
    called = {
        words[0]
        for text in texts_of("RUN")
        for command in re.split(r"&&|;|\bthen\b|\bfi\b|\bif\b", text)
        if (words := command.split()) and words[0] != "["
    }

    assert called == _IMAGE_COMMANDS


def test_options_of_pip_exist() -> None:
    """Otherwise the first build would fail."""
    (install,) = [text for text in texts_of("RUN") if "pip install" in text]
    help_text = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True, timeout=120, check=True
    ).stdout + subprocess.run(
        [sys.executable, "-m", "pip", "--help"], capture_output=True, text=True, timeout=120, check=True
    ).stdout  # fmt: skip

    options = re.findall(r"\s(--?[a-z-]+)", install.partition("pip install")[2])

    assert options
    assert [option for option in options if option not in help_text] == []


def test_command_of_the_composition_becomes_ready_and_healthy(tmp_path: Path) -> None:
    """It uses the image's entry point and variables with the composition's command; ports and folder are local."""
    (entry,) = map(json.loads, texts_of("ENTRYPOINT"))
    command = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["hubmere"]["command"]
    variables = dict(word.split("=", 1) for text in texts_of("ENV") for word in text.split())
    ports = {f"HUBMERE_{name}_PORT": "0" for name in ("AMQP", "AMQPS", "KAFKA", "KAFKAS", "HTTP", "HTTPS")}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HUBMERE_")}
    environment = {**plain, **variables, **ports, "HUBMERE_DATA": str(tmp_path / "data")}
    assert entry == ["/opt/hubmere/bin/hubmere"]
    ready = tmp_path / "data" / "ready.json"
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen(
            [sys.executable, "-m", "hubmere", *command], env=environment, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert node.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        result = json.loads(ready.read_text(encoding="utf-8"))
        (health,) = (json.loads(text[text.index("CMD ") + 4 :]) for text in texts_of("HEALTHCHECK"))
        check = health[2].replace("127.0.0.1:5300", result["http"].removeprefix("http://")).replace("=2)", "=120)")
        subprocess.run([sys.executable, "-c", check], check=True, timeout=240)
    finally:
        node.terminate()
        assert node.wait(120) == 0

    # The host can resolve neither the name of the service nor that of the namespace.
    assert result["kafka"].startswith("localhost:")
    assert result["connection_string"].startswith("Endpoint=sb://localhost")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Checked by systemd's own verifier, with an existing command."""
    judge = shutil.which("systemd-analyze")
    if judge is None:
        pytest.skip("no systemd-analyze on the path")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/hubmere/bin/hubmere", sys.executable))

    output = subprocess.run(
        [judge, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip

    assert [line for line in output.stderr.splitlines() if UNIT.name in line] == []
    assert output.returncode == 0, output.stderr
