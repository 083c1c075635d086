"""Log lines about refusals: each names namespace, hub and client; repeated ones are limited."""

import logging

import pytest

from hubmere.endpoints.refusal_log import CLOSED, LINES_PER_INTERVAL, MAX_KEYS, RefusalLog
from hubmere.model.errors import InvalidSignature, MissingToken, Refusal
from log_records import records_of

log = logging.getLogger("hubmere.test")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="hubmere.test")
    return caplog


def write(refusals: RefusalLog, refusal: Refusal | None = None, hub: str = "orders", peer: str = "10.0.0.1") -> None:
    refusals.write(log, "POST /x", refusal or MissingToken(), namespace="shop", hub=hub, peer=peer, tracking_id="t-1")


def test_line_names_namespace_hub_client_and_reason(lines: pytest.LogCaptureFixture) -> None:
    """They are in the text, and fields of a JSON line."""
    write(RefusalLog())

    [record] = records_of(lines, "hubmere.test")
    assert record.getMessage().startswith("refused POST /x on shop/orders from 10.0.0.1: MissingToken")
    assert record.getMessage().endswith("TrackingId:t-1")
    assert [getattr(record, name) for name in ("namespace", "hub", "peer", "tracking_id")] == [
        "shop", "orders", "10.0.0.1", "t-1",
    ]  # fmt: skip


def test_repeated_refusal_is_counted_and_others_are_written(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of one client hides neither another client's nor another error; the count is logged later."""
    now = [100.0]
    monkeypatch.setattr("hubmere.endpoints.refusal_log.time.monotonic", lambda: now[0])
    refusals = RefusalLog()

    for _ in range(50):
        write(refusals)
    write(refusals, peer="10.0.0.2")
    write(refusals, InvalidSignature())
    before = len(records_of(lines, "hubmere.test"))
    now[0] += 10
    write(refusals)

    assert before == LINES_PER_INTERVAL + 2
    assert (
        records_of(lines, "hubmere.test")[-1]
        .getMessage()
        .endswith(f"({50 - LINES_PER_INTERVAL} more like this were not logged)")
    )


def test_names_from_clients_are_one_line_of_limited_length(lines: pytest.LogCaptureFixture) -> None:
    """The name of a hub comes from the client."""
    refusals = RefusalLog()
    write(refusals, hub="a\nhubmere.node: all is well" + "x" * 5000)
    for number in range(MAX_KEYS + 10):
        write(refusals, peer=str(number))

    assert "\n" not in records_of(lines, "hubmere.test")[0].getMessage()
    assert len(records_of(lines, "hubmere.test")[0].getMessage()) < 600
    assert len(refusals._counts) <= MAX_KEYS


def test_lines_about_connections_of_one_client_are_limited_too(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with a wrong key connects again at once, twenty times a second."""
    now = [100.0]
    monkeypatch.setattr("hubmere.endpoints.refusal_log.time.monotonic", lambda: now[0])
    refusals = RefusalLog()

    for number in range(50):
        refusals.write_connection(log, CLOSED, "10.0.0.1", f"wrong key {number}")
    refusals.write_connection(log, CLOSED, "10.0.0.2", "100% wrong")
    now[0] += 10
    refusals.write_connection(log, CLOSED, "10.0.0.1", "again")

    written = [record.getMessage() for record in lines.records]
    assert len(written) == LINES_PER_INTERVAL + 2
    assert written[0] == "a connection from 10.0.0.1 is closed: wrong key 0"
    assert written[-2:] == [
        "a connection from 10.0.0.2 is closed: 100% wrong",
        f"a connection from 10.0.0.1 is closed: again ({50 - LINES_PER_INTERVAL} more like this were not logged)",
    ]
    assert {getattr(record, "peer", "") for record in lines.records} == {"10.0.0.1", "10.0.0.2"}
