"""The manual describes the code: generated pages are current, and every example file is valid."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from hubmere.node.ready import Ready
from hubmere.settings import SETTINGS, Setting, load

DOCS = Path(__file__).parents[2] / "docs"
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def the_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current() -> None:
    """`make docs` was run after the last change."""
    pages: dict[Path, str] = the_generator().pages()

    stale = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]

    assert stale == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_has_its_sentence_in_the_manual(setting: Setting) -> None:
    """The page has its flag, its variable and the allowed values."""
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")

    _, found, section = page.partition(f"\n### {setting.key}\n")
    section = section.partition("\n### ")[0]

    assert found
    assert all(part in section for part in (setting.sentence, setting.flag, setting.variable, setting.kind.allowed))


def test_every_key_of_the_ready_file_is_in_the_manual() -> None:
    """A program that reads the file has only this page as a reference."""
    page = (DOCS / "reference" / "ready-file.md").read_text(encoding="utf-8")

    assert [key for key in Ready.__dataclass_fields__ if f"`{key}`" not in page] == []


def test_every_settings_file_in_the_manual_can_be_loaded(tmp_path: Path) -> None:
    """Users paste examples."""
    examples = [text for page in sorted(DOCS.rglob("*.md")) for text in _TOML.findall(page.read_text(encoding="utf-8"))]
    config = tmp_path / "hubmere.toml"

    for text in examples:
        config.write_text(text, encoding="utf-8")
        settings = load({}, {}, config)
        assert [hub.name for hub in settings.hubs] == [hub["name"] for hub in tomllib.loads(text).get("hubs", [])]

    assert len(examples) >= 2
