"""`hubmere status`: one page about a node: its addresses, its health and its content."""

import json
import re
import time
from contextlib import closing
from typing import Any

import typer

from hubmere.cli.arm.verbs import (
    NODE_OPTIONS,
    RESULT_OPTIONS,
    AzCommand,
    a_group,
    take_node,
    with_signature,
)
from hubmere.cli.output.colours import has_colours, paint
from hubmere.cli.output.results import Output, default_output, render
from hubmere.cli.output.tables import resource_table
from hubmere.cli.target.http import NodeHttp
from hubmere.cli.target.node import NodeTarget

Json = dict[str, Any]

_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
# Keys of the ready file that are shown besides the node's answers.
# Counts in the answer to `/ready`, and the problem that each means.
_PROBLEMS = (
    ("offlinePartitionCount", "partitions are offline"),
    ("recoveringPartitionCount", "partitions are being recovered"),
    ("damagedRangeCount", "ranges damaged"),
)
_ADDRESSES = ("data", "namespace", "amqp", "amqps", "kafka", "kafkas", "http", "https", "pid")


def _status(given: dict[str, Any]) -> None:
    result = status_of(take_node(given))
    output = given["output"] or default_output()
    if output is Output.TABLE and given["query"] is None:
        typer.echo(_page(result), color=has_colours() or None)
    elif text := render(result, output, (), given["query"]):
        typer.echo(text, color=has_colours() or None)


def status_of(target: NodeTarget) -> Json:
    """What the node reports about itself; on its own machine, also its addresses."""
    with closing(NodeHttp(target)) as http:
        state: Json = json.loads(http.request("GET", "/ready").body)
        metrics = samples(http.request("GET", "/metrics").body.decode())
    conditions = [condition["message"] for condition in state["conditions"]]
    for count, what in _PROBLEMS:
        if state.get(count):
            conditions.append(f"{state[count]} {what}")
    return {
        "status": state["status"],
        "url": target.url,
        "version": _label(metrics, "hubmere_build_info", "version"),
        **({} if target.ready is None else {name: target.ready[name] for name in _ADDRESSES}),
        "uptimeSeconds": _uptime_s(metrics),
        "namespaces": state["namespaces"],
        "eventHubs": state["eventHubs"],
        "storedBytes": round(_total(metrics, "hubmere_size_bytes")),
        "eventsPublished": round(_total(metrics, "hubmere_incoming_messages_total")),
        "eventsDelivered": round(_total(metrics, "hubmere_outgoing_messages_total")),
        "connections": round(_total(metrics, "hubmere_active_connections")),
        "consumerLag": round(_total(metrics, "hubmere_consumer_lag_events")),
        "diskFreeBytes": round(_total(metrics, "hubmere_disk_free_bytes")),
        "diskTotalBytes": round(_total(metrics, "hubmere_disk_total_bytes")),
        "residentMemoryBytes": round(_total(metrics, "process_resident_memory_bytes")),
        "problems": conditions,
    }


def samples(text: str) -> list[tuple[str, str, float]]:
    """Name, labels and value of every sample in the text of /metrics."""
    return [(found["name"], found["labels"] or "", float(found["value"])) for found in _SAMPLE.finditer(text)]


def _total(metrics: list[tuple[str, str, float]], name: str) -> float:
    return sum(value for each, _, value in metrics if each == name)


def _uptime_s(metrics: list[tuple[str, str, float]]) -> int:
    started_s = _total(metrics, "process_start_time_seconds")
    return max(round(time.time() - started_s), 0) if started_s else 0


def _label(metrics: list[tuple[str, str, float]], name: str, label: str) -> str:
    for each, labels, _ in metrics:
        if each == name and (found := re.search(rf'{label}="([^"]*)"', labels)):
            return found.group(1)
    return ""


# --- for people ---


def _page(result: Json) -> str:
    is_on = has_colours()
    colour = "green" if result["status"] == "ready" else "yellow"
    shown = {
        "status": paint(f"● {result['status']}", colour, is_on=is_on),
        **{name: value for name, value in result.items() if name != "status" and not name.endswith(("Bytes", "onds"))},
        "problems": "; ".join(result["problems"]),
        "uptime": _duration(result["uptimeSeconds"]),
        "stored": size_text(result["storedBytes"]),
        "disk": f"{size_text(result['diskFreeBytes'])} free of {size_text(result['diskTotalBytes'])}",
        "memory": size_text(result["residentMemoryBytes"]),
    }
    return resource_table(shown, ())


def size_text(count: float) -> str:
    """A number of bytes for people, in binary units."""
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


app = a_group("The state of a node.")
_OUTPUT_AND_QUERY = tuple(each for each in RESULT_OPTIONS if each.name in ("output", "query"))
_HELP = """Show the state of a node: problems, addresses, traffic, lag, disk and memory.

Needs the administrator's token, which commands on the node's own machine have.
"""
app.command("status", help=_HELP, cls=AzCommand)(with_signature(_status, (*_OUTPUT_AND_QUERY, *NODE_OPTIONS)))
