"""`hubmere pipeline` before Spark starts: the project that it creates, and errors for missing requirements."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import hubmere.pipeline as hubmere_pipeline
from commands.runner import hubmere
from hubmere.cli.commands import pipeline
from hubmere.cli.exit_codes import Exit

# A node that is not used: missing requirements of this machine are reported first.
PLACE = {"EVENTHUBS_CONNECTION_STRING": "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"}
SAMPLE = Path(hubmere_pipeline.__file__).parent / "project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A declarative project as `init` makes it."""
    folder = tmp_path / "telemetry"
    assert hubmere("pipeline", "init", str(folder), "--declarative").code == Exit.OK
    return folder


@pytest.fixture
def streaming(tmp_path: Path) -> Path:
    """A project of Structured Streaming as `init` makes it."""
    folder = tmp_path / "streaming"
    assert hubmere("pipeline", "init", str(folder)).code == Exit.OK
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, except files of Python and Spark."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_project_is_the_sample_with_its_own_storage(project: Path) -> None:
    """Spark needs an absolute folder for its checkpoints; everything else is copied unchanged."""
    made, sample = contents(project), contents(SAMPLE / pipeline.DECLARATIVE)

    spec = sample[pipeline.SPEC]

    assert pipeline.SAMPLE_STORAGE in spec
    assert made == sample | {
        pipeline.SPEC: spec.replace(pipeline.SAMPLE_STORAGE, (project / pipeline.STORAGE).as_uri())
    }
    assert (project / pipeline.STORAGE).is_dir()


def test_streaming_project_is_the_sample_with_a_schedule_for_its_folder(streaming: Path) -> None:
    """A schedule must name the folder of the project and the Python that has Hubmere."""
    made, sample = contents(streaming), contents(SAMPLE / pipeline.STREAMING)

    schedule = {name for name in sample if name.startswith("schedule/")}

    assert {name: text for name, text in made.items() if name not in schedule} == {
        name: text for name, text in sample.items() if name not in schedule
    }
    assert schedule == {f"schedule/telemetry.{kind}" for kind in ("cron", "service", "timer")}
    assert (
        f"cd {streaming} && mkdir -p data && flock -n data/lock {sys.executable} -m hubmere"
        in made["schedule/telemetry.cron"]
    )
    assert f"WorkingDirectory={streaming}\n" in made["schedule/telemetry.service"]


def test_schedule_of_a_folder_with_a_space_is_quoted(tmp_path: Path) -> None:
    """The line for cron goes through a shell, which is run here; cron itself ends a command at `%`."""
    folder = tmp_path / "PYTHON project of 100%"
    assert hubmere("pipeline", "init", str(folder)).code == Exit.OK
    made = contents(folder)

    command = made["schedule/telemetry.cron"].split("* * * * ", 1)[1].replace("\\%", "%").split(" && ")[0]
    found = subprocess.run(["sh", "-c", f"{command} && pwd"], capture_output=True, text=True, check=True, timeout=600)

    assert found.stdout == f"{folder}\n"
    assert "100\\%" in made["schedule/telemetry.cron"]
    assert f"WorkingDirectory={tmp_path}/PYTHON project of 100%%\n" in made["schedule/telemetry.service"]


def test_missing_package_of_a_streaming_project_is_named(streaming: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta tables need a package that Spark does not bring."""
    monkeypatch.setattr(pipeline, "find_spec", lambda wanted: None if wanted == "deltalake" else find_spec(wanted))

    run = hubmere("pipeline", "run", "--project", str(streaming))

    assert run.code == Exit.FAILED
    assert "the project needs deltalake" in run.err
    assert f"{sys.executable} -m pip install 'hubmere[pipelines]'" in run.err


def test_dry_run_of_a_streaming_project_is_refused(streaming: Path) -> None:
    """It has tests instead."""
    run = hubmere("pipeline", "run", "--project", str(streaming), "--dry-run")

    assert run.code == Exit.USAGE
    assert "--dry-run is for declarative projects" in run.err


def test_init_never_overwrites_existing_files(project: Path) -> None:
    """A second `init` would undo the user's changes."""
    before = contents(project)

    run = hubmere("pipeline", "init", str(project))

    assert (run.code, contents(project)) == (Exit.FAILED, before)
    assert "already exists and is not empty" in run.err


def test_folder_without_a_project_is_reported(tmp_path: Path) -> None:
    """The error also names the remedy."""
    run = hubmere("pipeline", "run", "--project", str(tmp_path))

    assert run.code == Exit.USAGE
    assert "spark-pipeline.yml" in run.err
    assert "hubmere pipeline init" in run.err


def test_missing_java_is_reported(project: Path, tmp_path: Path) -> None:
    """It is reported before Spark's launcher script fails."""
    run = hubmere("pipeline", "run", "--project", str(project), **PLACE, JAVA_HOME=str(tmp_path))

    assert run.code == Exit.FAILED
    assert "java cannot be run" in run.err


def test_java_that_is_too_old_is_reported(project: Path, tmp_path: Path) -> None:
    """Spark would report a class file version, which few people understand."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.28\" 2025-07-15' >&2\n", encoding="utf-8")
    java.chmod(0o700)

    run = hubmere("pipeline", "run", "--project", str(project), **PLACE, JAVA_HOME=str(tmp_path))

    assert run.code == Exit.FAILED
    assert "is Java 11: Java 17 or newer is needed" in run.err


@pytest.mark.parametrize("name", ["pyspark", "grpc"])
def test_missing_package_is_reported_with_its_install_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spark alone does not install what its pipelines need."""
    monkeypatch.setattr(pipeline, "find_spec", lambda wanted: None if wanted == name else find_spec(wanted))

    run = hubmere("pipeline", "run", "--project", str(project))

    assert run.code == Exit.FAILED
    assert f"{sys.executable} -m pip install 'hubmere[pipelines]'" in run.err


def test_node_that_does_not_run_is_reported(project: Path, tmp_path: Path) -> None:
    """Nothing is started without a node."""
    run = hubmere("pipeline", "run", "--project", str(project), "--data", str(tmp_path / "nowhere"))

    assert run.code == Exit.FAILED
    assert "no node runs on the data folder" in run.err
