"""A node says to our own clients that it is Hubmere; only then do they send what no other server may know."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from client.hubs import PATIENCE_S, Hubs, an_account
from hubmere.client.connection import Account, Client, Connection, KafkaAddress
from hubmere.client.consumer import HubReader
from hubmere.wire.kafka.connection import ServerConnection
from hubmere.wire.kafka.messages import API_OF_REQUEST
from hubmere.wire.kafka.messages.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from hubmere.wire.kafka.messages.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from hubmere.wire.kafka.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

BOOT_ID = "5b1c5a2e-6f0e-4b77-8f5d-0d9f3a7c1e42"


class Server:
    """A server on this machine that speaks Kafka's protocol; keeps what it receives."""

    def __init__(self, *, is_hubmere: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_hubmere = is_hubmere
        self.received = bytearray()
        self.requests: list[Any] = []

    def account(self) -> Account:
        address = KafkaAddress(host="127.0.0.1", port=self._listener.getsockname()[1], is_secure=False)
        return Account(address=address, connection_string="any", client_id="hubmere-test", answer_timeout_s=PATIENCE_S)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve one connection during the block."""
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_S)
            self._listener.close()

    def _serve(self) -> None:
        self._listener.settimeout(PATIENCE_S)
        accepted, _ = self._listener.accept()
        engine = ServerConnection()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            while data := accepted.recv(65536):
                self.received += data
                for request in engine.receive_data(data):
                    self.requests.append(request.body)
                    engine.respond(request, self._answer(request.body))
                accepted.sendall(b"".join(engine.data_to_send()))

    def _answer(self, body: Any) -> Any:
        match body:
            case ApiVersionsRequest():
                return ApiVersionsResponse(error_code=0, api_keys=_all_apis(), is_hubmere=self._is_hubmere)
            case SaslHandshakeRequest():
                return SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
            case SaslAuthenticateRequest():
                return SaslAuthenticateResponse(error_code=0)
            case ListOffsetsRequest(topics=(topic,)):
                parts = tuple(
                    ListOffsetsPartitionResponse(index=part.index, error_code=0, offset=1000)
                    for part in topic.partitions
                )
                return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name=topic.name, partitions=parts),))
        raise AssertionError(body)


def _all_apis() -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api_key=api.key, min_version=api.versions.low, max_version=api.versions.high)
        for api in API_OF_REQUEST.values()
    )


@pytest.mark.parametrize(("client_id", "is_said"), [("hubmere-spark", True), ("another", False)])
def test_node_announces_itself_only_to_our_clients(hubs: Hubs, client_id: str, is_said: bool) -> None:
    """Other clients get exactly the fields of Kafka's protocol."""
    connection = Connection.open(replace(an_account(hubs.node), client_id=client_id))

    assert connection.is_hubmere is is_said
    connection.close()


@pytest.mark.parametrize("is_hubmere", [False, True], ids=["another broker", "Hubmere"])
def test_boot_id_is_sent_to_hubmere_alone(is_hubmere: bool) -> None:
    """It identifies the machine: another broker on it has no use for it."""
    server = Server(is_hubmere=is_hubmere)
    with server.running(), Client(server.account()) as client:
        reader = HubReader(client, "orders")

        assert reader.bounds([0])[0].end == 1000
        assert reader.find_files(0, 0, 1000, BOOT_ID) == ()

    assert (BOOT_ID.encode() in server.received) is is_hubmere
    # Two requests for the bounds.
    assert sum(isinstance(body, ListOffsetsRequest) for body in server.requests) == 2 + is_hubmere
