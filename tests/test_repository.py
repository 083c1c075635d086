"""The repository: changelog, dependencies, forbidden texts, docstrings and names."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FRAGMENT = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed|security)\.md")
# Extras install these too, but only the dependencies of a node need a reason here.
_RUN_TIME_DEPENDENCIES = [
    re.split(r"[\s;<>=\[]", dependency, maxsplit=1)[0]
    for dependency in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
]
_TEXTS = (".py", ".md", ".toml", ".yml", ".txt", ".cfg", "")


def texts() -> list[Path]:
    """Every text file that belongs to the project; what tools made is not among them."""
    folders = [ROOT / name for name in ("src", "tests", "bench", "docs", "changelog.d", ".ci")]
    inner = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix in _TEXTS]
    # In a linked work tree `.git` is a file that names the repository's folder.
    outer = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in _TEXTS and path.name != ".git"]
    return [path for path in inner + outer if "__pycache__" not in path.parts and ".egg-info" not in str(path)]


@pytest.mark.parametrize("fragment", sorted((ROOT / "changelog.d").iterdir()), ids=lambda path: path.name)
def test_changelog_fragment_is_one_sentence_of_a_known_kind(fragment: Path) -> None:
    """A program assembles them at a release."""
    text = fragment.read_text(encoding="utf-8")

    assert _FRAGMENT.fullmatch(fragment.name)
    assert re.fullmatch(r"\S[^\n]*\.\n", text)


@pytest.mark.parametrize("dependency", _RUN_TIME_DEPENDENCIES)
def test_every_dependency_has_its_reason_in_the_design(dependency: str) -> None:
    """A dependency must be kept up to date, so it needs a reason."""
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")

    assert f"`{dependency}`" in design.partition("## Dependencies")[2]


def test_no_file_names_a_machine_or_a_package_index() -> None:
    """A clean checkout works anywhere: paths are relative, and the index is the installer's business.

    Of addresses of local files only those of packages count (PEP 508's `name @ ...`): captured files have some too.
    """
    # Concatenated, so that this file does not contain the searched text.
    banned = re.compile(
        "|".join(["/wo" + "rk/", "/ro" + "ot/", "--index" + "-url", "--extra-index" + "-url", "@ file" + "://"])
    )

    found = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in texts()
        if (match := banned.search(path.read_text(encoding="utf-8", errors="replace")))
    }

    assert found == set()


def test_every_module_has_a_docstring() -> None:
    """It says what the module decides and what it never does."""
    modules = sorted((ROOT / "src").rglob("*.py"))

    silent = [str(path.relative_to(ROOT)) for path in modules if not path.read_text(encoding="utf-8").startswith('"""')]

    assert silent == []


# --- names -----------------------------------------------------------------------------------------------------------

# Irregular past participles; regular ones end in -ed. Words that are also verbs or nouns (cut, put) are not listed.
_IRREGULAR = re.compile(
    "begun|bound|broken|brought|built|chosen|done|drawn|driven|found|given|gone|held|hidden|kept|known|left|lost|made|meant|"
    "met|paid|said|seen|sent|shown|sold|spent|spoken|stolen|stood|taken|taught|thrown|told|understood|won|written"
)
# Words that end in -ed and are no participles.
_NO_PARTICIPLES = frozenset(
    {"bleed", "embed", "exceed", "feed", "hundred", "need", "proceed", "seed", "shed", "speed", "succeed"}
)
# Names that a library demands.
_REQUIRED_NAMES: frozenset[str] = frozenset()
# Packages and modules that follow the rule.
_FOLLOWS = (
    "model", "wire", "broker/coordinator", "pipeline/capture", "portal/pages", "records/kernels", "store/recovery",
)  # fmt: skip


def bare_participles(source: str) -> list[str]:
    """The functions whose whole name is a past participle: neither command, query nor callback."""
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [node.name for node in functions if _is_participle(node.name.strip("_"))]


def _is_participle(word: str) -> bool:
    if word in _NO_PARTICIPLES or word in _REQUIRED_NAMES:
        return False
    return _IRREGULAR.fullmatch(word) is not None or (word.endswith("ed") and "_" not in word)


def test_no_function_is_named_by_a_bare_participle() -> None:
    """A command is a verb, a query a noun or `is_...`, a callback `on_...`; `opened` could be any of them."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in _FOLLOWS
        for path in sorted((ROOT / "src" / "hubmere" / package).rglob("*.py"))
        for name in bare_participles(path.read_text(encoding="utf-8"))
    }

    assert found == set()


@pytest.mark.parametrize("name", ["told", "_opened", "kept"])
def test_participle_is_recognised(name: str) -> None:
    """The check finds participles."""
    assert bare_participles(f"def {name}(): ...") == [name]


@pytest.mark.parametrize("name", ["append", "is_closed", "on_closed", "held_bytes", "need", "cut"])
def test_other_names_are_no_participles(name: str) -> None:
    """Verbs, nouns, `is_` queries and callbacks pass."""
    assert bare_participles(f"def {name}(): ...") == []
