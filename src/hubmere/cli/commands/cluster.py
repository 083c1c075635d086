"""`hubmere cluster`: a cluster of gateways to try out, and the state of a real one."""

import os
from pathlib import Path
from typing import Any

import typer

from hubmere.cli.arm.verbs import RESULT_OPTIONS, AzCommand, a_group, option, with_signature
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.colours import has_colours
from hubmere.cli.output.results import Output, default_output, render


def _demo(given: dict[str, Any]) -> None:
    from hubmere.cli.cluster.demo import Plan, run

    run(
        Plan(
            gateways=given["gateways"],
            brokers=given["brokers"],
            data=given["data"],
            ready_file=given["ready_file"],
            gateway_options=() if given["tier"] is None else (f"--as={given['tier']}",),
        )
    )


def _status(given: dict[str, Any]) -> None:
    from hubmere.cli.cluster.status import StatusFailed, read_status, status_table
    from hubmere.node.cluster import kafka_access
    from hubmere.settings import load

    output, query = given.pop("output") or default_output(), given.pop("query")
    # A flag that was not given must not hide its variable.
    given["cluster_tls"] = given["cluster_tls"] or None
    settings = load({"store": "cluster", **given}, os.environ)
    try:
        status = read_status(settings.cluster_kafka, settings.cluster_prefix, kafka_access(settings))
    except StatusFailed as failed:
        raise CommandFailed(Exit.FAILED, str(failed)) from failed
    is_table = output is Output.TABLE and query is None
    text = status_table(status) if is_table else render(status, output, (), query)
    if text:
        typer.echo(text, color=has_colours() or None)


app = a_group("A cluster of gateways in front of Apache Kafka.")
_DEMO_OPTIONS = (
    option("gateways", int, "--gateways", default=3, min=1, max=9, metavar="N", help="Gateways. Default: 3."),
    option("brokers", int, "--brokers", default=3, min=1, max=9, metavar="N", help="Kafka brokers. Default: 3."),
    option(
        "data",
        Path | None,
        "--data",
        metavar="FOLDER",
        help="Folder for the brokers' data. Default: a temporary folder.",
    ),
    option(
        "tier",
        str | None,
        "--as",
        metavar="TIER",
        help="Limits of a tier, as of `hubmere up`: standard, for example. Default: no limits.",
    ),
    option(
        "ready_file", Path | None, "--ready-file", metavar="PATH", help="JSON file, written when all parts are ready."
    ),
)
_DEMO_HELP = """Start local Kafka brokers, gateways that use them, and one address for all gateways.

The jars come from `make kafka-jars`, or from the folder in HUBMERE_KAFKA_JARS. Ctrl-C ends everything.
"""
_TEXT = str | None
_STATUS_OPTIONS = (
    option("cluster_kafka", _TEXT, "--cluster-kafka", metavar="HOST:PORT,...", help="Brokers of the Kafka cluster."),
    option("cluster_prefix", _TEXT, "--cluster-prefix", metavar="TEXT", help="Prefix of the gateways' topics."),
    option("cluster_secret_file", _TEXT, "--cluster-secret-file", metavar="PATH", help="File with the cluster secret."),
    option("cluster_sasl", _TEXT, "--cluster-sasl", metavar="NAME", help="How to sign in to the brokers."),
    option("cluster_sasl_user", _TEXT, "--cluster-sasl-user", metavar="TEXT", help="User name for the brokers."),
    option(
        "cluster_sasl_password_file",
        _TEXT,
        "--cluster-sasl-password-file",
        metavar="PATH",
        help="File with the password for the brokers.",
    ),
    option("cluster_tls", bool, "--cluster-tls", default=False, help="Connect to the brokers over TLS."),
    option(
        "cluster_tls_ca",
        _TEXT,
        "--cluster-tls-ca",
        metavar="PATH",
        help="Certificate authorities to trust for the brokers.",
    ),
    *(each for each in RESULT_OPTIONS if each.name in ("output", "query")),
)
_STATUS_HELP = """Show gateways, brokers and the state of the control log.

Settings that are not given come from the variables of `hubmere up`, such as HUBMERE_CLUSTER_KAFKA.
"""
app.command("demo", help=_DEMO_HELP, cls=AzCommand)(with_signature(_demo, _DEMO_OPTIONS))
app.command("status", help=_STATUS_HELP, cls=AzCommand)(with_signature(_status, _STATUS_OPTIONS))
