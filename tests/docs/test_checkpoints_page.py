"""The page on checkpoints: its program runs unchanged, and a processor continues after a restart."""

from pathlib import Path

import pytest

from docs.pages import ROOT, blocks, printed
from hubmere.node.ready import write_ready_file
from hubmere.testing import Node

PAGE = ROOT / "docs" / "how-to" / "checkpoints.md"


@pytest.mark.foreign
def test_the_processor_of_the_page_continues_after_a_restart_of_the_node(tmp_path: Path) -> None:
    """The second run sends two more events and sees only those: its checkpoints are on the node's disk."""
    ((language, program),) = blocks(PAGE, "python")
    with Node(hubs=["orders"]) as node:
        write_ready_file(tmp_path / "ready.json", node.ready)
        first = printed(tmp_path, language, program)
        node.restart()
        write_ready_file(tmp_path / "ready.json", node.ready)
        second = printed(tmp_path, language, program.replace('"one"', '"three"').replace('"two"', '"four"'))

    assert first.split() == ["one", "two"]
    assert second.split() == ["three", "four"]
