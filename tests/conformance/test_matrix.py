"""Claims, tests and the compatibility page agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

from conformance.conformance_node import Transport
from conformance.matrix import GAPS, Cell, Feature, Name, claims
from conformance.report import PAGE, page, unproved

_TESTS = Path(__file__).parents[1]
_ROOT = _TESTS.parent


def collected() -> set[Cell]:
    """The claims of the tests, from a separate collection: this run may have only some of them."""
    ended = subprocess.run(
        [sys.executable, "-m", "conformance.collect"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return {
        Cell(Name(result["client"]), Transport(result["transport"]), Feature(result["feature"]))
        for result in json.loads(ended.stdout)
    }


def test_every_claim_has_a_test_and_every_test_its_claim() -> None:
    """Every claim must be proved, and every proved feature must be on the page."""
    proved = collected()

    assert {"not tested": claims() - proved, "not claimed": proved - claims()} == {
        "not tested": set(),
        "not claimed": set(),
    }


def test_nothing_is_claimed_that_is_a_gap() -> None:
    """They are compared for the same client and transport."""
    gaps = {(gap.client, gap.transport, gap.feature) for gap in GAPS}

    both = {cell for cell in claims() if {(cell.client, cell.transport, f) for f in (cell.feature, None)} & gaps}

    assert both == set()


def test_page_shows_the_claims() -> None:
    """`make docs` was run after the last change."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_claim_is_proved_by_passed_tests_only() -> None:
    """A failed, skipped or missing test leaves it unproved."""
    first, second, third, *others = sorted(claims(), key=str)
    results = {first: {"passed", "failed"}, second: {"skipped"}, **{cell: {"passed"} for cell in others}}

    assert dict(unproved(results)) == {first: "failed", second: "skipped", third: "not run"}
