"""For every test: a turn of a node's event loop of more than 100 ms fails it, with the stack that was running."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from stalls import FILE_VARIABLE, StallCheck


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
