"""The time that a node has stored before its stop, and how the next start uses it."""

from pathlib import Path

import pytest

from hubmere.model.clock import Anchor
from hubmere.store.clock_file import CLOCK_FILE, Anchors, read_anchors, write_anchors
from hubmere.store.files import Files

KEPT = Anchors(Anchor(1_000_000, 50.0), Anchor(900_000, 50.0))
DAY_MS = 24 * 3_600_000


class Boot(Files):
    def __init__(self, name: str) -> None:
        self._name = name

    def boot_id(self) -> str:
        return self._name


def test_time_since_the_stop_is_known_in_the_same_boot(tmp_path: Path) -> None:
    """Both clocks continue as if the node had not been stopped."""
    write_anchors(tmp_path, Boot("one"), KEPT)

    assert read_anchors(tmp_path, Boot("one"), Anchor(99_000_000, 80.0)) == KEPT


@pytest.mark.parametrize(
    ("wall_ms", "believed_ms"),
    [(1_000_000 + DAY_MS, 1_000_000 + DAY_MS), (1_000_000 + 3_650 * DAY_MS, 1_000_000), (5_000, 1_000_000)],
    ids=["a day later", "ten years later", "before"],
)
def test_plausible_time_after_a_reboot_is_used_but_not_for_retention(
    tmp_path: Path, wall_ms: int, believed_ms: int
) -> None:
    """It is unknown how long the machine was off; retention waits until the time is confirmed."""
    write_anchors(tmp_path, Boot("one"), KEPT)

    found = read_anchors(tmp_path, Boot("two"), Anchor(wall_ms, 7.0))

    assert found == Anchors(Anchor(believed_ms, 7.0), Anchor(900_000, 7.0))


@pytest.mark.parametrize("content", ["", "{}", "null", '{"boot": 1, "stamps": [1], "retention": [1, 2]}'])
def test_unreadable_file_does_not_prevent_the_start(tmp_path: Path, content: str) -> None:
    """Then only the machine's clock is available."""
    (tmp_path / CLOCK_FILE).write_text(content)

    assert read_anchors(tmp_path, Boot("one"), Anchor(5, 5.0)) is None
