"""Builds the inner loops (`hubmere.kernels`) ahead of time where possible; everything else is in pyproject.toml.

The extension is optional: without mypyc or a C compiler the package installs with the same file interpreted.
HUBMERE_PURE=1 leaves it out on purpose.
"""

import os

from setuptools import Extension, setup  # type: ignore[import-untyped]  # it ships no types and needs no stubs here


def kernels() -> list[Extension]:
    """The compiled form of the inner loops, or nothing."""
    if os.environ.get("HUBMERE_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify

        extensions = mypycify(["src/hubmere/kernels.py"], opt_level="3")
    except (ImportError, SystemExit):  # mypyc leaves with SystemExit when it does not like a source
        return []
    for extension in extensions:
        extension.optional = True
    return extensions


setup(ext_modules=kernels())
