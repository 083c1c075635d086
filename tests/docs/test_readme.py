"""The README's examples, run as they stand against a live node."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, RUNNERS, blocks, printed
from hubmere.node.ready import write_ready_file
from hubmere.testing import Node

README = ROOT / "README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder as the README's reader has it: a node that runs with `hubmere.toml`, and its `ready.json`."""
    ((_, config),) = blocks(README, "toml")
    assert config.split() == ["[[hubs]]", "name", "=", '"orders"']
    with Node(hubs=["orders"]) as node:
        write_ready_file(tmp_path / "ready.json", node.ready)
        yield tmp_path


@pytest.mark.foreign
def test_examples_run_as_they_stand_and_read_back_what_they_sent(folder: Path) -> None:
    """Three protocols in, one out: whoever pastes them sees the same."""
    examples = blocks(README, *RUNNERS)

    told = [printed(folder, language, text) for language, text in examples]

    assert sorted(told[-1].splitlines()) == ["by AMQP", "by HTTPS", "by Kafka"]


def test_every_file_that_the_readme_points_to_is_there() -> None:
    """A dead link on the first page is a poor welcome."""
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))

    assert links
    assert [link for link in links if not link.startswith("http") and not (README.parent / link).exists()] == []
