"""The tutorial, done as a reader does it: its blocks in their order, in one folder with a running node."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubmere.settings import load
from hubmere.testing import Node

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUNNERS = {"python": [sys.executable, "-c"], "sh": ["bash", "-euo", "pipefail", "-c"]}

EVENTS = {"first event", "second event, by AMQP", "third event, by Kafka", "fourth event, by HTTPS"}


def blocks(*languages: str) -> list[tuple[str, str]]:
    found = _FENCE.findall(TUTORIAL.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language in languages]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the reader works: the node of the tutorial's settings file runs on `hubmere-data`."""
    ((_, config),) = blocks("toml")
    file = tmp_path / "hubmere.toml"
    file.write_text(config, encoding="utf-8")
    with Node(hubs=load({}, {}, file).hubs, data=tmp_path / "hubmere-data"):
        yield tmp_path


def printed(folder: Path, language: str, text: str) -> str:
    """What a block prints; one that fails shows what it said."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*_RUNNERS[language], text],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.foreign
@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(folder: Path) -> None:
    """One event by each way in, and each way out shows what is there by then."""
    steps = blocks(*_RUNNERS)

    told = [printed(folder, language, text) for language, text in steps]

    command_line, _, kafka, _, sdk, management = told
    assert "first event" in command_line
    assert {line.split(" ", 2)[2] for line in kafka.splitlines()} == EVENTS - {"fourth event, by HTTPS"}
    assert {line.split(" ", 2)[2] for line in sdk.splitlines()} == EVENTS
    assert "returns" in management
