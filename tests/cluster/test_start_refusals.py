"""Brokers on which a gateway does not start: they are too old, or have another password. No Java is needed."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.gateways import a_secret, error_lines, start_refused
from hubmere.wire.kafka.connection import Request, ServerConnection
from hubmere.wire.kafka.errors import ErrorCode
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.metadata import API_VERSIONS, ApiVersion, ApiVersionsResponse
from hubmere.wire.kafka.messages.offsets import OFFSET_COMMIT
from hubmere.wire.kafka.messages.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

Answer = Callable[[Request], object]


def versions(*, without: int | None = None) -> ApiVersionsResponse:
    """The API versions of a broker that serves everything except one API."""
    served = (
        ApiVersion(api_key=key, min_version=api.versions.low, max_version=api.versions.high)
        for key, api in APIS.items()
        if key != without
    )
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=tuple(served))


@contextmanager
def a_broker(answer: Answer) -> Iterator[str]:
    """A broker implemented by the test; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        stopping = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, answer, stopping))
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join(60)


def _serve(server: socket.socket, answer: Answer, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            client, _ = server.accept()
        except TimeoutError:
            continue
        with client:
            client.settimeout(60)
            engine = ServerConnection()
            while data := client.recv(65536):
                for request in engine.receive_data(bytearray(data)):
                    engine.respond(request, answer(request))
                client.sendall(b"".join(engine.data_to_send()))


def test_broker_without_a_required_api_is_refused_with_the_release_that_has_it(tmp_path: Path) -> None:
    """An operator who upgrades Kafka must know the required release."""
    with a_broker(lambda _: versions(without=OFFSET_COMMIT.key)) as address:
        ended = start_refused(address, a_secret(tmp_path))

    assert ended.returncode == 2
    (said,) = error_lines(ended)
    assert f"{address} does not serve OffsetCommit version 9: Apache Kafka 3.9 or newer is needed" in said


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-512"])
def test_wrong_credentials_end_the_start(tmp_path: Path, mechanism: str) -> None:
    """A retry does not help: there is one sentence, and exit code 2."""

    def answer(request: Request) -> object:
        if request.api.key == API_VERSIONS.key:
            return versions()
        if request.api.key == SASL_HANDSHAKE.key:
            return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=("PLAIN", "SCRAM-SHA-512"))
        assert request.api.key == SASL_AUTHENTICATE.key
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message="wrong password", auth_bytes=b"")

    password = tmp_path / "password"
    password.write_text("guess", encoding="utf-8")
    with a_broker(answer) as address:
        sasl = (f"--cluster-sasl={mechanism}", "--cluster-sasl-user=hub", f"--cluster-sasl-password-file={password}")
        ended = start_refused(address, a_secret(tmp_path), *sasl)

    assert ended.returncode == 2
    (said,) = error_lines(ended)
    assert f"{address} refuses the credentials of the settings: wrong password" in said
