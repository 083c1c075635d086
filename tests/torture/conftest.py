"""`--torture` makes the crash runs long."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", default=False, help="crash runs that take minutes")
