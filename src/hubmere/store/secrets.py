"""The secrets of a node on disk: its private CA, its server key and its admin token.

Every file with a secret is created with mode 0600, never widened afterwards, and replaced by rename, so that a crash
leaves the old or the new file. Decides when a certificate is due for renewal; an `Issuer` creates it. Called at start
and by the command line, before anything is served; not thread-safe.

    <data>/tls/ca.pem, ca-key.pem, server.pem, server-key.pem, issued.json      <data>/admin-token, blob-key
    <data>/identity-key.pem, federated-token
"""

import base64
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

RENEW_WITHIN = timedelta(days=30)
_SECRET = 0o600
_PUBLIC = 0o644
_FOLDER = 0o700
_TOKEN_BYTES = 32
# As long as the keys of the Azure service.
_BLOB_KEY_BYTES = 64


class KeyPair(Protocol):
    """A certificate and its key."""

    @property
    def certificate(self) -> bytes:
        """PEM."""

    @property
    def key(self) -> bytes:
        """PEM, not encrypted."""


class IssuedKeyPair(KeyPair, Protocol):
    """A key pair that was just issued."""

    @property
    def expires_at(self) -> datetime:
        """When the certificate expires."""


class Issuer(Protocol):
    """Creates certificates; the module `endpoints.certificates` implements it."""

    def build_ca(self, now: datetime) -> IssuedKeyPair:
        """Create a certificate authority."""

    def build_server_certificate(self, ca: KeyPair, names: Sequence[str], now: datetime) -> IssuedKeyPair:
        """Create a server certificate that the authority signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of the node's certificates."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredKeyPair:
    """A key pair that was read from disk."""

    certificate: bytes
    key: bytes


class NodeSecrets:
    """The secrets in one data folder."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._tls = data / "tls"

    @property
    def tls_files(self) -> TlsFiles:
        """Paths of the certificates, which exist once `ensure_tls` has run."""
        return TlsFiles(ca=self._tls / "ca.pem", certificate=self._tls / "server.pem", key=self._tls / "server-key.pem")

    def admin_token(self) -> str:
        """The token of the node's administrator, created on first use."""
        path = self._data / "admin-token"
        if not path.exists():
            _make_folder(self._data)
            _replace(path, secrets.token_urlsafe(_TOKEN_BYTES).encode("ascii") + b"\n", _SECRET)
        return path.read_text(encoding="ascii").strip()

    def blob_key(self) -> bytes:
        """The key of the node's storage account, created on first use; clients write it as base64."""
        path = self._data / "blob-key"
        if not path.exists():
            _make_folder(self._data)
            _replace(path, base64.b64encode(secrets.token_bytes(_BLOB_KEY_BYTES)) + b"\n", _SECRET)
        return base64.b64decode(path.read_bytes())

    def identity_key(self, generate: Callable[[], bytes]) -> bytes:
        """The private key (PEM) of the node's own OAuth issuer, generated on first use."""
        path = self._data / "identity-key.pem"
        if not path.exists():
            _make_folder(self._data)
            _replace(path, generate(), _SECRET)
        return path.read_bytes()

    def write_federated_token(self, token: str) -> Path:
        """Store the token by which a workload proves to the node's own issuer who it is; returns its path."""
        path = self._data / "federated-token"
        _make_folder(self._data)
        _replace(path, token.encode("ascii"), _SECRET)
        return path

    def ensure_tls(self, names: Sequence[str], now: datetime, issuer: Issuer) -> TlsFiles:
        """Certificates for these names; issues new ones if they are missing, about to expire, or for other names.

        The authority is replaced only if it is missing or about to expire, because clients trust it.
        """
        _make_folder(self._data)
        _make_folder(self._tls)
        issued = _IssuedCertificates.read(self._tls / "issued.json")
        if not self._has("ca") or issued.ca_expires_at - now < RENEW_WITHIN:
            issued = self._issue_ca(issuer, now)
        if not self._has("server") or issued.server_expires_at - now < RENEW_WITHIN or issued.names != tuple(names):
            self._issue_server(issuer, names, now, issued)
        return self.tls_files

    def _has(self, name: str) -> bool:
        return (self._tls / f"{name}.pem").is_file() and (self._tls / f"{name}-key.pem").is_file()

    def _write(self, name: str, pair: KeyPair) -> None:
        _replace(self._tls / f"{name}-key.pem", pair.key, _SECRET)
        _replace(self._tls / f"{name}.pem", pair.certificate, _PUBLIC)

    # `issued.json` is removed first and written last: after a crash in between, the pair is issued again instead of
    # combining halves of two pairs.

    def _issue_ca(self, issuer: Issuer, now: datetime) -> "_IssuedCertificates":
        (self._tls / "issued.json").unlink(missing_ok=True)
        ca = issuer.build_ca(now)
        self._write("ca", ca)
        issued = _IssuedCertificates(ca_expires_at=ca.expires_at)
        issued.write(self._tls / "issued.json")
        return issued

    def _issue_server(self, issuer: Issuer, names: Sequence[str], now: datetime, issued: "_IssuedCertificates") -> None:
        ca_only = _IssuedCertificates(ca_expires_at=issued.ca_expires_at)
        ca_only.write(self._tls / "issued.json")
        ca = _StoredKeyPair(certificate=self.tls_files.ca.read_bytes(), key=(self._tls / "ca-key.pem").read_bytes())
        server = issuer.build_server_certificate(ca, names, now)
        self._write("server", server)
        done = _IssuedCertificates(
            ca_expires_at=issued.ca_expires_at, server_expires_at=server.expires_at, names=tuple(names)
        )
        done.write(self._tls / "issued.json")


_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _IssuedCertificates:
    """What was issued, for which names and until when, without parsing a certificate."""

    ca_expires_at: datetime = _NEVER
    server_expires_at: datetime = _NEVER
    names: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "_IssuedCertificates":
        """Read `issued.json`; if it is unreadable, nothing counts as issued."""
        try:
            note = json.loads(path.read_bytes())
            return cls(
                ca_expires_at=datetime.fromtimestamp(note["ca_expires_at"], UTC),
                server_expires_at=datetime.fromtimestamp(note["server_expires_at"], UTC),
                names=tuple(note["names"]),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        """Write `issued.json`."""
        note = {
            "ca_expires_at": int(self.ca_expires_at.timestamp()),
            "server_expires_at": int(self.server_expires_at.timestamp()),
            "names": self.names,
        }
        _replace(path, json.dumps(note).encode("utf-8"), _PUBLIC)


def _make_folder(path: Path) -> None:
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file durably; it has this mode from the first byte on."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
