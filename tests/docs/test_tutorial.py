"""The tutorial: its blocks are run in order, in one folder with a running node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, RUNNERS, blocks, printed
from hubmere.settings import load
from hubmere.testing import Node

TUTORIAL = ROOT / "docs" / "tutorial.md"
EVENTS = {"first event", "second event, by AMQP", "third event, by Kafka", "fourth event, by HTTPS"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of the reader: a node with the tutorial's settings file runs on `hubmere-data`."""
    ((_, config),) = blocks(TUTORIAL, "toml")
    file = tmp_path / "hubmere.toml"
    file.write_text(config, encoding="utf-8")
    with Node(hubs=load({}, {}, file).hubs, data=tmp_path / "hubmere-data"):
        yield tmp_path


@pytest.mark.foreign
def test_tutorial_has_the_documented_results(folder: Path) -> None:
    """One event is published over each protocol, and each reader shows all events so far."""
    steps = blocks(TUTORIAL, *RUNNERS)

    results = [printed(folder, language, text) for language, text in steps]

    command_line, _, kafka, _, sdk, management = results
    assert "first event" in command_line
    assert {line.split(" ", 2)[2] for line in kafka.splitlines()} == EVENTS - {"fourth event, by HTTPS"}
    assert {line.split(" ", 2)[2] for line in sdk.splitlines()} == EVENTS
    assert "returns" in management
