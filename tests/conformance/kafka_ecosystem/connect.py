"""A Kafka Connect worker: started with the settings of the manual, and controlled over REST."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from conformance.clients import Jars
from conformance.kafka.apache import Program, Service
from conformance.kafka_ecosystem.manual import file_connectors, node_in, pasted
from conformance.kafka_ecosystem.topics import until
from hubmere.cli.cluster.free_ports import free_ports
from hubmere.testing import Node

PAGE = "kafka-connect.md"
MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_ANSWER_SECONDS = 300.0
# A worker that joins its group again gives such answers for a while.
_BUSY = {HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE}


class Refused(Exception):
    """The worker refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status


class RestWorker:
    """One worker of a group; it can be stopped or killed, and started again on the same port."""

    def __init__(self, url: str, service: Service) -> None:
        self._url = url
        self._service = service

    def start(self) -> None:
        """Start, and wait until the worker accepts requests."""
        self._service.start()
        try:
            until(self._is_up, "worker that answers")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the worker cleanly."""
        self._service.stop()

    def kill(self) -> None:
        """Kill the worker, like a crash."""
        self._service.kill()

    def _is_up(self) -> bool:
        assert self._service.is_running, self._service.logs()
        try:
            self._ask("GET", "/connectors")
        except (urllib.error.URLError, ConnectionError, TimeoutError, Refused):
            return False
        return True

    # --- REST ---

    def create(self, title: str, changes: Mapping[str, str]) -> None:
        """Create a connector from a block of the manual."""
        self._insist("POST", "/connectors", json.loads(pasted(PAGE, title, changes)))

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Create or change a connector."""
        self._insist("PUT", f"/connectors/{name}/config", dict(config))

    def config(self, name: str) -> dict[str, str]:
        """The configuration of a connector."""
        found: dict[str, str] = self._insist("GET", f"/connectors/{name}/config")
        return found

    def pause(self, name: str) -> None:
        """Pause a connector and its tasks."""
        self._insist("PUT", f"/connectors/{name}/pause")

    def resume(self, name: str) -> None:
        """Resume a connector."""
        self._insist("PUT", f"/connectors/{name}/resume")

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self._insist("DELETE", f"/connectors/{name}")

    def names(self) -> list[str]:
        """The names of all connectors."""
        found: list[str] = self._insist("GET", "/connectors")
        return found

    def await_state(self, name: str, state: str) -> None:
        """Wait until a connector and its task have a state; a failed task is an error."""

        def is_there() -> bool:
            try:
                status = self._ask("GET", f"/connectors/{name}/status")
            except Refused:
                return False
            states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
            assert "FAILED" not in states, status
            return states == [state, state]

        until(is_there, f"connector {name} that is {state}")

    def _insist(self, method: str, path: str, body: object = None) -> Any:
        """Send a request, again while the worker joins its group."""

        def probe() -> tuple[Any] | None:
            try:
                return (self._ask(method, path, body),)
            except Refused as refused:
                if refused.status in _BUSY:
                    return None
                raise

        return until(probe, f"answer to {method} {path}")[0]  # type: ignore[index]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode()) from None
        return json.loads(text) if text else None


class Worker(RestWorker):
    """A worker with the settings of the manual."""

    def __init__(self, node: Node, folder: Path, *, changes: Mapping[str, str], more: str = "") -> None:
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        places = {"http://localhost:8083": url, "/opt/kafka/libs/connect-file-4.3.1.jar": file_connectors()}
        text = pasted(PAGE, "connect-distributed.properties", {**node_in(node), **places, **changes})
        settings = folder / "connect-distributed.properties"
        settings.write_text(text + more, encoding="utf-8")
        program = Program(jars=Jars.KAFKA_4, main=MAIN, arguments=(str(settings),))
        super().__init__(url, Service(program, folder / "worker.log"))
