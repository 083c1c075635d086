"""For all tests: which of them `make test` leaves out, the option `--torture`, and the check for stalls.

`make test` needs Python and Java alone: it runs everything that is not marked `full`. `make test-all` runs the marked
tests as well: clients of other languages, the browser, clusters, short torture and the installed wheel.

A turn of a node's event loop of more than 150 ms of its own fails the test that runs, with the stack that was running.
A socket or file that a test leaves open fails the last test of its file; sockets of foreign clients are excepted.
No example of Hypothesis is judged by the clock.
"""

import gc
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings

from stalls import FILE_VARIABLE, StallCheck

# Both use wall time, and the machine may be busy.
settings.register_profile("hubmere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hubmere")
# The same for httpx, whose clients give up after 5 s by default. The object is the default of every call.
for _name in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _name, 120.0)

_HERE = Path(__file__).parent
# Folders and files of which every test is marked; the others mark single tests.
FULL = (
    "cluster/test_bad_days.py",
    "cluster/test_on_kafka.py",
    "cluster/test_snapshots.py",
    "conformance/go",
    "conformance/java",
    "conformance/js",
    "conformance/kafka/test_by_operations.py",
    "conformance/kafka/test_connect.py",
    "conformance/kafka/test_java.py",
    "conformance/kafka/test_mirror.py",
    "conformance/kafka/test_spark_kafka.py",
    "conformance/kafka/test_streams.py",
    "conformance/kafka/test_tools.py",
    "conformance/period",
    "conformance/processors",
    "conformance/test_identity_libraries.py",
    "conformance/test_kafka_oauthbearer.py",
    "conformance/test_keycloak.py",
    "pipeline/capture/test_power_cut.py",
    "pipeline/test_cluster.py",
    "pipeline/test_crash.py",
    "portal/browser",
    "store/contract/test_log_contract_on_kafka.py",
    "test_wheel.py",
    "torture",
)
# Folders whose tests drive foreign clients, some of which leave a socket open when their node is gone.
FOREIGN = ("attack", "cluster", "conformance", "docs", "pipeline", "torture")
# Fixtures that start a program from npm, Maven, Go or Rust, or a browser: who uses one is marked.
FULL_FIXTURES = frozenset({"azurite", "browser", "driver", "drivers", "java_driver"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", default=False, help="crash runs that take minutes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    full = [_HERE / name for name in FULL]
    foreign = [_HERE / name for name in FOREIGN]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in foreign):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"))
        fixtures = FULL_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        # Tests of every store take Azurite for "az".
        callspec = getattr(item, "callspec", None)
        is_azure = callspec is not None and callspec.params.get("store") == "az"
        if fixtures or is_azure or any(item.path.is_relative_to(folder) for folder in full):
            item.add_marker(pytest.mark.full)


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Generator[None]:
    """At the end of a file, so that what it leaves open fails it and not a test of another file."""
    yield
    gc.collect()


class _StallPlugin:
    """Checks the turns of all nodes after each test. Nodes of modules and sessions count for the test that runs."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hubmere-stalls-")
        self._check = StallCheck(Path(self._folder.name))
        # Nodes in this process and in child processes report there.
        os.environ[FILE_VARIABLE] = str(self._check.file)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None]:
        yield
        self._fail_if_stalled()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        yield
        self._fail_if_stalled()

    def _fail_if_stalled(self) -> None:
        if failures := self._check.failures():
            pytest.fail("\n\n".join(failures), pytrace=False)

    def pytest_unconfigure(self) -> None:
        self._check.close()
        self._folder.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    # With several test processes the first of them runs no test.
    is_distributing = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not is_distributing and not config.option.collectonly:
        config.pluginmanager.register(_StallPlugin(), "hubmere-stalls")
