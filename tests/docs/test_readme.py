"""The README's examples, run as they stand against a live node."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubmere.ready import write_ready_file
from hubmere.testing import Node

README = Path(__file__).parents[2] / "README.md"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What runs a block of that language; the others show commands for a terminal or files.
_RUNNERS = {"python": [sys.executable, "-c"], "sh": ["bash", "-euo", "pipefail", "-c"]}


def blocks(*languages: str) -> list[tuple[str, str]]:
    found = _FENCE.findall(README.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language in languages]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder as the README's reader has it: a node that runs with `hubmere.toml`, and its `ready.json`."""
    ((_, config),) = blocks("toml")
    assert config.split() == ["[[hubs]]", "name", "=", '"orders"']
    with Node(hubs=["orders"]) as node:
        write_ready_file(tmp_path / "ready.json", node.ready)
        yield tmp_path


def run(folder: Path, language: str, text: str) -> str:
    """What a block prints; an example that fails shows what it said."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*_RUNNERS[language], text],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.mark.foreign
@pytest.mark.timeout(240)
def test_examples_run_as_they_stand_and_read_back_what_they_sent(folder: Path) -> None:
    """Three protocols in, one out: whoever pastes them sees the same."""
    examples = blocks(*_RUNNERS)

    printed = [run(folder, language, text) for language, text in examples]

    assert sorted(printed[-1].splitlines()) == ["by AMQP", "by HTTPS", "by Kafka"]


def test_every_file_that_the_readme_points_to_is_there() -> None:
    """A dead link on the first page is a poor welcome."""
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))

    assert links
    assert [link for link in links if not link.startswith("http") and not (README.parent / link).exists()] == []
