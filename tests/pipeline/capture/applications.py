"""The capture application in the process of a test."""

from pathlib import Path

from pyspark.sql import SparkSession

from hubmere.pipeline.capture.job import Application
from hubmere.pipeline.capture.node_client import NodeClient
from hubmere.pipeline.capture.source import CaptureSource
from pipeline.capture.plans import TOKEN, PlanServer


def an_application(spark: SparkSession, plans: PlanServer, checkpoints: Path, *, once: bool) -> Application:
    """The job that follows a plan server."""
    spark.dataSource.register(CaptureSource)
    return Application(spark, NodeClient(plans.url, TOKEN, None), str(checkpoints), once=once)
