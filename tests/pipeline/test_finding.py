"""How Spark finds the source: with the Python that runs its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys

import pyspark_eventhubs
from pyspark.sql import SparkSession

pyspark_eventhubs.use_this_python(*sys.argv[1:])
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("eventhubs").load().collect()
except Exception as error:
    print(error)
spark.stop()
"""


@pytest.mark.parametrize("script", [(), ("in a folder/python",)], ids=["python", "script"])
def test_source_is_found_without_an_activated_environment(tmp_path: Path, script: tuple[str, ...]) -> None:
    """The program runs with the environment's Python, but the path leads to a Python without our package. Spark divides
    the command of its Python at spaces when it looks for sources; projects may be in folders with a space.
    """
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\nexit 1\n")
    (other / "python3").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "VIRTUAL_ENV"))}
    environment |= {"PATH": f"{other}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}

    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *script],
        capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path,
    )  # fmt: skip

    assert "option 'eventhubs.connectionString': is required" in found.stdout, found.stdout + found.stderr
    assert "DATA_SOURCE_NOT_FOUND" not in found.stdout


@pytest.mark.parametrize(
    ("hidden", "access"),
    [
        ("pyarrow", "DefaultSource({})"),
        ("pyspark", "DefaultSource"),
        ("xxhash", "DefaultSource({}).writer(None, False)"),
    ],
)
def test_missing_package_is_reported_with_the_command_that_adds_it(tmp_path: Path, hidden: str, access: str) -> None:
    """Spark ignores errors while it looks for sources, and would report that there is no such format."""
    (tmp_path / f"{hidden}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{hidden}'\", name='{hidden}')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    output = subprocess.run(
        [sys.executable, "-c", f"import pyspark_eventhubs; pyspark_eventhubs.{access}"],
        capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path,
    )  # fmt: skip

    assert output.returncode != 0
    assert f"eventhubs needs {hidden}, which is not installed" in output.stderr
    assert f"{sys.executable} -m pip install 'hubmere[spark]'" in output.stderr
