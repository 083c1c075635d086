"""`hubmere demo`: a node with simulated devices and readers, so that the portal has something to show."""

from pathlib import Path
from typing import Any

from hubmere.cli.arm.verbs import AzCommand, a_group, option, with_signature


def _demo(given: dict[str, Any]) -> None:
    from hubmere.cli.demo.stage import Plan, run

    run(
        Plan(
            devices=given["devices"],
            events_per_second=given["rate"],
            duration_s=given["duration"],
            is_captured=given["capture"],
            has_pipeline=given["pipeline"],
            data=given["data"],
        )
    )


app = a_group("A node with simulated devices and readers.")
_OPTIONS = (
    option("devices", int, "--devices", default=30, min=3, metavar="N", help="How many devices publish. Default: 30."),
    option("rate", float, "--rate", default=60.0, min=1.0, metavar="N", help="Events per second. Default: 60."),
    option("duration", float | None, "--duration", metavar="SECONDS", help="When to end. Default: at Ctrl-C."),
    option("capture", bool, "--capture/--no-capture", default=True, help="Write the events to files with Capture."),
    option(
        "pipeline",
        bool | None,
        "--pipeline/--no-pipeline",
        help="Run the project of `hubmere pipeline init`. Default: if Spark is installed.",
    ),
    option("data", Path | None, "--data", metavar="FOLDER", help="Data folder to keep. Default: a temporary folder."),
)
_HELP = """Start a node with simulated devices that publish over AMQP, Kafka and HTTPS, two readers, Capture and a
Spark pipeline that publishes results to a second hub. Ctrl-C ends everything; the data is deleted unless --data is
given.
"""
app.command("demo", help=_HELP, cls=AzCommand)(with_signature(_demo, _OPTIONS))
