"""The list of what neighbours may import from the model is true."""

from pathlib import Path

import hubmere.model


def test_package_lists_every_module_it_has() -> None:
    """A module that is not listed is not meant to be used; a name that is not there misleads."""
    folder = Path(hubmere.model.__file__).parent

    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")

    assert modules == sorted(hubmere.model.__all__)
