"""Renders `CHANGELOG.md` from the fragments in `changelog.d`: one heading for each kind, one line for each fragment.

`python tools/changelog.py` writes the page; `make changelog` and `make docs` call it.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changelog.d"
# In the order of the page; the kind is the second part of a fragment's name.
HEADINGS = {
    "security": "Security",
    "removed": "Removed",
    "changed": "Changed",
    "added": "Added",
    "fixed": "Fixed",
}
_NOTE = "<!-- Made by tools/changelog.py from changelog.d; run `make changelog`. -->"


def render(fragments: Path = FRAGMENTS, version: str = "Unreleased") -> str:
    """The page; fragments of one kind are in the order of their names."""
    parts = [_NOTE, "# Changelog", f"## {version}"]
    for kind, heading in HEADINGS.items():
        lines = [path.read_text(encoding="utf-8").strip() for path in sorted(fragments.glob(f"*.{kind}.md"))]
        if lines:
            parts += [f"### {heading}", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
