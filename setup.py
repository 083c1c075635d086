"""Compiles the inner loops where a compiler is available; everything else is in pyproject.toml.

mypyc compiles the modules of `hubmere.records.kernels` into one library, so that calls between them stay direct. Cython
compiles seven twins: of the Spark source's decoder and the sink's encoder (`hubmere.pipeline._decode` and `_encode`),
of the check of produced records (`hubmere.records._validate`), of the joining of batches (`hubmere.records._join`), of
the walk of recovery (`hubmere.records._walk`), of the splitting of batch messages (`hubmere.records._split`) and of the
reader of captured files (`hubmere.capture.cold._rebuild`). Without the compilers the package installs and runs
interpreted. HUBMERE_PURE=1 leaves the compiled forms out on purpose; HUBMERE_BUILD=node leaves out those for Spark
alone, and HUBMERE_BUILD=spark everything else.
"""

import os
from pathlib import Path

from setuptools import Extension, setup  # type: ignore[import-untyped]  # it ships no types and needs no stubs here
from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]
from setuptools.errors import CompileError  # type: ignore[import-untyped]

KERNELS = sorted(str(path) for path in Path("src/hubmere/records/kernels").glob("[!_]*.py"))
LIBRARY = "hubmere.records.kernels"
TWINS = {
    "node": [
        "hubmere.records._validate",
        "hubmere.records._walk",
        "hubmere.records._split",
        "hubmere.records._join",
        "hubmere.capture.cold._rebuild",
    ],
    "spark": ["hubmere.pipeline._decode", "hubmere.pipeline._encode"],
}


def _is_kernel(extension: Extension) -> bool:
    """Whether this is a module of the kernels, which loads their library."""
    return bool(extension.name.startswith("hubmere.records.kernels."))


class BuildExtensions(build_ext):  # type: ignore[misc]
    """Builds the modules of the kernels only with the library that they load, so that an import never fails.

    The library and the twins are compiled at the same time, then the small modules that load the library.
    """

    def build_extensions(self) -> None:
        loading = [extension for extension in self.extensions if _is_kernel(extension)]
        others = [extension for extension in self.extensions if not _is_kernel(extension)]
        for self.extensions, self.parallel in ((others, True), (loading, None)):
            super().build_extensions()
        self.extensions = [*others, *loading]

    def build_extension(self, extension: Extension) -> None:
        if _is_kernel(extension) and not Path(self.get_ext_fullpath(f"{LIBRARY}__mypyc")).exists():
            raise CompileError(f"{extension.name} needs the library of the kernels, which was not built")
        super().build_extension(extension)


def kernels() -> list[Extension]:
    """The compiled form of the kernels, or nothing."""
    try:
        from mypyc.build import mypycify

        extensions = mypycify(KERNELS, opt_level="3", debug_level="0", group_name=LIBRARY)
    except (ImportError, SystemExit):  # mypyc exits with SystemExit when it cannot compile a source
        return []
    for extension in extensions:
        extension.optional = True
    return extensions


def twins(names: list[str]) -> list[Extension]:
    """The compiled twins of these modules, or nothing."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError as CythonError
    except ImportError:
        return []
    sources = {name: f"src/{name.replace('.', '/')}.pyx" for name in names}
    # Symbols for debuggers take a fifth of the time to compile; Python's own flags ask for them.
    flags = [] if os.name == "nt" else ["-g0"]
    declared = [Extension(name, [source], extra_compile_args=flags) for name, source in sources.items()]
    try:
        extensions = list(cythonize(declared, build_dir="build", quiet=True))
    except CythonError:
        return []
    for extension in extensions:
        # Cython does not copy this.
        extension.optional = True
    return extensions


def extensions() -> list[Extension]:
    """What the environment asks for; everything, unless it says otherwise."""
    if os.environ.get("HUBMERE_PURE") == "1":
        return []
    wanted = os.environ.get("HUBMERE_BUILD", "node spark").split()
    return [*(kernels() if "node" in wanted else []), *twins([name for part in wanted for name in TWINS[part]])]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExtensions})
