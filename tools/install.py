"""Makes `.venv` for a clone: the package, its compiled kernels, and the extras that a target of the Makefile needs.

`python tools/install.py [extra ...]` runs four steps, and each only when something that decides it has changed:

1. make `.venv`;
2. install the packages that the base and the given extras need, with the versions of `constraints.txt`; those that are
   published as source code only are built at the same time, each by a process of its own;
3. at the same time, compile the kernels in place, and for Spark its decoder. The compilers (mypyc, Cython) go to
   `.cache/build-tools` and not to `.venv`: a node does not need them. They are fetched during step 1 already;
4. register the package in `.venv` (an editable install without dependencies and without a second compilation).

A line on standard error says what is being installed and how far it is. Needs Python alone.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD_TOOLS = ROOT / ".cache" / "build-tools"
OLDEST_PYTHON = (3, 11)
_STAMPS = VENV / ".stamps"
_CONSTRAINTS = ROOT / "constraints.txt"
# The parts that setup.py builds (HUBMERE_BUILD): their sources and their results.
_SOURCES = {
    "node": ("src/hubmere/records/kernels/*.py", "src/hubmere/records/*.pyx", "src/hubmere/capture/cold/*.pyx"),
    "spark": ("src/hubmere/pipeline/*.pyx",),
}
_LIBRARIES = {
    "node": ("src/hubmere/records/**/*.so", "src/hubmere/capture/cold/*.so"),
    "spark": ("src/hubmere/pipeline/*.so",),
}
_SHOWN = {"node": "compiled kernels", "spark": "compiled decoder for Spark"}
_SPARK_EXTRAS = {"spark", "capture", "pipelines"}
# Packages without a wheel on the package index, and options to build one. Spark's jars are compressed already.
_SOURCE_ONLY = {"pyspark": ("--config-settings=--build-option=--compression=stored",), "python-qpid-proton": ()}
# How often the installed packages are counted.
_COUNT_SECONDS = 0.5


class InstallFailed(Exception):
    """A command failed; has its output."""


# --- what is wanted -------------------------------------------------------------------------------------------------


def read_project(root: Path = ROOT) -> Mapping[str, Any]:
    """The declarations of `pyproject.toml`."""
    import tomllib  # not before main() has checked the version of Python

    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(project: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    """The requirements for pip: the dependencies of the base and of the extras; an extra may name another one."""
    declared: Mapping[str, list[str]] = project["project"]["optional-dependencies"]
    found = list(project["project"]["dependencies"])
    waiting = list(extras)
    seen: set[str] = set()
    while waiting:
        extra = waiting.pop(0)
        if extra not in declared:
            raise InstallFailed(f"unknown extra '{extra}'; expected one of {', '.join(sorted(declared))}")
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in declared[extra]:
            own = re.fullmatch(r"hubmere\[([\w,-]+)\]", requirement)
            if own is not None:
                waiting += own[1].split(",")
            elif requirement not in found:
                found.append(requirement)
    return found


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([sys.version_info[:3], *map(str, parts)]).encode()).hexdigest()


def _build_digest(part: str, tools: str) -> str:
    """Of everything that a compiled part is made from."""
    sources = sorted({path for pattern in _SOURCES[part] for path in ROOT.glob(pattern)})
    return _digest(tools, *(path.read_text(encoding="utf-8") for path in (ROOT / "setup.py", *sources)))


def _pins(constraints: str, names: Iterable[str]) -> str:
    """The lines of the constraints about these packages: another pin does not mean another build."""
    wanted = {name.lower() for name in names}
    return "\n".join(line for line in constraints.splitlines() if line.partition("==")[0].lower() in wanted)


def _is_current(step: str, digest: str) -> bool:
    stamp = _STAMPS / step
    return stamp.exists() and stamp.read_text(encoding="utf-8") == digest


def _mark(step: str, digest: str) -> None:
    _STAMPS.mkdir(parents=True, exist_ok=True)
    (_STAMPS / step).write_text(digest, encoding="utf-8")


# --- what is shown --------------------------------------------------------------------------------------------------


class Progress:
    """One line with the progress of each part: rewritten on a terminal, else written once for each stage.

    Threads may call.
    """

    def __init__(self, out: "TextIO", clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._start = clock()
        self._is_terminal = out.isatty()
        self._lock = threading.Lock()
        self._parts: dict[str, str] = {}
        self._stages: dict[str, str] = {}

    def show(self, part: str, stage: str, detail: str = "") -> None:
        """A part has reached a stage; the detail is for terminals, where a line can change often."""
        with self._lock:
            self._parts[part] = f"{part}: {stage}{detail and ' ' + detail}"
            if self._is_terminal:
                width = shutil.get_terminal_size().columns - 1
                self._out.write("\r\x1b[K" + self._line()[:width])
            elif self._stages.get(part) != stage:
                self._out.write(self._line() + "\n")
            self._stages[part] = stage
            self._out.flush()

    def end(self, part: str) -> None:
        """A part needs no mention any more."""
        with self._lock:
            self._parts.pop(part, None)

    def finish(self, text: str) -> None:
        """Everything is done."""
        with self._lock:
            before = "\r\x1b[K" if self._is_terminal else ""
            self._out.write(f"{before}{text} in {self._seconds()} s\n")
            self._out.flush()

    def _line(self) -> str:
        return f"[{self._seconds():3d} s] " + "; ".join(self._parts.values())

    def _seconds(self) -> int:
        return round(self._clock() - self._start)


class PipReader:
    """Parses the output of pip, and reports its progress."""

    def __init__(self, progress: Progress, part: str) -> None:
        self._progress = progress
        self._part = part
        self._found: set[str] = set()
        self.installing: tuple[str, ...] = ()

    def read(self, line: str) -> None:
        """Take one line."""
        collecting = re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line)
        downloading = re.match(r"\s+(?:Downloading|Using cached) (\S+?)-\d\S*(?: \((.+)\))?", line)
        installing = re.match(r"Installing collected packages: (.+)", line)
        if collecting is not None:
            self._found.add(collecting[1].lower())
            self._progress.show(self._part, "resolving versions", f"({len(self._found)} found, {collecting[1]})")
        elif downloading is not None:
            size = f", {downloading[2]}" if downloading[2] else ""
            detail = f"({len(self._found)} found, downloading {downloading[1]}{size})"
            self._progress.show(self._part, "resolving versions", detail)
        elif installing is not None:
            self.installing = tuple(_normal(name) for name in installing[1].split(", "))
            self.count(())

    def count(self, present: Iterable[str]) -> None:
        """Report how many of the packages are installed."""
        if self.installing:
            done = len(set(self.installing) & {_normal(name) for name in present})
            stage = f"installing {len(self.installing)} packages"
            self._progress.show(self._part, stage, f"({done} of {len(self.installing)} done)")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _installed_names() -> Iterator[str]:
    for path in VENV.glob("lib/*/site-packages/*.dist-info"):
        yield path.name.partition("-")[0]


# --- the steps ------------------------------------------------------------------------------------------------------


def _run(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run a command in the root of the clone; InstallFailed has its output."""
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            on_line(line)
    if process.returncode != 0:
        raise InstallFailed(f"failed: {' '.join(command)}\n{''.join(lines[-60:])}")


def _pip(*arguments: str, command: str = "install", python: str = str(PYTHON)) -> list[str]:
    constraints = ["-c", str(_CONSTRAINTS)] if _CONSTRAINTS.exists() else []
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return [python, "-m", "pip", command, *quiet, *constraints, *arguments]


def make_environment(progress: Progress) -> None:
    """Step 1."""
    if PYTHON.exists():
        return
    progress.show("environment", "making .venv")
    try:
        _run([sys.executable, "-m", "venv", str(VENV)])
    except InstallFailed as failure:
        shutil.rmtree(VENV, ignore_errors=True)
        hint = "On Debian and Ubuntu, `apt install python3-venv` adds what is missing."
        raise InstallFailed(f"{failure}\n{hint}") from None
    progress.end("environment")


def install_packages(progress: Progress, project: Mapping[str, Any], extras: list[str], constraints: str) -> int:
    """Step 2: the number of packages that were installed."""
    steps = {extra: _digest(requirements(project, [extra]), constraints) for extra in extras}
    wanted = [extra for extra, digest in steps.items() if not _is_current(f"extra-{extra}", digest)]
    base = _digest(project["project"]["dependencies"], constraints)
    if not wanted and _is_current("base", base):
        return 0
    part = f"packages for {', '.join(wanted)}" if wanted else "packages"
    needed = requirements(project, wanted)
    present = {_normal(name) for name in _installed_names()}
    to_build = [name for name in _SOURCE_ONLY if name not in present and any(_names(one, name) for one in needed)]
    late = [one for one in needed if any(_names(one, name) for name in to_build)]
    with tempfile.TemporaryDirectory() as wheels, ThreadPoolExecutor() as pool:
        built = [pool.submit(_build_wheel, progress, name, wheels) for name in to_build]
        count = _install(progress, part, [one for one in needed if one not in late])
        for each in built:
            each.result()
        if late:
            count += _install(progress, part, ["--find-links", wheels, *late])
    progress.show(part, "done")
    _mark("base", base)
    for extra in wanted:
        _mark(f"extra-{extra}", steps[extra])
    return count


def _install(progress: Progress, part: str, arguments: list[str]) -> int:
    """Run pip; the number of packages that it installed."""
    reader = PipReader(progress, part)
    stop = threading.Event()

    def count() -> None:
        while not stop.wait(_COUNT_SECONDS):
            reader.count(_installed_names())

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        # Modules are compiled when they are first imported, and most never are.
        _run(_pip("--no-compile", *arguments), on_line=reader.read)
    finally:
        stop.set()
        counter.join()
    return len(reader.installing)


def _build_wheel(progress: Progress, name: str, folder: str) -> None:
    progress.show(name, "building its wheel")
    _run(_pip("--no-deps", "--wheel-dir", folder, *_SOURCE_ONLY[name], name, command="wheel"))
    progress.end(name)


def _names(requirement: str, name: str) -> bool:
    """Whether a requirement is for this package."""
    match = re.match(r"[\w.-]+", requirement)
    return match is not None and _normal(match[0]) == name


def fetch_compilers(progress: Progress, project: Mapping[str, Any], constraints: str, python: str = str(PYTHON)) -> str:
    """The first half of step 3, by the pip of an interpreter; returns a digest of what it fetches."""
    pins = _pins(constraints, ("cython", "mypy", "mypy_extensions", "librt", "setuptools"))
    tools = _digest(project["build-system"], pins)
    if not _is_current("build-tools", tools) or not BUILD_TOOLS.exists():
        progress.show("compilers", "fetching mypyc and Cython")
        shutil.rmtree(BUILD_TOOLS, ignore_errors=True)
        BUILD_TOOLS.mkdir(parents=True)
        _run(_pip("--no-compile", "--target", str(BUILD_TOOLS), *project["build-system"]["requires"], python=python))
        _mark("build-tools", tools)
        progress.end("compilers")
    return tools


def build(progress: Progress, project: Mapping[str, Any], parts: Iterable[str], constraints: str) -> None:
    """Step 3."""
    tools = fetch_compilers(progress, project, constraints)
    for part in parts:
        digest = _build_digest(part, tools)
        if _is_current(f"build-{part}", digest):
            continue
        progress.show(_SHOWN[part], "compiling")
        # A running node keeps the removed file; one that is overwritten would end it.
        for library in (found for pattern in _LIBRARIES[part] for found in ROOT.glob(pattern)):
            library.unlink()
        command = [str(PYTHON), "setup.py", "--quiet", "build_ext", "--inplace"]
        _run(command, {"PYTHONPATH": str(BUILD_TOOLS), "HUBMERE_BUILD": part})
        _mark(f"build-{part}", digest)
        progress.show(_SHOWN[part], "done")


def register_package(progress: Progress) -> None:
    """Step 4."""
    digest = _digest(*((ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "setup.py")))
    if _is_current("package", digest):
        return
    progress.show("hubmere", "registering the package")
    environment = {"PYTHONPATH": str(BUILD_TOOLS), "HUBMERE_PURE": "1"}
    _run(_pip("--no-deps", "--no-build-isolation", "--editable", "."), environment)
    _mark("package", digest)


def install(extras: list[str], progress: Progress) -> int:
    """All steps; the number of packages that were installed."""
    project = read_project()
    constraints = _CONSTRAINTS.read_text(encoding="utf-8") if _CONSTRAINTS.exists() else ""
    requirements(project, extras)  # refuses an unknown extra before anything is done
    parts = ["node", "spark"] if _SPARK_EXTRAS.intersection(extras) else ["node"]
    with ThreadPoolExecutor() as pool:
        if not PYTHON.exists() and importlib.util.find_spec("pip") is not None:
            # The pip of this interpreter need not wait for `.venv`. If it fails, that of `.venv` says why.
            early = pool.submit(fetch_compilers, progress, project, constraints, sys.executable)
            make_environment(progress)
            early.exception()
        else:
            make_environment(progress)
        building = pool.submit(build, progress, project, parts, constraints)
        count = install_packages(progress, project, extras, constraints)
        building.result()
    register_package(progress)
    return count


def main(extras: list[str]) -> int:
    if sys.version_info < OLDEST_PYTHON:
        expected = ".".join(map(str, OLDEST_PYTHON))
        sys.stderr.write(f"Hubmere needs Python {expected} or newer; this is {sys.version.split()[0]}. "
                         f"`make PYTHON=python{expected}` uses another one.\n")  # fmt: skip
        return 1
    progress = Progress(sys.stderr)
    try:
        count = install(extras, progress)
    except InstallFailed as failure:
        sys.stderr.write(f"\n{failure}\n")
        return 1
    if count:
        progress.finish(f"installed {count} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
