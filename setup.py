"""Builds the inner loops ahead of time where possible; everything else is in pyproject.toml.

Those are `hubmere.kernels`, by mypyc, and two twins by Cython: of the Spark decoder (`hubmere.pipeline._decode`) and of
the check of produced records (`hubmere.records._validate`). Without the compilers the package installs and runs
interpreted. HUBMERE_PURE=1 leaves the compiled forms out on purpose.
"""

import os

from setuptools import Extension, setup  # type: ignore[import-untyped]  # it ships no types and needs no stubs here


def kernels() -> list[Extension]:
    """The compiled form of the inner loops, or nothing."""
    try:
        from mypyc.build import mypycify

        extensions = mypycify(["src/hubmere/kernels.py"], opt_level="3")
    except (ImportError, SystemExit):  # mypyc leaves with SystemExit when it does not like a source
        return []
    for extension in extensions:
        extension.optional = True
    return extensions


def twins() -> list[Extension]:
    """The compiled twins of the Spark decoder and of the record check, or nothing."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        return []
    extensions = [
        Extension(name, [f"src/{name.replace('.', '/')}.pyx"], optional=True)
        for name in ("hubmere.pipeline._decode", "hubmere.records._validate")
    ]
    try:
        return list(cythonize(extensions, build_dir="build", quiet=True))
    except CompileError:
        return []


is_pure = os.environ.get("HUBMERE_PURE") == "1"
setup(ext_modules=[] if is_pure else [*kernels(), *twins()])
