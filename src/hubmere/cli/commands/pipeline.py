"""`hubmere pipeline`: creates and runs a project of Spark Declarative Pipelines that uses the hubs of a node.

A thin wrapper of `spark-pipelines`. `init` copies a sample project that runs unchanged. `run` sets the address of the
node (`EVENTHUBS_CONNECTION_STRING` and related variables) and passes all further arguments on. Missing requirements are
reported in one line before a JVM is started. Imports neither Spark nor the node.
"""

import os
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
from hubmere.cli.commands.resources.verbs import a_group
from hubmere.cli.commands.target import ready_node
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.model.extras import install_command
from hubmere.settings import load

SPEC = "spark-pipeline.yml"
STORAGE = "storage"
# The storage folder of the sample project; a new project gets its own.
SAMPLE_STORAGE = "file:/tmp/telemetry-pipeline"

# The variables from which the Spark source takes the address when a query has none (`pipeline/options.py`).
_CONNECTION, _ENDPOINT, _CA_FILE = "EVENTHUBS_CONNECTION_STRING", "EVENTHUBS_ENDPOINT", "EVENTHUBS_CA_FILE"
# Packages that Spark Connect, and so `spark-pipelines`, needs: the names to import.
_PACKAGES = ("grpc", "grpc_status", "pandas", "pyarrow", "yaml", "zstandard")
# Later runs find the tables of earlier ones only in a persistent catalog: Derby, which is in Spark's own jars. It is a
# static setting, so it cannot be in the project's file.
_CATALOG = ("--conf", "spark.sql.catalogImplementation=hive")

app = a_group("Pipelines: Spark Declarative Pipelines from hub to hub.")


# --- init ------------------------------------------------------------------------------------------------------------


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder of the project; it is created if it does not exist.", show_default=False
        ),
    ] = Path("telemetry"),
) -> None:
    """Create a project: it writes the events of a hub to tables, minute by minute, and results back to a hub."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandFailed(Exit.FAILED, f"{folder} already exists and is not empty")
    storage = folder.resolve() / STORAGE
    storage.mkdir(parents=True)
    for place, text in sample_files():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(SAMPLE_STORAGE, storage.as_uri()), encoding="utf-8")
        typer.echo(path)
    typer.echo("\nIt reads the hub 'telemetry' and writes 'telemetry-minutes'. Next:")
    typer.echo("  hubmere eventhub create --name telemetry && hubmere eventhub create --name telemetry-minutes")
    typer.echo(f"  hubmere pipeline run --project {folder}")


def sample_files() -> Iterator[tuple[str, str]]:
    """The files of the sample project, by their paths."""
    yield from _texts(files("hubmere.pipeline") / "project", "")


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

    Further arguments go to `spark-pipelines`, such as --full-refresh-all, --master and --conf. The node is the one on
    this machine, or the one that EVENTHUBS_CONNECTION_STRING names.
    """
    spec = project.resolve() / SPEC
    if not spec.is_file():
        raise CommandFailed(
            Exit.USAGE, f"there is no {SPEC} in {project}", "make a project with `hubmere pipeline init`"
        )
    program = _program()
    environment = {**_environment(data, os.environ), "JAVA_HOME": _java_home(os.environ)}
    words = ["dry-run" if dry else "run", "--spec", str(spec), *_CATALOG, *context.args]
    # Run in the project's folder: Spark stores its catalog and tables in the current folder.
    ended = subprocess.run([program, *words], cwd=spec.parent, env=environment, check=False)  # noqa: S603  found by us
    if ended.returncode:
        raise CommandFailed(Exit.FAILED, f"the pipeline failed: spark-pipelines ended with code {ended.returncode}")


def _program() -> str:
    """The path of `spark-pipelines`; CommandFailed when it or one of its dependencies is not installed."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise CommandFailed(Exit.FAILED, "Spark is not installed", f"install it with: {install_command('pipelines')}")
    program = Path(spark.origin).parent / "bin" / "spark-pipelines"
    if not program.is_file():
        raise CommandFailed(Exit.FAILED, f"the Spark in {program.parents[1]} has no pipelines; 4.1 or newer is needed")
    if missing := _missing(_PACKAGES):
        raise CommandFailed(
            Exit.FAILED, f"Spark's pipelines need {', '.join(missing)}", f"install with: {install_command('pipelines')}"
        )
    return str(program)


def _missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is None]


def _java_home(environ: Mapping[str, str]) -> str:
    """The home of the Java for Spark; CommandFailed when there is none, or it is too old."""
    try:
        java = find_java(None, environ)
    except CannotRun as refusal:
        raise CommandFailed(Exit.FAILED, str(refusal)) from None
    return str(Path(java).resolve().parents[1])


def _environment(data: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment of Spark: its Python, and the address of the node unless the user has set it."""
    found = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **environ}
    if data is None and environ.get(_CONNECTION):
        return found
    return found | _place_of_node(load({"data": data}, environ).data)


def _place_of_node(data: Path) -> dict[str, str]:
    """The Kafka endpoint of the local node; without TLS if the node serves that, since it is on this machine."""
    ready = ready_node(data)
    if ready["kafka"]:
        return {_CONNECTION: ready["emulator_connection_string"], _ENDPOINT: ready["kafka"]}
    if ready["kafkas"]:
        place = {_CONNECTION: ready["connection_string"], _ENDPOINT: ready["kafkas"]}
        return place | ({_CA_FILE: ready["ca_file"]} if ready["ca_file"] else {})
    raise CommandFailed(Exit.FAILED, f"the node on {data} serves no Kafka endpoint, which Spark reads from")
