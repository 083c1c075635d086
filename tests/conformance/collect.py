"""Prints the claims of the collected tests as JSON; runs no test."""

import contextlib
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


class Collector:
    """Records the claim of every collected test."""

    def __init__(self) -> None:
        self.cells: list[dict[str, str]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # Imported once pytest is set up: it warns of plugins of ours that were there before it.
        from conformance.matrix import cell_of

        self.cells = [asdict(cell) for item in session.items if (cell := cell_of(item)) is not None]


if __name__ == "__main__":
    collector = Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", str(_HERE)], plugins=[collector])
    if code != pytest.ExitCode.OK:
        sys.exit(said.getvalue())
    print(json.dumps(collector.cells))
