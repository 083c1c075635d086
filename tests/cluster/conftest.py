"""Tests that damage the cluster of their file run last, in the order of the file; the others run in random order."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move them after the other tests of their file."""
    harmful = [item for item in items if item.get_closest_marker("harmful") is not None]
    for item in sorted(harmful, key=lambda item: item.location[1] or 0):
        items.remove(item)
        last = max((at for at, other in enumerate(items) if other.path == item.path), default=len(items) - 1)
        items.insert(last + 1, item)


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> None:
    """For tests that take minutes."""
    if not request.config.getoption("--torture", default=False):
        pytest.skip("takes minutes; --torture runs it")
