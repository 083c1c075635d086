"""`hubmere pipeline`: creates and runs a project that takes events from hub to tables and back to a hub, with Spark.

`init` copies a sample project that runs unchanged: Structured Streaming with tests, or Spark Declarative Pipelines.
`run` sets the address of the node (`EVENTHUBS_CONNECTION_STRING` and related variables), starts the project's `job.py`
or `spark-pipelines`, and passes all further arguments on. Missing requirements are reported in one line before a JVM
is started. Imports neither Spark nor the node.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hubmere.capture.java import CannotRun, find_java
from hubmere.cli.arm.verbs import a_group
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.node import ready_node
from hubmere.model.extras import install_command
from hubmere.settings import load

# The files by which a project is recognized: Structured Streaming, and Spark Declarative Pipelines.
SETTINGS = "pipeline.toml"
SPEC = "spark-pipeline.yml"
STREAMING, DECLARATIVE = "streaming", "declarative"
STORAGE = "storage"
# What a new project has in place of these texts of the sample: its own storage, its folder and this Python.
SAMPLE_STORAGE = "file:/tmp/telemetry-pipeline"
SAMPLE_FOLDER, SAMPLE_PYTHON = "PROJECT", "PYTHON"
_SCHEDULE = "schedule/"

# The variables from which the Spark source takes the address when a query has none (`pipeline/options.py`).
_CONNECTION, _ENDPOINT, _CA_FILE = "EVENTHUBS_CONNECTION_STRING", "EVENTHUBS_ENDPOINT", "EVENTHUBS_CA_FILE"
# Packages that Spark Connect, and so `spark-pipelines`, needs: the names to import. And those of the other project.
_PACKAGES = ("grpc", "grpc_status", "pandas", "pyarrow", "yaml", "zstandard")
# The Python of Spark's processes, unless the user has chosen one.
_PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
_STREAMING_PACKAGES = ("deltalake", "pyarrow")
# Later runs find the tables of earlier ones only in a persistent catalog: Derby, which is in Spark's own jars. It is a
# static setting, so it cannot be in the project's file.
_CATALOG = ("--conf", "spark.sql.catalogImplementation=hive")

app = a_group("Pipelines: projects for Spark, from a hub to tables and to another hub.")


# --- init ------------------------------------------------------------------------------------------------------------


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder of the project; it is created if it does not exist.", show_default=False
        ),
    ] = Path("telemetry"),
    declarative: Annotated[
        bool, typer.Option("--declarative", help="A project of Spark Declarative Pipelines instead.")
    ] = False,
) -> None:
    """Create a project: it writes the events of a hub to tables, and results minute by minute to another hub."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandFailed(Exit.FAILED, f"{folder} already exists and is not empty")
    for place, text in project_files(folder, DECLARATIVE if declarative else STREAMING):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        typer.echo(path)
    typer.echo("\nIt reads the hub 'telemetry' and writes 'telemetry-minutes'. Next:")
    typer.echo("  hubmere eventhub create --name telemetry && hubmere eventhub create --name telemetry-minutes")
    typer.echo(f"  hubmere pipeline run --project {folder}")


def project_files(folder: Path, kind: str) -> Iterator[tuple[str, str]]:
    """The files of a new project in a folder, by their paths; also creates the storage of a declarative one."""
    if kind == DECLARATIVE:
        (folder.resolve() / STORAGE).mkdir(parents=True)
    for place, text in _texts(files("hubmere.pipeline") / "project" / kind, ""):
        if place.startswith(_SCHEDULE):
            text = _schedule(text, str(folder.resolve()), is_cron=place.endswith(".cron"))
        yield place, text.replace(SAMPLE_STORAGE, (folder.resolve() / STORAGE).as_uri())


def _schedule(text: str, folder: str, *, is_cron: bool) -> str:
    """A schedule with the paths of a project and of this Python, quoted for cron's shell or for systemd."""
    if is_cron:
        paths = [shlex.quote(path).replace("%", "\\%") for path in (folder, sys.executable)]
    else:
        # systemd takes a folder as it is, and divides a command at spaces.
        paths = [folder.replace("%", "%%"), sys.executable.replace("%", "%%")]
        paths[1] = f'"{paths[1]}"' if " " in paths[1] else paths[1]
    found = dict(zip((SAMPLE_FOLDER, SAMPLE_PYTHON), paths, strict=True))
    return re.sub("|".join(found), lambda name: found[name[0]], text)


def _texts(folder: Traversable, place: str) -> Iterator[tuple[str, str]]:
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        if each.is_dir():
            if each.name != "__pycache__":
                yield from _texts(each, f"{place}{each.name}/")
        else:
            yield place + each.name, each.read_text(encoding="utf-8")


# --- run -------------------------------------------------------------------------------------------------------------


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    project: Annotated[
        Path,
        typer.Option(
            "--project", metavar="DIR", help="Folder of the project. Default: the current folder.", show_default=False
        ),
    ] = Path(),
    data: Annotated[
        Path | None, typer.Option("--data", metavar="PATH", help="Data folder of the node on this machine.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only check the project; read and write nothing.")] = False,
) -> None:
    """Update every table of a project, then end.

    Further arguments go to the project's job.py (--continuous, --reset STEP) or to `spark-pipelines`
    (--full-refresh-all, --master, --conf). The node is the one on this machine, or the one that
    EVENTHUBS_CONNECTION_STRING names.
    """
    folder = project.resolve()
    if (folder / SETTINGS).is_file():
        if dry:
            raise CommandFailed(Exit.USAGE, "--dry-run is for declarative projects", "run the project's tests instead")
        command, environment = streaming_command(context.args), streaming_environment(data, os.environ)
    elif (folder / SPEC).is_file():
        # Run in the project's folder: Spark stores its catalog and tables in the current folder.
        words = ["dry-run" if dry else "run", "--spec", str(folder / SPEC), *_CATALOG, *context.args]
        command, environment = [_program(), *words], {**_PYTHON, **streaming_environment(data, os.environ)}
    else:
        raise CommandFailed(
            Exit.USAGE,
            f"there is no {SETTINGS} and no {SPEC} in {project}",
            "make a project with `hubmere pipeline init`",
        )
    ended = subprocess.run(command, cwd=folder, env=environment, check=False)  # noqa: S603  found by us
    if ended.returncode:
        raise CommandFailed(Exit.FAILED, f"the pipeline failed: {Path(command[0]).name} ended with {ended.returncode}")


def streaming_command(arguments: Sequence[str]) -> list[str]:
    """The command that runs `job.py`; CommandFailed when something that it needs is not installed."""
    _spark_home()
    _check_packages(_STREAMING_PACKAGES, "the project needs")
    return [sys.executable, "job.py", *arguments]


def _spark_home() -> Path:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise CommandFailed(Exit.FAILED, "Spark is not installed", f"install it with: {install_command('pipelines')}")
    return Path(spark.origin).parent


def _program() -> str:
    """The path of `spark-pipelines`; CommandFailed when it or one of its dependencies is not installed."""
    program = _spark_home() / "bin" / "spark-pipelines"
    if not program.is_file():
        raise CommandFailed(Exit.FAILED, f"the Spark in {program.parents[1]} has no pipelines; 4.1 or newer is needed")
    _check_packages(_PACKAGES, "Spark's pipelines need")
    return str(program)


def _check_packages(packages: Sequence[str], who: str) -> None:
    if missing := _missing(packages):
        raise CommandFailed(Exit.FAILED, f"{who} {', '.join(missing)}", f"install with: {install_command('pipelines')}")


def _missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is None]


def _java_home(environ: Mapping[str, str]) -> str:
    """The home of the Java for Spark; CommandFailed when there is none, or it is too old."""
    try:
        java = find_java(None, environ)
    except CannotRun as refusal:
        raise CommandFailed(Exit.FAILED, str(refusal)) from None
    return str(Path(java).resolve().parents[1])


def streaming_environment(data: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of a project: the address of the node, and Java; CommandFailed when one of these is missing.

    `job.py` chooses the Python of Spark's processes itself.
    """
    return {**_environment(data, environ), "JAVA_HOME": _java_home(environ)}


def check_requirements(environ: Mapping[str, str]) -> None:
    """Raise CommandFailed when something that a streaming project needs is not installed."""
    streaming_command(())
    _java_home(environ)


def _environment(data: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment with the address of the node, unless the user has set it."""
    if data is None and environ.get(_CONNECTION):
        return dict(environ)
    return {**environ} | _place_of_node(load({"data": data}, environ).data)


def _place_of_node(data: Path) -> dict[str, str]:
    """The Kafka endpoint of the local node; without TLS if the node serves that, since it is on this machine."""
    ready = ready_node(data)
    if ready["kafka"]:
        return {_CONNECTION: ready["emulator_connection_string"], _ENDPOINT: ready["kafka"]}
    if ready["kafkas"]:
        place = {_CONNECTION: ready["connection_string"], _ENDPOINT: ready["kafkas"]}
        return place | ({_CA_FILE: ready["ca_file"]} if ready["ca_file"] else {})
    raise CommandFailed(Exit.FAILED, f"the node on {data} serves no Kafka endpoint, which Spark reads from")
