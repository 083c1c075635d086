"""The node's background loops: what they log about hubs that change meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from hubmere.broker import HubView
from hubmere.model.errors import HubNotFound, Refusal, ShuttingDown
from hubmere.node.background import Background
from log_records import messages_of
from manual_clock import ManualClock


class _Upkeep:
    """Refuses retention."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def apply_retention(self, hub: HubView, partition: int, now_ms: int) -> None:
        raise self._refusal


def clean(refusal: Refusal) -> None:
    """Clean a log whose retention is refused."""
    clock = ManualClock()
    node = SimpleNamespace(
        _broker=SimpleNamespace(upkeep=_Upkeep(refusal)), _clocks=SimpleNamespace(retention=clock, stamps=clock)
    )
    hub = SimpleNamespace(entity=SimpleNamespace(namespace="contoso"), name="orders")
    asyncio.run(Background.clean_log(cast("Background", node), cast("HubView", hub), 0))


def test_retention_of_a_deleted_hub_is_no_problem(caplog: pytest.LogCaptureFixture) -> None:
    """A hub can be deleted while its partitions are visited: then there is nothing to do, and nothing to warn of."""
    clean(HubNotFound("orders"))

    assert messages_of(caplog, "hubmere") == []


def test_retention_that_is_refused_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The log keeps events past their retention until the next attempt."""
    clean(ShuttingDown())

    [message] = messages_of(caplog, "hubmere")
    assert message.startswith("retention for contoso/orders/0 postponed: ")
