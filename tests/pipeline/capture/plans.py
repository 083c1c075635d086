"""Plans for tests of Capture, served by a small HTTP server that also stores the job's reports."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from client.hubs import Hubs
from hubmere.pipeline.capture.plan import HubPlan, read_hub

TOKEN = "the-administrators-token"
NAMESPACE = "shop"
NAME_FORMAT = "{Namespace}/{EventHub}/{PartitionId}/{Year}/{Month}/{Day}/{Hour}/{Minute}/{Second}"


def a_hub(
    hubs: Hubs,
    hub: str,
    target: Path | str,
    *,
    partitions: int,
    encoding: str = "Avro",
    interval_s: int = 900,
    size_limit_bytes: int = 10_485_760,
    skips_empty: bool = True,
    since: Mapping[int, int] | None = None,
    options: Mapping[str, str] | None = None,
    incarnation: str | None = None,
) -> dict[str, Any]:
    """A hub in the form of the node's plan."""
    return {
        "namespace": NAMESPACE,
        "hub": hub,
        "id": incarnation or f"first-{hub}",
        "partitionCount": partitions,
        "connectionString": f"{hubs.node.connection_string};EntityPath={hub}",
        "since": {str(index): first for index, first in (since or dict.fromkeys(range(partitions), 0)).items()},
        "encoding": encoding,
        "intervalSeconds": interval_s,
        "sizeLimitBytes": size_limit_bytes,
        "skipEmptyArchives": skips_empty,
        "nameFormat": NAME_FORMAT,
        "destination": {"url": target.as_uri() if isinstance(target, Path) else target, "options": dict(options or {})},
    }


def place(hubs: Hubs) -> dict[str, Any]:
    """The address from which the job reads."""
    return {"bootstrap": hubs.node.kafka, "security": "SASL_PLAINTEXT", "caFile": None}


def read(hubs: Hubs, hub: Mapping[str, Any]) -> HubPlan:
    """The same in the form that the job has parsed."""
    return read_hub({**hub, "at": place(hubs)})


class PlanServer:
    """Replaces a node for the job: a plan that a test may change, and the received reports."""

    def __init__(self, hubs: Hubs) -> None:
        self._place = place(hubs)
        self.hubs: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.url = ""

    def plan(self) -> bytes:
        """The plan for the job."""
        return json.dumps({"revision": str(len(self.hubs)), **self._place, "hubs": self.hubs}).encode()

    def last(self, hub: str) -> dict[str, Any] | None:
        """The last report on a hub."""
        result = (each for report in reversed(self.reports) for each in report["hubs"] if each["hub"] == hub)
        return next(result, None)


@contextmanager
def a_plan_server(hubs: Hubs) -> Iterator[PlanServer]:
    """Serve plans on a free port."""
    plans = PlanServer(hubs)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200 if self.path == "/$capture/plan" else 404, plans.plan())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plans.reports.append(json.loads(body))
            self._answer(204 if self.path == "/$capture/progress" else 404, b"")

        def _answer(self, status: int, body: bytes) -> None:
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, body = 401, b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plans.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield plans
    finally:
        server.shutdown()
        server.server_close()
