"""Common setup of all tests: which of them `make test` omits, the option `--torture`, and the check for stalls.

`make test` needs only Python and Java: it runs everything that is not marked `full`. `make test-all` runs the marked
tests as well: clients of other languages, the browser, clusters, attacks, short torture, the installed wheel and the
projects of `hubmere pipeline init`, which take more than a minute each.

With several test processes, files with long tests do not wait for the end: see `LONG`.

A turn of a node's event loop of more than 100 ms of its own fails the test that runs, with the stack that was running.
A socket or file that a test leaves open fails the last test of its file; sockets of foreign clients are excepted.
No example of Hypothesis is judged by the clock.
"""

import gc
import os
import ssl
import tempfile
from collections.abc import Generator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from stalls import FILE_VARIABLE, StallCheck

# Both use wall time, and the machine may be busy.
settings.register_profile("hubmere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hubmere")
# The same applies to httpx, whose default timeout is 5 s. The object is the default of every call.
for _name in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _name, 120.0)


@cache
def _public_roots() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _ssl_context(verify: ssl.SSLContext | bool = True, **given: Any) -> ssl.SSLContext:
    """As httpx does it, but it reads the public root certificates once: that takes 60 ms, for every new client."""
    return _public_roots() if verify is True else httpx.create_ssl_context(verify, **given)


httpx._transports.default.create_ssl_context = _ssl_context  # type: ignore[assignment,attr-defined]

_HERE = Path(__file__).parent
# Folders and files in which every test is marked; other files mark single tests.
FULL = (
    "attack",
    "cluster/test_bad_builds.py",
    "cluster/test_bad_days.py",
    "cluster/test_capture_on_kafka.py",
    "cluster/test_conformance_on_kafka.py",
    "cluster/test_faults.py",
    "cluster/test_on_kafka.py",
    "cluster/test_random_faults.py",
    "cluster/test_snapshots.py",
    "cluster/test_units_on_kafka.py",
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
    "pipeline/test_cold_crash.py",
    "pipeline/test_cold_crowds.py",
    "pipeline/test_crash.py",
    "pipeline/test_history_crash.py",
    "pipeline/test_on_gateways.py",
    "pipeline/test_project_crash.py",
    "pipeline/test_sink_crash.py",
    "portal/browser",
    "store/contract/test_log_contract_on_kafka.py",
    "test_wheel.py",
    "torture",
)
# Folders whose tests use foreign clients, some of which leave a socket open when their node stops.
FOREIGN = ("attack", "cluster", "conformance", "docs", "pipeline", "torture")
# Folders and files whose tests take long: they start programs, or Hypothesis draws many examples. Started last, they
# would leave processors idle at the end of a run, so they take turns with the others from its beginning.
LONG = (
    "attack",
    "broker/test_classic_group_machine.py",
    "broker/test_consumer_group_machine.py",
    "broker/test_quota.py",
    "cluster",
    "conformance",
    "docs",
    "pipeline",
    "portal/browser",
    "portal/test_cost.py",
    "store/test_admission.py",
    "store/test_catalog_agreement.py",
    "store/test_catalog_crash.py",
    "store/test_log_model.py",
    "store/test_power_cut.py",
    "store/test_recovery.py",
    "store/test_runs.py",
    "test_node.py",
    "test_settings.py",
    "test_testing_snapshots.py",
    "test_wheel.py",
    "torture",
    "translate/test_round_trip.py",
    "translate/test_variants.py",
)
# Fixtures that start a program from npm, Maven, Go or Rust, or a browser; tests that use one are marked.
FULL_FIXTURES = frozenset({"azurite", "browser", "driver", "drivers", "java_driver"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", default=False, help="crash runs that take minutes")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import files in which every test is marked."""
    return True if config.option.markexpr == "not full" and _is_in(collection_path, FULL) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_in(item.path, FOREIGN):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"))
        fixtures = FULL_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        # Tests that run on every store use Azurite for "az".
        callspec = getattr(item, "callspec", None)
        is_azure = callspec is not None and callspec.params.get("store") == "az"
        if fixtures or is_azure or _is_in(item.path, FULL):
            item.add_marker(pytest.mark.full)


@cache
def _is_in(file: Path, names: tuple[str, ...]) -> bool:
    """Whether a file is one of these, or in one of these folders. There are many tests and few files."""
    return any(file.is_relative_to(_HERE / name) for name in names)


@cache
def _uses_spark(file: Path) -> bool:
    """Whether tests of a file have the parameter `spark`: one process runs them all, with one virtual machine.

    The process that schedules tests knows only their names, so that the text of the file decides.
    """
    return _is_in(file, ("pipeline",)) and "spark: SparkSession" in file.read_text(encoding="utf-8")


def pytest_collection_finish() -> None:
    """The collected tests and their modules are millions of objects."""
    _collect()


def _collect() -> None:
    """Collect garbage, and exempt from later collections what is left: each one would visit all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Generator[None]:
    """Collect garbage at the end of a file, so that a leak fails this file and not a test of another one."""
    yield
    _collect()


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Sends the tests of a file to one process, and all files with a Spark session to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "pipeline" if _uses_spark(_HERE.parent / file) else file


class _SchedulingPlugin:
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
        return _Scheduling(config, log) if config.option.dist == "loadfile" else None


class _OrderPlugin:
    """Lets files with long tests and the others take turns; the order inside a file stays. Spark comes first."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # After the tests are selected.
        files: dict[Path, list[pytest.Item]] = {}
        for item in items:
            files.setdefault(item.path, []).append(item)
        first = [path for path in files if _is_in(path, LONG)]
        others = [path for path in files if path not in set(first)]
        # They are one unit of work, the longest.
        first.sort(key=lambda path: not _uses_spark(path))
        turns = [path for pair in zip_longest(first, others) for path in pair if path is not None]
        items[:] = [item for path in turns for item in files[path]]


class _StallPlugin:
    """Checks the loop turns of all nodes after each test.

    Nodes of module and session fixtures count for the running test.
    """

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
    config.pluginmanager.register(_OrderPlugin(), "hubmere-order")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_SchedulingPlugin(), "hubmere-scheduling")
    # With several test processes, the first of them runs no tests.
    is_distributing = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not is_distributing and not config.option.collectonly:
        config.pluginmanager.register(_StallPlugin(), "hubmere-stalls")
