"""The README's examples run unchanged against a real node."""

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
    """A folder as a reader of the README has it: a running node with `hubmere.toml`, and its `ready.json`."""
    ((_, config),) = blocks(README, "toml")
    assert config.split() == ["[[hubs]]", "name", "=", '"orders"']
    with Node(hubs=["orders"]) as node:
        write_ready_file(tmp_path / "ready.json", node.ready)
        yield tmp_path


@pytest.mark.foreign
def test_examples_run_unchanged_and_read_back_what_they_sent(folder: Path) -> None:
    """They publish over three protocols and read over one: a user who pastes them gets the same output."""
    examples = blocks(README, *RUNNERS)

    results = [printed(folder, language, text) for language, text in examples]

    assert sorted(results[-1].splitlines()) == ["by AMQP", "by HTTPS", "by Kafka"]


def test_every_file_that_the_readme_links_exists() -> None:
    """The first page must not have broken links."""
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))

    assert links
    assert [link for link in links if not link.startswith("http") and not (README.parent / link).exists()] == []


def test_figures_are_those_of_the_performance_page() -> None:
    """A copied figure becomes outdated."""
    page = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
    section = README.read_text(encoding="utf-8").partition("## How fast")[2].partition("## Status")[0]
    rows = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| ") and row[2].isupper()]

    figures = [number for row in rows for cell in row[1:] for number in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]

    assert len(figures) >= 15
    assert [figure for figure in figures if figure not in page] == []


def test_commands_for_new_users_exist() -> None:
    """Both commands at the top of the page are targets of `make`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    commands = re.findall(r"^\$ make ([a-z-]+)", README.read_text(encoding="utf-8"), re.MULTILINE)

    assert commands[:2] == ["run", "test"]
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)
