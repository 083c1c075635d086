"""The list of what other packages may import from the model is complete."""

from pathlib import Path

import hubmere.model


def test_package_lists_every_module_it_has() -> None:
    """An unlisted module is not part of the interface; a listed name that does not exist is misleading."""
    folder = Path(hubmere.model.__file__).parent

    modules = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in folder.glob("*/__init__.py")]

    assert sorted(modules + packages) == sorted(hubmere.model.__all__)
