"""The internals pages: every citation opens, and the list of packages is complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERNALS = ROOT / "docs" / "internals"
_PAGES = {"amqp": "amqp.md", "kafka": "kafka.md", "service": "service.md"}
_CITATION = re.compile(r"\(reference: ([^)]*)\)")
_PAGE = re.compile(r"(?i)\b(amqp|kafka|service)\b")
_SECTION = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w])")


def headings(page: str) -> set[str]:
    """The section numbers of a page."""
    text = (INTERNALS / page).read_text(encoding="utf-8")
    return {match.rstrip(".") for match in re.findall(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)}


def citations() -> list[tuple[str, str, str]]:
    """Where something is cited, the page, and the section."""
    found = []
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = re.sub(r"\n\s*#? ?", " ", path.read_text(encoding="utf-8"))
            for citation in _CITATION.findall(text):
                found += [(str(path.relative_to(ROOT)), *each) for each in _cited(citation)]
    return found


def _cited(citation: str) -> list[tuple[str, str]]:
    """The sections in one citation: `kafka 1.7 and 2.14`, `AMQP 5.5, service 7`; numbers of checks are left out."""
    words = re.split(r",? ?\bchecks?\b", citation, maxsplit=1)[0]
    parts = re.split(_PAGE, words)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [(_PAGES[page.lower()], number) for page, rest in pairs for number in _SECTION.findall(rest)]


def test_every_cited_section_is_on_its_page() -> None:
    """A citation that cannot be opened helps nobody."""
    known = {page: headings(page) for page in _PAGES.values()}
    found = citations()

    missing = [each for each in found if each[2] not in known[each[1]]]

    assert len(found) > 50
    assert missing == []


def test_every_citation_names_its_page() -> None:
    """A bare section number does not say which page is meant."""
    cited = [
        (path.name, citation)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for citation in _CITATION.findall(path.read_text(encoding="utf-8"))
    ]

    bare = [each for each in cited if _SECTION.search(each[1]) and not _PAGE.search(each[1])]

    assert bare == []


@pytest.mark.parametrize("package", sorted(p.parent.name for p in (ROOT / "src" / "hubmere").glob("*/__init__.py")))
def test_every_package_is_in_the_table(package: str) -> None:
    """Who looks for a place for a change finds all of them."""
    assert f"| `{package}` |" in (INTERNALS / "index.md").read_text(encoding="utf-8")


def test_every_file_that_the_walk_names_is_there() -> None:
    """The walk of an event names real files."""
    text = (INTERNALS / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text))

    assert named
    assert [name for name in sorted(named) if not (ROOT / "src" / "hubmere" / name).exists()] == []
