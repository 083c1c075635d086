"""Compares the results of the conformance tests with the claims, and renders docs/compatibility.md.

`python tests/conformance/report.py` writes the page, unless a claim's test failed in the last run: then it says which
and leaves the page alone. With `--check` it also ends with an error when a claim was not proved in the last runs, a
skipped test among them. The page shows claims and gaps; versions are those that are pinned.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

if __name__ == "__main__":
    # When it runs as a program, its package is not on the path.
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.clusters import GATEWAY_DIFFERENCES
from conformance.conformance_node import Transport
from conformance.matrix import CLIENTS, GAPS, RESULTS, TRANSPORTS, Cell, Client, Feature, Name, Protocol, claims
from conformance.on_cluster import DIFFERENCES

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
_NOTE = "<!-- Made by tests/conformance/report.py from the tests beside it; run `make docs`. -->"
_INTRODUCTION = (
    "The test suite runs unmodified foreign clients against a node over loopback. Each `yes` means at least one test "
    "that passes with the version named here; an empty field means that it was not tried, or does not exist in the "
    "client. "
    "Known gaps are listed at the end with their reasons."
)

# The tests have no .NET runtime. `amqp/test_as_dotnet.py` sends the frames of its source code, `blobs/test_dotnet.py`
# the requests of its event processors to Blob storage.
_READ_NOT_RUN = """\
## Azure.Messaging.EventHubs: read, not run

The test suite has no .NET runtime, so this SDK has no `yes`. Instead its source code was read (`src/Amqp` of
`Azure.Messaging.EventHubs` 5): a generic client sends the same frames as the SDK, and the replies must have the types
that it expects.

| feature | in the SDK's source | on a node |
| --- | --- | --- |
| addresses | the path of a URL, which begins with a slash | served, tested |
| readers | asks for settled deliveries; filter with the descriptor code 0x137000000A | served, tested |
| senders | properties `timeout` (uint) and `entity-type` (int); limit from `max-message-size` | served, tested |
| annotations | sequence number long, offset string, enqueued time timestamp | the same types, tested |
| last enqueued information | delivery annotations: long, string, two timestamps | the same types, read |
| idempotent producer | producer id long, epoch short, sequence number int | the same types, read |
| properties | partition ids an array of strings, times timestamps, numbers long | the same types, tested |
| status of a reply | `status-code` int, `error-condition` symbol | the same types, tested |
| a missing hub | distinguished from a broken connection only by the error text | the same text, tested |
| tokens | one sender to `$cbs` for a connection; claims for each link by its URL | served, read |
| checkpoints, ownership, leases | requests of event processors to Blob storage | as expected, tested beside Azurite |
| idle time-out | announces 60 s | heartbeats are sent, read |
| offsets | a reader that was disconnected continues with `x-opt-offset > <offset>` | served, tested |"""


_ON_A_CLUSTER = (
    "Several gateways in front of Apache Kafka serve the same clients ([how to](how-to/cluster.md)). These are all "
    "known differences from a single node."
)


# --- the record ------------------------------------------------------------------------------------------------------


def recorded() -> dict[Cell, set[str]]:
    """The results of each claim's tests in the last runs: passed, failed or skipped."""
    result: Mapping[str, Mapping[str, str]] = json.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
    results: dict[Cell, set[str]] = {}
    names, features = frozenset(Name), frozenset(Feature)
    # The record may be older than the claims: results of renamed clients and features are ignored.
    for entry in (one for one in result.values() if one["client"] in names and one["feature"] in features):
        cell = Cell(Name(entry["client"]), Transport(entry["transport"]), Feature(entry["feature"]))
        results.setdefault(cell, set()).add(entry["result"])
    return results


def unproved(results: Mapping[Cell, set[str]]) -> Iterator[tuple[Cell, str]]:
    """Claims without a passed test or with a failed one, and the results."""
    for cell in sorted(claims(), key=str):
        outcomes = results.get(cell, set())
        if outcomes != {"passed"}:
            yield cell, ", ".join(sorted(outcomes - {"passed"})) or "not run"


# --- the page --------------------------------------------------------------------------------------------------------


def page() -> str:
    """The text of docs/compatibility.md."""
    parts = [_NOTE, "# Compatibility", _INTRODUCTION, *(_overview(protocol) for protocol in Protocol)]
    for client in CLIENTS:
        parts += [f"## {client.name}", f"{client.language}, version {client.version()}.", _features(client)]
    parts += [_READ_NOT_RUN, "## On a cluster", _ON_A_CLUSTER, _gateway_differences()]
    parts += ["## Differences on a cluster: conformance", _on_cluster()]
    parts += ["## What does not pass yet", _gaps()]
    return "\n\n".join(parts) + "\n"


def _gateway_differences() -> str:
    return _table(["on a cluster", "because"], [[what, why] for what, why in GATEWAY_DIFFERENCES])


def _overview(protocol: Protocol) -> str:
    transports = TRANSPORTS[protocol]
    rows = [
        [client.name, client.version(), *(_count(client, transport) for transport in transports)]
        for client in CLIENTS
        if client.protocol is protocol
    ]
    table = _table(["client", "version", *transports], rows)
    return f"Features that pass, by {protocol} client and transport:\n\n{table}"


def _count(client: Client, transport: Transport) -> str:
    return str(len(client.claims.get(transport, ()))) if transport in client.claims else _gap_mark(client, transport)


def _features(client: Client) -> str:
    used = set().union(*client.claims.values()) | {gap.feature for gap in GAPS if gap.client is client.name}
    rows = [
        [feature, *(_field(client, transport, feature) for transport in TRANSPORTS[client.protocol])]
        for feature in Feature
        if feature in used
    ]
    return _table(["feature", *TRANSPORTS[client.protocol]], rows)


def _field(client: Client, transport: Transport, feature: Feature) -> str:
    return "yes" if feature in client.claims.get(transport, ()) else _gap_mark(client, transport, feature)


def _gap_mark(client: Client, transport: Transport, feature: Feature | None = None) -> str:
    wanted = {None, feature}
    return "no" if any(
        gap.client is client.name and gap.transport is transport and gap.feature in wanted for gap in GAPS
    ) else ""  # fmt: skip


def _gaps() -> str:
    """Gaps that differ only in their transport are listed once."""
    results: dict[tuple[Name, Feature | None, str], list[Transport]] = {}
    for gap in GAPS:
        results.setdefault((gap.client, gap.feature, gap.reason), []).append(gap.transport)
    return "\n".join(
        f"- **{client}** ({', '.join(transports)}), {feature or 'every feature'}: {reason}."
        for (client, feature, reason), transports in results.items()
    )


def _on_cluster() -> str:
    """What the suites show on a gateway in front of Kafka brokers."""
    shown = (
        "The suites of azure-eventhub, python-qpid-proton, azure-mgmt-eventhub, Kafka's Java clients, confluent-kafka, "
        "aiokafka, kafka-python, kafkajs, MirrorMaker, Kafka's command line tools and Spark's Kafka connector also run "
        "against a gateway in front of three brokers, and the most important tests of Kafka Connect, Kafka Streams and "
        "Spark's format `eventhubs`. "
    )
    if not DIFFERENCES:
        return f"{shown}All of their tests pass there, except those that start a node of their own."
    rows = [[found.what, found.reason] for found in dict.fromkeys(DIFFERENCES.values())]
    return f"{shown}What differs there:\n\n{_table(['on a cluster', 'because'], rows)}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    """Print unproved claims, and write the page if nothing failed."""
    missing = list(unproved(recorded()))
    for cell, why in missing:
        print(f"{cell.client}, {cell.transport}, {cell.feature}: {why}")
    if any("failed" in why for _, why in missing):
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 1 if missing and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
