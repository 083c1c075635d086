"""A private certificate authority, the server certificate that it signs, and the TLS context of the listeners.

Pure apart from `server_context`: PEM in, PEM out, time as an argument; `store/secrets.py` keeps the files. Follows RFC
5280 as strict verifiers read it (OpenSSL with X509_V_FLAG_X509_STRICT, Java, Node.js): critical basicConstraints and
keyUsage, key identifiers on both certificates, subjectAltName for every name. `cryptography` is imported by the two
builders only, because a start that finds its certificates need not pay for loading it.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_LIFETIME = timedelta(days=3650)
# The longest lifetime that verifiers of Apple and others accept from a CA that a user has installed.
SERVER_LIFETIME = timedelta(days=825)
# Both start in the past, for machines whose clock is behind.
_CLOCK_ALLOWANCE = timedelta(hours=1)
# RFC 5280, A.1: ub-common-name.
_MAX_COMMON_NAME_CHARS = 64

WILDCARD = "*."
LOCAL_NAMES = ("localhost", "*.localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its private key as PEM, and when it expires."""

    certificate: bytes
    key: bytes
    expires_at: datetime


class Authority(Protocol):
    """What signing needs of a CA; an `Identity` is one, and so is a key pair read from disk."""

    @property
    def certificate(self) -> bytes:
        """PEM."""

    @property
    def key(self) -> bytes:
        """PEM, not encrypted."""


def server_names(hostnames: Sequence[str], labels: Sequence[str], machine: str) -> tuple[str, ...]:
    """Every host name of a node, each once, in a stable order.

    `labels` are the names of namespaces and aliases, which precede the node's domain. A wildcard covers them. OpenSSL
    does not accept a wildcard before a single label, so below `localhost`, or `*.example`, they are listed one by one.
    """
    own = [f"{label.lower()}.localhost" for label in labels]
    below = [name for hostname in hostnames for name in _names_below(hostname, labels)]
    return tuple(dict.fromkeys([*LOCAL_NAMES, *own, machine, *hostnames, *below]))


def _names_below(hostname: str, labels: Sequence[str]) -> list[str]:
    domain = hostname.removeprefix(WILDCARD)
    if _is_address(domain):
        return []
    if "." in domain:
        return [WILDCARD + domain]
    return [f"{label.lower()}.{domain}" for label in labels]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def fold_names(names: Sequence[str]) -> frozenset[str]:
    """Names in the form that `covers` compares; a node may have thousands, and every handshake compares them."""
    return frozenset(name.lower() for name in names)


def covers(names: frozenset[str], host: str) -> bool:
    """Whether a certificate for these folded names is valid for a host name, as RFC 6125 and OpenSSL compare them."""
    folded = host.lower().rstrip(".")
    _, _, domain = folded.partition(".")
    return folded in names or ("." in domain and WILDCARD + domain in names)


def expires_at(pem: bytes) -> datetime:
    """When the first certificate of a PEM file expires; raises ValueError if it is none."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def build_ca(now: datetime) -> Identity:
    """A new certificate authority that may sign server certificates and no further authorities."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # The serial number in the name distinguishes the CAs of several data folders in a trust store.
    name = _name(f"Hubmere local CA {serial % 0x1_0000_0000:08x}")
    builder = (
        _builder(name, name, key, now, CA_LIFETIME)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_ca=True), critical=True)
    )
    return _sign(builder, key, key, now + CA_LIFETIME)


def build_server_certificate(ca: Authority, names: Sequence[str], now: datetime) -> Identity:
    """A new key and a certificate for all the names, signed by `ca`; never valid for longer than `ca` is."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = x509.load_pem_x509_certificate(ca.certificate)
    signer = load_pem_private_key(ca.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    lifetime = min(SERVER_LIFETIME, authority.not_valid_after_utc - now)
    common = next((name for name in names if len(name) <= _MAX_COMMON_NAME_CHARS), "localhost")
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(common), authority.subject, key, now, lifetime)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    return _sign(builder, key, signer, now + lifetime)


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 and up for a listener; with `client_ca` a client must show a certificate by one of those authorities.

    ALPN is left to the caller. Raises OSError or ssl.SSLError when a file cannot be read or the two do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _name(common: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, is_ca: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey", now: datetime, lifetime: timedelta
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .not_valid_before(now.astimezone(UTC) - _CLOCK_ALLOWANCE)
        .not_valid_after(now.astimezone(UTC) + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _sign(
    builder: "x509.CertificateBuilder",
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    expires_at: datetime,
) -> Identity:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Identity(
        certificate=builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        expires_at=expires_at,
    )
