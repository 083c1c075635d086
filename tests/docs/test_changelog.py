"""`CHANGELOG.md` is generated from the fragments."""

import runpy
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def renderer() -> Callable[..., str]:
    found: Callable[..., str] = runpy.run_path(str(ROOT / "tools" / "changelog.py"))["render"]
    return found


def test_the_changelog_is_current() -> None:
    """`make changelog` writes it."""
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") == renderer()()


def test_fragments_are_listed_under_their_kind(tmp_path: Path) -> None:
    """Security fixes and removals come first."""
    for name, text in (("b.added", "B."), ("a.added", "A."), ("c.security", "C.")):
        (tmp_path / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")

    page = renderer()(tmp_path, "1.0")

    assert page.splitlines()[2:] == [
        "# Changelog", "", "## 1.0", "", "### Security", "", "- C.", "", "### Added", "", "- A.", "- B.",
    ]  # fmt: skip
