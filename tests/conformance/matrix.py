"""The claims about foreign clients: client by transport by feature, and known gaps with their reasons.

Each claim is a cell, and each cell has at least one test that is marked with it:

    pytestmark = [pytest.mark.foreign, pytest.mark.judges(client=Name.JS)]

    @pytest.mark.judges(feature=Feature.BATCHES)
    def test_...

Marks of a module, a test and a parameter are taken together, the nearest wins. `docs/compatibility.md` is rendered from
here by `report.py`; a test holds claims and tests together.
"""

from dataclasses import dataclass

import pytest

from conformance.claims import CLIENTS as CLIENTS
from conformance.claims import Client as Client
from conformance.clients import CACHE
from conformance.conformance_node import Transport
from conformance.features import TRANSPORTS as TRANSPORTS
from conformance.features import Feature as Feature
from conformance.features import Name as Name
from conformance.features import Protocol as Protocol

MARK = "judges"
# The results of the last runs, by test.
RESULTS = CACHE / "conformance.json"


@dataclass(frozen=True, slots=True)
class Cell:
    """One claim."""

    client: Name
    transport: Transport
    feature: Feature


@dataclass(frozen=True, slots=True)
class Gap:
    """A known gap, with the reason for the page; without a feature it means all of them."""

    client: Name
    transport: Transport
    feature: Feature | None
    reason: str


GAPS: tuple[Gap, ...] = (
    *(
        Gap(
            Name.JS,
            transport,
            Feature.THROTTLING,
            "a throttled send is answered by detaching the link, and the client waits for its own operation timeout "
            "before it tries again",
        )
        for transport in Transport
    ),
)


def claims() -> set[Cell]:
    """Every claim, without gaps."""
    return {
        Cell(client.name, transport, feature)
        for client in CLIENTS
        for transport, features in client.claims.items()
        for feature in features
    }


def version_of(name: Name) -> str:
    """The pinned version of a client."""
    return next(client.version() for client in CLIENTS if client.name is name)


def cell_of(item: pytest.Item) -> Cell | None:
    """The claim that a test proves, or None."""
    parts: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers(MARK))):
        parts.update(mark.kwargs)
    if not parts:
        return None
    missing = {"client", "transport", "feature"} - parts.keys()
    assert not missing, f"{item.nodeid}: its marks do not say which {', '.join(sorted(missing))}"
    return Cell(Name(str(parts["client"])), Transport(str(parts["transport"])), Feature(str(parts["feature"])))
