"""Which tests `make test` leaves out, the option `--torture`, and no examples that are judged by the clock.

`make test` needs Python and Java alone: it runs everything that is not marked `full`. `make test-all` runs the marked
tests as well: clients of other languages, the browser, clusters, short torture and the installed wheel.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Both judge by the clock, and the machine may be busy.
settings.register_profile("hubmere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hubmere")

_HERE = Path(__file__).parent
# Folders and files of which every test is marked; the others mark single tests.
FULL = (
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
    "pipeline/capture/test_power_cut.py",
    "pipeline/test_cluster.py",
    "pipeline/test_crash.py",
    "portal/browser",
    "test_wheel.py",
    "torture",
)
# Fixtures that start a program from npm, Maven, Go or Rust, or a browser: who uses one is marked.
FULL_FIXTURES = frozenset({"azurite", "browser", "driver", "drivers", "java_driver", "storage"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", default=False, help="crash runs that take minutes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    full = [_HERE / name for name in FULL]
    for item in items:
        if any(item.path.is_relative_to(place) for place in full) or FULL_FIXTURES.intersection(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.full)
