"""`hubmere pipeline` before Spark starts: the project that it creates, and errors for missing requirements."""

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
    """A project as `init` makes it."""
    folder = tmp_path / "telemetry"
    assert hubmere("pipeline", "init", str(folder)).code == Exit.OK
    return folder


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, but for what Python and Spark leave there."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_project_is_the_sample_with_its_own_storage(project: Path) -> None:
    """Spark wants an absolute folder for its checkpoints; everything else is copied as it is."""
    made, sample = contents(project), contents(SAMPLE)

    spec = sample[pipeline.SPEC]

    assert pipeline.SAMPLE_STORAGE in spec
    assert made == sample | {
        pipeline.SPEC: spec.replace(pipeline.SAMPLE_STORAGE, (project / pipeline.STORAGE).as_uri())
    }
    assert (project / pipeline.STORAGE).is_dir()


def test_project_never_overwrites_what_is_there(project: Path) -> None:
    """A second `init` would undo what a user has written."""
    before = contents(project)

    run = hubmere("pipeline", "init", str(project))

    assert (run.code, contents(project)) == (Exit.FAILED, before)
    assert "already exists and is not empty" in run.err


def test_folder_without_a_project_is_named(tmp_path: Path) -> None:
    """The error names the remedy too."""
    run = hubmere("pipeline", "run", "--project", str(tmp_path))

    assert run.code == Exit.USAGE
    assert "spark-pipeline.yml" in run.err
    assert "hubmere pipeline init" in run.err


def test_missing_java_is_named(project: Path, tmp_path: Path) -> None:
    """Before Spark's own launcher fails in a script."""
    run = hubmere("pipeline", "run", "--project", str(project), **PLACE, JAVA_HOME=str(tmp_path))

    assert run.code == Exit.FAILED
    assert "java cannot be run" in run.err


def test_java_that_is_too_old_is_named(project: Path, tmp_path: Path) -> None:
    """Spark would end with a class file version that says nothing to most people."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.28\" 2025-07-15' >&2\n", encoding="utf-8")
    java.chmod(0o700)

    run = hubmere("pipeline", "run", "--project", str(project), **PLACE, JAVA_HOME=str(tmp_path))

    assert run.code == Exit.FAILED
    assert "is Java 11: Java 17 or newer is needed" in run.err


@pytest.mark.parametrize("name", ["pyspark", "grpc"])
def test_missing_package_is_named_with_the_way_to_install_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spark alone does not bring what its pipelines need."""
    monkeypatch.setattr(pipeline, "find_spec", lambda wanted: None if wanted == name else find_spec(wanted))

    run = hubmere("pipeline", "run", "--project", str(project))

    assert run.code == Exit.FAILED
    assert f"{sys.executable} -m pip install 'hubmere[pipelines]'" in run.err


def test_node_that_does_not_run_is_named(project: Path, tmp_path: Path) -> None:
    """Nothing is started without a node."""
    run = hubmere("pipeline", "run", "--project", str(project), "--data", str(tmp_path / "nowhere"))

    assert run.code == Exit.FAILED
    assert "no node runs on the data folder" in run.err
