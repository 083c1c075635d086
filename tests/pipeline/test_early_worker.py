"""Python processes of Spark that connect back before they import anything."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from hubmere.pipeline.early_worker import write_script

# Simulates PySpark on a busy machine: its import ends when the test allows it, then it connects as PySpark does.
SLOW_MODULE = """
import os, socket, sys
open(os.environ["GO"]).read()
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.settimeout(300)
sock.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
sock.settimeout(None)
stream = sock.makefile("rwb")
stream.write(f"{__name__} {sys.argv[0]} {stream.readline().decode().strip()}\\n".encode())
stream.flush()
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.environ["GO"] + ".other")
listener.listen()
another = socket.socket(socket.AF_UNIX)
another.connect(os.environ["GO"] + ".other")
stream.write(f"{another.getpeername()}\\n".encode())
stream.flush()
"""


def test_source_process_answers_spark_before_its_imports_end(tmp_path: Path) -> None:
    """Spark waits for at most 10 s, even on a busy machine."""
    (tmp_path / "slow_module.py").write_text(SLOW_MODULE)
    go, address = tmp_path / "go", tmp_path / "spark.sock"
    os.mkfifo(go)
    variables = {"GO": str(go), "PYTHON_WORKER_FACTORY_SOCK_PATH": str(address), "PYTHONPATH": str(tmp_path)}
    with socket.socket(socket.AF_UNIX) as spark:
        spark.bind(str(address))
        spark.listen()
        spark.settimeout(240)
        python = write_script(tmp_path / "python")
        process = subprocess.Popen([python, "-m", "slow_module"], env={**os.environ, **variables})

        accepted, _ = spark.accept()
        go.write_text("go")
        with accepted, accepted.makefile("rwb") as stream:
            accepted.settimeout(240)
            stream.write(b"hello\n")
            stream.flush()
            said, elsewhere = stream.readline().decode(), stream.readline().decode()

        assert process.wait(240) == 0
    assert said.split()[0] == "__main__"
    assert said.split()[1].endswith("slow_module.py")
    assert said.split()[2] == "hello"
    assert elsewhere.strip() == f"{go}.other"


def test_process_without_a_socket_runs_like_python_itself(tmp_path: Path) -> None:
    """This is Spark's daemon, which does not connect."""
    python = write_script(tmp_path / "with a space" / "python")
    command = [str(python), "-m", "json.tool", "--help"]

    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)

    assert "usage:" in found.stdout
    assert sys.executable in python.read_text()


def test_other_arguments_are_passed_to_python_itself(tmp_path: Path) -> None:
    """Spark runs `--version` and `-c` to check the Python, and otherwise finds no data source."""
    python = str(write_script(tmp_path / "python"))

    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True, timeout=600)
    statement = subprocess.run(
        [python, "-c", "import sys; print(sys.argv[1])", "a b"], capture_output=True, text=True, check=True, timeout=600
    )

    assert version.stdout.startswith("Python 3")
    assert statement.stdout == "a b\n"
