"""Generates the manual pages that describe code: command line, settings, limits, refusals, exit codes, source tree.

`python docs/generate.py` writes them; `pages()` returns them for the test that compares them with the files. Every text
in a table comes from the declaration that is enforced, or from the docstring of the module that it describes.
"""

import ast
import runpy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

import typer.main

from hubmere.broker.coordinator import refusals as broker_refusals
from hubmere.cli.arm.verbs import NODE_OPTIONS, RESULT_OPTIONS
from hubmere.cli.exit_codes import MEANINGS
from hubmere.cli.main import app
from hubmere.endpoints.amqp import errors as amqp_errors
from hubmere.endpoints.http import errors as http_errors
from hubmere.endpoints.http.metrics import METRICS, NAMESPACE_ONLY
from hubmere.endpoints.kafka import errors as kafka_errors
from hubmere.model import errors as model_errors
from hubmere.model.errors import Refusal
from hubmere.model.tier import STATED_ONLY, Limits, Profile, limits_for
from hubmere.settings import SETTINGS, Setting
from hubmere.settings.capture import TARGET_KEYS, TARGETS_PREFIX
from hubmere.settings.hubs import HUB_KEYS
from hubmere.settings.identity import APPLICATION_KEYS, ISSUER_KEYS, USER_KEYS
from hubmere.settings.load import CONFIG_VARIABLE, LIMITS_PREFIX
from hubmere.settings.partners import PARTNER_KEYS

REFERENCE = Path(__file__).parent / "reference"
TREE = Path(__file__).parent / "internals" / "tree.md"
SOURCE = Path(__file__).parents[1] / "src" / "hubmere"
NOTE = "<!-- Made by docs/generate.py; change the code that it describes and run `make docs`. -->\n"


def pages() -> dict[Path, str]:
    """Every generated page by its path."""
    reference = {REFERENCE / name: NOTE + "\n" + make().strip() + "\n" for name, make in _PAGES.items()}
    return {**reference, TREE: _tree()}


def write() -> None:
    """Write the pages that have changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


# --- source tree -----------------------------------------------------------------------------------------------------


def _tree() -> str:
    """Every package and module of `src/hubmere` with the first sentence of its docstring."""
    parts = [
        "# The source tree",
        "Every package and module of `src/hubmere`, with the first paragraph of its docstring. "
        "[Internals](index.md) has the layers and the path of an event through them.",
        "## `hubmere`",
        _modules(SOURCE),
    ]
    for package in sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE):
        name = package.relative_to(SOURCE).as_posix()
        if name.startswith("pipeline/project/"):
            parts += [
                "### `pipeline/project`",
                "Templates of `hubmere pipeline init`: files of the user's own project.",
            ]
        parts += [f"{'#' * (2 + name.count('/'))} `{name}`", _summary(package / "__init__.py"), _modules(package)]
    return NOTE + "\n" + "\n\n".join(part for part in parts if part) + "\n"


def _modules(package: Path) -> str:
    modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
    return (
        _table(["module", "what it does"], ((_code(path.name), _summary(path)) for path in modules)) if modules else ""
    )


def _summary(module: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


# --- settings --------------------------------------------------------------------------------------------------------


def _settings() -> str:
    parts = [
        "# Settings",
        "Flags override the environment, which overrides the file, which overrides the default. The file is "
        f"named by `--config` or `{CONFIG_VARIABLE}`. An empty variable counts as not set; lists are separated by "
        "commas in a variable, and their flag is given once for each value. Only the value that wins is checked; "
        "everything that is wrong is reported at once.",
    ]
    for panel, group in groupby(SETTINGS, key=lambda setting: setting.panel):
        parts += [f"## {panel}", *map(_setting, group)]
    parts += [
        "## Tables of the file",
        "### limits",
        "Each number of the [limits](limits.md) can be replaced by its name: in a table `[limits]` of the file, or by "
        f"a variable `{LIMITS_PREFIX}<NAME>`. The value `unlimited` lifts a limit.",
        "### hubs",
        "Each table `[[hubs]]` is a hub that the node creates at start if it does not exist.",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, (_, kind) in HUB_KEYS.items())),
        "### capture",
        "The settings whose names begin with `capture_` may be in a table `[capture]`, without that prefix.",
        "### capture.targets",
        "Each table `[capture.targets.NAME]` is a destination for captured files; hubs name it as their storage "
        "account, and hubs that name none use the one called `default`. Every key also comes from a file that the key "
        f"with `_file` names, or from a variable `{TARGETS_PREFIX}<NAME>_<KEY>`.",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, kind in TARGET_KEYS.items())),
        "### identity.issuers",
        "Each table `[identity.issuers.NAME]` is an OAuth issuer whose tokens the node accepts; see "
        "[how to sign in with OAuth identities](../how-to/identities.md).",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, kind in ISSUER_KEYS.items())),
        "### identity.applications",
        "Each table `[identity.applications.NAME]` is a test application of the node's own issuer (`local_identity`), "
        "with its roles on the node's namespace.",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, kind in APPLICATION_KEYS.items())),
        "### identity.users",
        "Each table `[identity.users.NAME]` is a test user of the node's own issuer, who signs in with a device code.",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, kind in USER_KEYS.items())),
        "### georecovery.partners",
        "Each table `[georecovery.partners.NAME]` is a namespace on another node with which namespaces of this one may "
        "be paired under an alias; see [how to survive the loss of a node](../how-to/georecovery.md).",
        _table(["key", "allowed"], ((_code(key), kind.allowed) for key, kind in PARTNER_KEYS.items())),
    ]
    return "\n\n".join(parts)


def _setting(setting: Setting) -> str:
    names = _table(
        ["flag", "variable", "file", "default"],
        [[_code(setting.flag), _code(setting.variable), _code(setting.key), _code(setting.shown_default) or "none"]],
    )
    return f"### {setting.key}\n\n{setting.sentence}\n\n{names}\n\nAllowed: {setting.kind.allowed}."


# --- limits ----------------------------------------------------------------------------------------------------------


def _limits() -> str:
    profiles = [profile for profile in Profile if profile is not Profile.OPEN]
    columns = {"default": limits_for(Profile.OPEN), **{profile.value: limits_for(profile) for profile in profiles}}
    rows = [
        [
            _code(row.name) + (" *" if row.name in STATED_ONLY else ""),
            *(_limit(row.name, getattr(limits, row.name)) for limits in columns.values()),
        ]
        for row in fields(Limits)
    ]
    return "\n\n".join(
        [
            "# Limits",
            "What `--as` selects. Without it a node has the message limits and the features of the standard tier, and "
            "no quotas on entities, retention or throughput: the first column. `--as developer` adds the quotas "
            "without throttling, `--as standard` is faithful to the service. "
            "Names ending in `per_unit` grow with the capacity of the namespace. Every number can be "
            "replaced by its name, see [settings](settings.md#limits).",
            _table(["limit", *columns], rows),
            "\\* shown, not enforced: the service charges for more, or the disk is the limit here.",
            "Consumer groups are counted as in the service's quotas, with `$Default`: the one group of the basic tier "
            "is that one. Partition counts of basic and standard namespaces begin at 2, as in the service's "
            "documentation; without `--as` one partition is enough.",
        ]
    )


_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def _limit(name: str, value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "any"
    if "bytes" in name and isinstance(value, int):
        return next((f"{value // size} {unit}" for unit, size in _UNITS if value % size == 0), str(value))
    return str(value)


# --- refusals --------------------------------------------------------------------------------------------------------


# Where the refusals are declared that every protocol can meet.
_SHARED = (model_errors.__name__, broker_refusals.__name__)

# How each protocol reports a refusal: a column, and the row of its table for a class.
_PROTOCOLS: dict[str, tuple[Mapping[type[Refusal], Any], Callable[[Any], str]]] = {
    "AMQP": (amqp_errors.TABLE, lambda row: _code(row.condition.value)),
    "HTTP": (http_errors.ROWS, lambda row: str(row.status)),
    "Kafka": (kafka_errors.TABLE, lambda code: f"{code.name} ({code.value})"),
}


def _errors() -> str:
    return "\n\n".join(
        [
            "# Refusals",
            "Every refusal of Hubmere, and how each protocol reports it. A refused call changes nothing. The "
            "name in the first column is what logs show.",
            _table(["refusal", "meaning", *_PROTOCOLS], _refusals(Refusal)),
        ]
    )


def _refusals(parent: type[Refusal]) -> Iterator[list[str]]:
    for refusal in parent.__subclasses__():
        if not refusal.__module__.startswith(_SHARED):
            continue  # an endpoint's own, only used by that protocol
        meaning = (refusal.__doc__ or "").strip().splitlines()[0]
        yield [_code(refusal.__name__), meaning, *(_told(refusal, *how) for how in _PROTOCOLS.values())]
        yield from _refusals(refusal)


def _told(refusal: type[Refusal], table: Mapping[type[Refusal], Any], show: Callable[[Any], str]) -> str:
    nearest = next((table[kind] for kind in refusal.__mro__ if kind in table), None)
    return "" if nearest is None else show(nearest)


# --- the command -----------------------------------------------------------------------------------------------------


# Flags of every command that uses a node: listed once, at the beginning of the page.
_NODE_FLAGS = frozenset(parameter.name for parameter in NODE_OPTIONS)
_RESULT_FLAGS = frozenset(parameter.name for parameter in RESULT_OPTIONS)


def _cli() -> str:
    group: Any = typer.main.get_command(app)
    of_a_node = group.get_command(None, "eventhub").commands["show"]
    parts = [
        "# Command line",
        "Also as `python -m hubmere`. How each command ends: [exit codes](exit-codes.md). `hubmere "
        "--install-completion` teaches the shell to complete commands and flags.",
        "## Which node",
        "Commands that use a node find the one on this machine by its data folder, and any other by its address. "
        "`--connection-string` stands over `--url`, that over `--data`, and each flag over its variable.",
        _table(["flag", "meaning"], _flags_named(of_a_node, _NODE_FLAGS)),
        "## How results are shown",
        "Commands on resources, which are those of `az eventhubs` with the same options, also take:",
        _table(["flag", "meaning"], _flags_named(of_a_node, _RESULT_FLAGS)),
    ]
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if not command.hidden:
            parts += _command(f"hubmere {name}", command, "##")
    return "\n\n".join(parts)


def _command(title: str, command: Any, level: str) -> Iterator[str]:
    yield f"{level} {title}"
    yield from _paragraphs(command.help)
    inner = getattr(command, "commands", None)
    if inner is None:
        yield _table(["flag", "meaning"], _flags(command))
    for name, below in (inner or {}).items():
        yield from _command(f"{title} {name}", below, "###")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield " ".join(paragraph.split())


def _flags(command: Any) -> Iterator[list[str]]:
    own = {parameter.name for parameter in command.params}
    is_of_a_node = own >= _NODE_FLAGS
    shared = _NODE_FLAGS | _RESULT_FLAGS if own >= _RESULT_FLAGS else _NODE_FLAGS
    yield from _flags_named(command, own - shared if is_of_a_node else own)
    if is_of_a_node:
        yield ["", "[Which node](#which-node)."]
    yield ["`--help`, `-h`", "Show the flags and exit."]


def _flags_named(command: Any, names: Collection[str]) -> Iterator[list[str]]:
    for parameter in command.params:
        if parameter.name in names and not parameter.hidden:
            yield [", ".join(map(_code, _spellings(parameter))), parameter.help or ""]


def _spellings(parameter: Any) -> Iterator[str]:
    if parameter.param_type_name == "argument":
        yield parameter.metavar
        return
    value = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    for name in [*parameter.opts, *parameter.secondary_opts]:
        yield name + value


def _exit_codes() -> str:
    rows = ([str(int(code)), meaning] for code, meaning in MEANINGS.items())
    return "\n\n".join(
        [
            "# Exit codes",
            "The same for every command, with one exception: 3 has two meanings.",
            _table(["code", "meaning"], rows),
        ]
    )


# --- metrics ---------------------------------------------------------------------------------------------------------


def _metrics() -> str:
    rows = (
        [_code(metric.name), metric.kind, ", ".join(map(_code, metric.labels)) or "none", metric.help]
        for metric in METRICS
    )
    return "\n\n".join(
        [
            "# Metrics",
            "The metrics of `GET /metrics`, in the Prometheus text format, or in OpenMetrics if the Accept header asks "
            "for it. Names are those of the service in snake case with the prefix `hubmere_`; counters end in "
            "`_total`. Metrics of the process have the names of Prometheus client libraries. "
            "Counters count since the node started. Metrics of a namespace without a hub have "
            f"`{NAMESPACE_ONLY}` as its `eventhub`. Metrics of capture exist while a hub is captured. How to "
            "collect them: [observe a node](../how-to/observe.md).",
            _table(["metric", "kind", "labels", "meaning"], rows),
        ]
    )


_PAGES: dict[str, Callable[[], str]] = {
    "cli.md": _cli,
    "settings.md": _settings,
    "limits.md": _limits,
    "errors.md": _errors,
    "exit-codes.md": _exit_codes,
    "metrics.md": _metrics,
}

if __name__ == "__main__":
    write()
    runpy.run_path(str(Path(__file__).parents[1] / "tools" / "changelog.py"), run_name="__main__")
