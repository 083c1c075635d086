"""The internals pages: every citation and link opens, every package is listed, every named file exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hubmere"
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
    """All citations: the citing file, the page, and the section."""
    found = []
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = re.sub(r"\n\s*#? ?", " ", path.read_text(encoding="utf-8"))
            for citation in _CITATION.findall(text):
                found += [(str(path.relative_to(ROOT)), *each) for each in _cited(citation)]
    return found


def _cited(citation: str) -> list[tuple[str, str]]:
    """The sections in one citation: `kafka 1.7 and 2.14`, `AMQP 5.5, service 7`; numbers of checks are ignored."""
    words = re.split(r",? ?\bchecks?\b", citation, maxsplit=1)[0]
    parts = re.split(_PAGE, words)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [(_PAGES[page.lower()], number) for page, rest in pairs for number in _SECTION.findall(rest)]


def test_every_cited_section_is_on_its_page() -> None:
    """A citation must lead to an existing section."""
    known = {page: headings(page) for page in _PAGES.values()}
    found = citations()

    missing = [each for each in found if each[2] not in known[each[1]]]

    assert len(found) > 50
    assert missing == []


def test_every_citation_names_its_page() -> None:
    """A section number without a page is ambiguous."""
    cited = [
        (path.name, citation)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for citation in _CITATION.findall(path.read_text(encoding="utf-8"))
    ]

    bare = [each for each in cited if _SECTION.search(each[1]) and not _PAGE.search(each[1])]

    assert bare == []


PACKAGES = sorted(path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*/__init__.py"))
# The pages that describe the code; other pages describe protocols.
GUIDES = sorted(path.name for path in INTERNALS.glob("*.md") if path.name not in _PAGES.values())


@pytest.mark.parametrize("package", [name for name in PACKAGES if "/" not in name])
def test_every_package_is_in_the_table_of_layers(package: str) -> None:
    """The table tells a newcomer what each package does."""
    assert f"| `{package}` |" in (INTERNALS / "index.md").read_text(encoding="utf-8")


# A longer list is not read to its end: sub-packages tell a newcomer where to look.
MAX_MODULES = 15


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_few_modules_side_by_side(package: str) -> None:
    """`__init__` and sub-packages do not count."""
    modules = [path.name for path in (SOURCE / package).glob("*.py") if path.name != "__init__.py"]

    assert len(modules) <= MAX_MODULES, modules


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_in_the_tree(package: str) -> None:
    """This includes sub-packages: an incomplete tree is misleading."""
    assert re.search(rf"^##+ `{package}`$", (INTERNALS / "tree.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", GUIDES)
def test_every_file_that_a_guide_names_exists(page: str) -> None:
    """Paths start at `src/hubmere` or at the root of the repository."""
    text = (INTERNALS / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.\w+)`", text))

    missing = [name for name in sorted(named) if not any((base / name).exists() for base in (SOURCE, ROOT))]

    assert missing == []


@pytest.mark.parametrize("page", sorted(path.name for path in INTERNALS.glob("*.md")))
def test_every_relative_link_opens(page: str) -> None:
    """A link leads to a file of the manual, and to an existing heading if it names one."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (INTERNALS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]

    assert [link for link in links if not _opens(page, link)] == []


def _opens(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (INTERNALS / path).resolve() if path else INTERNALS / page
    if not target.is_file():
        return False
    return not anchor or anchor in {_anchor(heading) for heading in _headings(target)}


def _headings(path: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)


def _anchor(heading: str) -> str:
    """The anchor that the manual's renderer gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())
