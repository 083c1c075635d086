"""The versions of foreign clients, read from the files in which they are pinned."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from conformance.clients import CARGO_TOML, GO_MOD, PACKAGE_JSON, POM, Jars, kafka_version

_ROOT = Path(__file__).parents[2]


def of_pip(package: str, path: Path = _ROOT / "constraints.txt") -> Callable[[], str]:
    return lambda: _found(rf"(?mi)^{re.escape(package)}==(\S+)", path)


def of_npm(package: str, path: Path = PACKAGE_JSON) -> Callable[[], str]:
    return lambda: str(json.loads(path.read_bytes())["dependencies"][package])


def of_maven(artifact: str, path: Path = POM) -> Callable[[], str]:
    return lambda: _found(rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>([^<]+)</version>", path)


def of_go(module: str) -> Callable[[], str]:
    return lambda: _found(rf"(?m)^\t{re.escape(module)} v(\S+)", GO_MOD)


def of_cargo(crate: str) -> Callable[[], str]:
    return lambda: _found(rf'(?m)^{re.escape(crate)} = .*"=([^"]+)"', CARGO_TOML)


def of_kafka(jars: Jars) -> Callable[[], str]:
    return lambda: kafka_version(jars)


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    assert match is not None, f"{path.name} pins no version for {pattern}"
    return match.group(1)
