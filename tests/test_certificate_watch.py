"""A certificate of the settings is renewed while the node runs: real TLS clients on every TLS port."""

import asyncio
import http.client
import os
import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hubmere.broker.monitoring.conditions import CERTIFICATE, Conditions
from hubmere.endpoints.certificates import Identity, build_ca, build_server_certificate
from hubmere.node.certificate_watch import CertificateWatch
from hubmere.testing import Node
from log_records import records_of

# Many times the interval of the checks; it only limits a failing test.
PATIENCE_S = 240.0
SERVICES = ("amqps", "kafkas", "https")


class Files:
    """A certificate, its key and its CA, as a program that renews certificates writes them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.ca = (folder / f"{name}.pem" for name in ("chain", "key", "ca"))
        self._ca = build_ca(datetime.now(UTC))
        self.ca.write_bytes(self._ca.certificate)
        self.write(self.issue())

    def issue(self) -> Identity:
        return build_server_certificate(self._ca, ["localhost"], datetime.now(UTC))

    def write(self, made: Identity) -> None:
        for path, content in ((self.key, made.key), (self.certificate, made.certificate)):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            fresh.replace(path)

    def watch(self) -> CertificateWatch:
        return CertificateWatch(self.certificate, self.key, None)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def der_of(made: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(made.certificate.decode())


def served_by(watch: CertificateWatch, files: Files) -> bytes:
    """The certificate that a client gets in a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=files.ca).wrap_bio(to_client, to_server, server_hostname="localhost")
    ends = [watch.context.wrap_bio(to_server, to_client, server_side=True), client]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def connect(node: Node, service: str, files: Files) -> ssl.SSLSocket:
    address = getattr(node, service)
    port = urlsplit(address if "//" in address else f"//{address}").port
    assert port is not None
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    return ssl.create_default_context(cafile=files.ca).wrap_socket(plain, server_hostname="localhost")


def served_certificate(node: Node, service: str, files: Files) -> bytes | None:
    with connect(node, service, files) as client:
        return client.getpeercert(binary_form=True)


def test_renewed_certificate_is_served_on_every_port_without_a_restart(files: Files) -> None:
    """Open connections stay; a broken pair keeps the renewed certificate and is reported, until it is repaired."""
    settings: dict[str, Any] = {"memory": True, "tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    with Node(hubs=["orders"], settings=settings) as node, connect(node, "https", files) as before:
        renewed = files.issue()
        files.write(renewed)
        await_served(node, files, renewed, before)

        files.certificate.write_bytes(files.issue().certificate)
        deadline = time.monotonic() + PATIENCE_S
        while "certificate" not in condition_names(node) and time.monotonic() < deadline:
            time.sleep(0.5)
            ask_health(before)
        assert "certificate" in condition_names(node)
        assert {served_certificate(node, service, files) for service in SERVICES} == {der_of(renewed)}
        assert "cannot be used" in node.logs()

        repaired = files.issue()
        files.write(repaired)
        await_served(node, files, repaired, before)
        assert condition_names(node) == set()


def ask_health(client: ssl.SSLSocket) -> None:
    """A request on an open connection, which keeps it from being idle."""
    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = http.client.HTTPResponse(client)
    answer.begin()
    answer.read()
    assert answer.status == 200


def await_served(node: Node, files: Files, made: Identity, open_connection: ssl.SSLSocket) -> None:
    deadline = time.monotonic() + PATIENCE_S
    wanted = {service: der_of(made) for service in SERVICES}
    found: dict[str, bytes | None] = {}
    while found != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
        ask_health(open_connection)
        found = {service: served_certificate(node, service, files) for service in SERVICES}
    assert found == wanted


def condition_names(node: Node) -> set[str]:
    answer = httpx.get(f"{node.http}/metrics", headers={"Authorization": f"Bearer {node.admin_token}"}, timeout=600)
    lines = [line for line in answer.text.splitlines() if line.startswith("hubmere_node_condition{")]
    return {line.split('name="')[1].split('"')[0] for line in lines if line.endswith(" 1")}


def test_unchanged_files_are_not_loaded_again(files: Files) -> None:
    """A context costs milliseconds, and handshakes would lose nothing but time."""
    watch, conditions = files.watch(), Conditions()
    before = watch._current

    asyncio.run(watch.check(conditions))

    assert watch._current is before
    assert conditions.all() == []


@pytest.mark.parametrize("what", ["missing", "empty", "no PEM", "another key"])
def test_broken_files_keep_the_old_certificate(files: Files, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """A half written renewal must not end TLS; the reason is logged once, and contains no key."""
    watch, conditions, served = files.watch(), Conditions(), files.certificate.read_bytes()
    other = files.issue().key
    if what == "missing":
        files.key.unlink()
    else:
        files.key.write_bytes({"empty": b"", "no PEM": b"secret text", "another key": other}[what])

    for _ in range(3):
        asyncio.run(watch.check(conditions))

    found = conditions.find(CERTIFICATE)
    assert found is not None
    assert "The previous certificate stays in use." in found.text
    assert len([record for record in records_of(caplog, "hubmere") if record.levelname == "ERROR"]) == 1
    assert "secret text" not in caplog.text
    assert served_by(watch, files) == ssl.PEM_cert_to_DER_cert(served.decode())


def test_old_files_put_back_end_the_condition(files: Files) -> None:
    """The time of a file that was moved back is its old one."""
    watch, conditions, aside = files.watch(), Conditions(), files.key.with_suffix(".old")
    files.key.rename(aside)
    asyncio.run(watch.check(conditions))
    assert conditions.find(CERTIFICATE) is not None

    aside.rename(files.key)
    asyncio.run(watch.check(conditions))

    assert conditions.all() == []


def test_file_of_the_same_size_and_time_is_noticed_by_its_inode(files: Files) -> None:
    """Copies that keep times are usual in containers with mounted secrets."""
    watch, conditions, renewed = files.watch(), Conditions(), files.issue()
    times = files.certificate.stat()

    files.write(renewed)
    os.utime(files.certificate, ns=(times.st_atime_ns, times.st_mtime_ns))
    asyncio.run(watch.check(conditions))

    assert served_by(watch, files) == der_of(renewed)
