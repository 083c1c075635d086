"""Hubmere: an Event Hubs that runs anywhere."""

import os

__version__ = "0.1.0"


def _ignore_compiled_modules() -> None:
    """Import every module of this package from its source, although an import prefers the compiled form."""
    import sys
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
    from pathlib import Path

    package = Path(__file__).parent

    def find_sources(directory: str) -> FileFinder:
        if not Path(directory).is_relative_to(package):
            raise ImportError
        return FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_sources)


# For comparing both forms, and for excluding the compiler as the cause of a fault.
if os.environ.get("HUBMERE_PURE") == "1":
    _ignore_compiled_modules()
