"""Every row of the failure matrix has a test that exists, or a reason."""

import re
from pathlib import Path

import pytest

from cluster.matrix import ROWS

_HERE = Path(__file__).parent


def test_the_matrix_has_every_row() -> None:
    """The numbers are those of the design."""
    assert list(ROWS) == [f"F{number}" for number in range(1, 25)]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_tests_or_a_reason(name: str) -> None:
    """A renamed test must not leave a fault without one."""
    row = ROWS[name]
    assert row.tests or row.open_reason
    for place in row.tests:
        file, _, test = place.partition("::")
        assert re.search(rf"^def {test}\(", (_HERE / file).read_text(encoding="utf-8"), re.MULTILINE), place
