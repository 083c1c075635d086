"""The capture application in the process of a test."""

from pathlib import Path

from pyspark import SparkContext

from hubmere.pipeline.capture.job import Application
from hubmere.pipeline.capture.node_client import NodeClient
from pipeline.capture.plans import TOKEN, PlanServer


def an_application(context: SparkContext, plans: PlanServer, checkpoints: Path | str, *, once: bool) -> Application:
    """The job, with the plan of a plan server."""
    return Application(context, NodeClient(plans.url, TOKEN, None), str(checkpoints), once=once)
