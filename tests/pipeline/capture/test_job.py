"""The job on real Spark: changing plans, failures of single hubs, and correct reports."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from client.hubs import Hubs, bodies
from hubmere.pipeline.capture import job
from hubmere.pipeline.capture.verify import verify
from pipeline.capture.applications import an_application
from pipeline.capture.plans import NAMESPACE, PlanServer, a_hub, read

pytestmark = pytest.mark.slow

PATIENCE_S = 900.0
SECRET = "a-secret-that-nobody-shows"
AVRO = "org.apache.spark.sql.avro.AvroFileFormat"


def until(condition: Callable[[], bool], plans: PlanServer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, plans.reports[-1:]
        time.sleep(0.1)


def test_run_captures_all_events_and_one_hub_cannot_stop_another(
    spark: SparkSession, hubs: Hubs, plans: PlanServer, tmp_path: Path
) -> None:
    """There are three encodings and one destination that cannot work; no report or file contains a credential."""
    good, table, broken = hubs.new(2), hubs.new(1), hubs.new(1)
    for hub in (good, table, broken):
        hubs.publish(hub, 0, *(bodies(100, f"{run} {'x' * 1000}") for run in range(5)))
    plans.hubs = [
        a_hub(hubs, good, tmp_path / "out", partitions=2, size_limit_bytes=200_000),
        a_hub(hubs, table, tmp_path / "out", partitions=1, encoding="Delta"),
        a_hub(hubs, broken, f"file://{SECRET}/x", partitions=1, options={"account_key": SECRET}),
    ]

    code = an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=True).run()
    again = an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=True).run()

    proofs = [verify(read(hubs, hub)) for hub in plans.hubs[:2]]
    assert (code, again) == (1, 1)
    assert [proof.problems for proof in proofs] == [[], []]
    assert [[each.events for each in proof.partitions] for proof in proofs] == [[500, 0], [500]]
    # The files are read by Spark, as users do.
    rows = spark.read.format(AVRO).load(str(tmp_path / "out" / NAMESPACE / good / "0" / "*/*/*/*/*/*.avro"))
    assert rows.select("SequenceNumber").distinct().count() == rows.count() == 500
    result = plans.last(good)
    assert result is not None
    assert [(each["captured"], each["events"]) for each in result["partitions"]] == [(500, 500), (0, 0)]
    assert result["partitions"][0]["files"] > 2
    failed = plans.last(broken)
    assert failed is not None
    assert failed["error"].startswith("InvalidDestination: destination 'file://***/x'")
    kept = [path.read_text(errors="replace") for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in (*kept, str(plans.reports)))
    key = hubs.node.connection_string.rpartition("SharedAccessKey=")[2]
    assert not any(key in text for text in (*kept, str(plans.reports)))


def test_job_follows_the_plan_while_it_runs(spark: SparkSession, hubs: Hubs, plans: PlanServer, tmp_path: Path) -> None:
    """Windows close by time, settings change, a hub is removed, and the job ends between micro-batches on request."""
    hub, later = hubs.new(1), hubs.new(1)
    hubs.publish(hub, 0, bodies(10, "first"))
    plans.hubs = [a_hub(hubs, hub, tmp_path, partitions=1, interval_s=2, skips_empty=False)]
    application = an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=False)
    ended: list[int] = []
    running = threading.Thread(target=lambda: ended.append(application.run()))
    running.start()

    try:
        until(lambda: reported(plans, hub) == 10, plans)
        hubs.publish(later, 0, bodies(7))
        hubs.publish(hub, 0, bodies(5, "second"))
        plans.hubs = [
            a_hub(hubs, hub, tmp_path, partitions=1, interval_s=3),
            a_hub(hubs, later, tmp_path, partitions=1, interval_s=2),
        ]
        until(lambda: reported(plans, hub) == 15 and reported(plans, later) == 7, plans)
        last = plans.hubs
        plans.hubs = []
        until(lambda: plans.reports[-1]["hubs"] == [], plans)
    finally:
        application.stop()
        running.join(PATIENCE_S)

    assert ended == [0]
    assert plans.reports[-1]["job"]["state"] == "stopped"
    proofs = [verify(read(hubs, each)) for each in last]
    assert [proof.problems for proof in proofs] == [[], []]
    assert [proof.partitions[0].events for proof in proofs] == [15, 7]


def test_unresponsive_destination_does_not_delay_other_hubs(
    spark: SparkSession, hubs: Hubs, plans: PlanServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls wait for minutes; meanwhile other hubs are captured, and the job can end."""
    monkeypatch.setattr(job, "STOP_BOUND_S", 0.1)
    stuck, well = hubs.new(1), hubs.new(1)
    for hub in (stuck, well):
        hubs.publish(hub, 0, bodies(10))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "region": "x",
            "access_key_id": "an-id", "secret_access_key": SECRET,
        }  # fmt: skip
        plans.hubs = [
            a_hub(hubs, stuck, "s3://bucket/x", partitions=1, interval_s=1, options=options),
            a_hub(hubs, well, tmp_path, partitions=1, interval_s=1),
        ]
        application = an_application(spark.sparkContext, plans, tmp_path / "checkpoints", once=False)
        running = threading.Thread(target=application.run)
        running.start()
        try:
            until(lambda: reported(plans, well) == 10, plans)
            hubs.publish(well, 0, bodies(5))
            until(lambda: reported(plans, well) == 15, plans)
            told = plans.last(stuck)
        finally:
            application.stop()
            running.join(PATIENCE_S)

    assert told is not None
    assert (told["state"], told["error"]) == ("starting", None)
    assert verify(read(hubs, plans.hubs[1])).holds


def reported(plans: PlanServer, hub: str) -> int:
    """The position of the only partition of a hub, as reported by the job."""
    told = plans.last(hub)
    return 0 if told is None else int(told["partitions"][0]["captured"])
