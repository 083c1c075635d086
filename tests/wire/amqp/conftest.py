"""Every test with a pair of engines runs with whole writes, with single bytes, and with pieces of seven bytes."""

from __future__ import annotations

import pytest

from wire.amqp.builders import WHOLE, EnginePair


@pytest.fixture(params=[WHOLE, 1, 7], ids=["whole", "byte by byte", "in sevens"])
def pair(request: pytest.FixtureRequest) -> EnginePair:
    return EnginePair(chunk=request.param)
