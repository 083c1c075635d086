"""The private CA and its server certificate, checked by other implementations."""

import shutil
import ssl
import stat
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from hubmere.endpoints import certificates
from hubmere.endpoints.certificates import build_ca, build_server_certificate, server_context, server_names
from hubmere.store.secrets import RENEW_WITHIN, NodeSecrets, TlsFiles

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = server_names(["events.example.org", "192.0.2.7"], ["hubmere"], "workstation")


def some_tls(folder: Path, names: Sequence[str] = NAMES, now: datetime = NOW) -> TlsFiles:
    return NodeSecrets(folder).ensure_tls(names, now, certificates)


def strict_client(ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Run a TLS handshake in memory; raises the error of the verifier."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not ends:
            return
    pytest.fail("the handshake did not end")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "hubmere.localhost", "workstation", "192.0.2.7"])
def test_strict_verification_accepts_every_name_of_the_node(tmp_path: Path, name: str) -> None:
    """A client that trusts the CA needs no exception for any of the node's names."""
    tls = some_tls(tmp_path)

    shake_hands(server_context(tls.certificate, tls.key), strict_client(tls.ca), name)

    assert "events.example.org" in NAMES


def test_strict_verification_refuses_a_name_that_was_not_configured(tmp_path: Path) -> None:
    """The certificate must not cover arbitrary names."""
    tls = some_tls(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError) as refusal:
        shake_hands(server_context(tls.certificate, tls.key), strict_client(tls.ca), "elsewhere.example.org")

    assert "Hostname mismatch" in str(refusal.value)


def test_openssl_accepts_the_chain_in_strict_mode(tmp_path: Path) -> None:
    """The command-line tool checks purposes and extensions that the ssl module does not check."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.fail("the openssl command is needed to check the certificates")
    tls = some_tls(tmp_path)

    run = subprocess.run(
        [openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", tls.ca, tls.certificate],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.stdout.strip() == f"{tls.certificate}: OK", run.stderr


def test_certificate_has_names_and_addresses_of_the_right_type(tmp_path: Path) -> None:
    """Addresses must be IP entries: verifiers do not compare them with host names."""
    server = build_server_certificate(build_ca(NOW), NAMES, NOW)

    names = x509.load_pem_x509_certificate(server.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )

    assert names.value.get_values_for_type(x509.DNSName) == [
        "localhost", "*.localhost", "hubmere.localhost", "workstation", "events.example.org", "*.events.example.org",
    ]  # fmt: skip
    assert [str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "192.0.2.7"]


def test_server_certificate_never_outlives_its_authority() -> None:
    """A certificate below an expired authority is refused anyway, with an unclear message."""
    ca = build_ca(NOW)
    late = ca.expires_at - timedelta(days=100)

    server = build_server_certificate(ca, NAMES, late)

    assert server.expires_at == ca.expires_at


def test_client_without_a_certificate_is_refused_if_one_is_required(tmp_path: Path) -> None:
    """`tls_client_ca` is enforced."""
    tls = some_tls(tmp_path)
    context = server_context(tls.certificate, tls.key, tls.ca)
    client = strict_client(tls.ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # the refusal is then a part of the handshake

    with pytest.raises(ssl.SSLError) as refusal:
        shake_hands(context, client, "localhost")

    assert "CERTIFICATE" in str(refusal.value).upper()


def test_old_tls_versions_are_not_offered(tmp_path: Path) -> None:
    """TLS 1.0 and 1.1 are withdrawn (RFC 8996)."""
    tls = some_tls(tmp_path)

    context = server_context(tls.certificate, tls.key)

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_valid_certificates_are_kept(tmp_path: Path) -> None:
    """Clients trust the CA, so a restart must not change it."""
    first = some_tls(tmp_path)
    before = {path: path.read_bytes() for path in (first.ca, first.certificate, first.key)}

    some_tls(tmp_path, now=NOW + timedelta(days=300))

    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("names", "later"),
    [
        ((*NAMES, "new.example.org"), timedelta(0)),
        (NAMES, certificates.SERVER_LIFETIME - RENEW_WITHIN + timedelta(hours=1)),
    ],
)
def test_server_certificate_is_renewed_by_the_same_authority(
    tmp_path: Path, names: Sequence[str], later: timedelta
) -> None:
    """New names and a near expiry need a new certificate, signed by the same CA."""
    first = some_tls(tmp_path)
    ca, certificate = first.ca.read_bytes(), first.certificate.read_bytes()

    second = some_tls(tmp_path, names, NOW + later)

    assert second.certificate.read_bytes() != certificate
    assert second.ca.read_bytes() == ca


def test_authority_that_expires_soon_is_replaced(tmp_path: Path) -> None:
    """After ten years there is no other way."""
    ca = some_tls(tmp_path).ca.read_bytes()

    renewed = some_tls(tmp_path, now=NOW + certificates.CA_LIFETIME - timedelta(days=1))

    assert renewed.ca.read_bytes() != ca


@pytest.mark.parametrize("lost", ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "issued.json"])
def test_lost_files_are_created_again(tmp_path: Path, lost: str) -> None:
    """A missing half of a pair, as after a crash, is replaced at the next start."""
    some_tls(tmp_path)
    (tmp_path / "tls" / lost).unlink()

    tls = some_tls(tmp_path)

    shake_hands(server_context(tls.certificate, tls.key), strict_client(tls.ca), "localhost")


def test_files_with_secrets_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    """Anybody who can read the key of the CA can impersonate any site to clients that trust the CA."""
    some_tls(tmp_path / "data")
    NodeSecrets(tmp_path / "data").admin_token()

    modes = {
        name: stat.S_IMODE((tmp_path / "data" / name).stat().st_mode)
        for name in ("tls/ca-key.pem", "tls/server-key.pem", "admin-token", ".", "tls")
    }

    assert modes == {
        "tls/ca-key.pem": 0o600, "tls/server-key.pem": 0o600, "admin-token": 0o600, ".": 0o700, "tls": 0o700,
    }  # fmt: skip


def test_administrators_token_is_created_once(tmp_path: Path) -> None:
    """Scripts store it."""
    token = NodeSecrets(tmp_path).admin_token()

    assert NodeSecrets(tmp_path).admin_token() == token
    assert len(token) >= 43
