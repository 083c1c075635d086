"""TLS of a node: the certificate of the settings, or one of the node's private CA that covers its current names."""

import socket
import ssl
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hubmere.broker.broker import Broker
from hubmere.broker.monitoring.conditions import Conditions
from hubmere.endpoints import certificates
from hubmere.endpoints.tls import RenewingTls
from hubmere.node.certificate_watch import CertificateWatch
from hubmere.portal.node_facts import Certificate
from hubmere.settings import Settings
from hubmere.store.files import Files
from hubmere.store.secrets import NodeSecrets


class NodeTls(NamedTuple):
    """`context` is None if no port uses TLS; `ca_file` is the certificate of the private CA, if the node has one."""

    context: ssl.SSLContext | None
    ca_file: str | None
    certificate: Path | None = None
    # Follows the files of a certificate of the settings.
    watch: CertificateWatch | None = None

    def loops(self, conditions: Conditions) -> list[Coroutine[None, None, None]]:
        """The loop that looks for a renewed certificate, if the settings name one; runs until it is cancelled."""
        return [] if self.watch is None else [self.watch.run(conditions)]


def open_tls(settings: Settings, broker: Broker, secrets: NodeSecrets) -> NodeTls:
    """The TLS context of all ports that use TLS; issues a certificate unless the settings name one."""
    if settings.amqps_port is None and settings.kafkas_port is None and settings.https_port is None:
        return NodeTls(None, None)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        watch = CertificateWatch(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        return NodeTls(watch.context, None, settings.tls_certificate, watch)

    def is_label(text: str) -> bool:
        return broker.entities.find_namespace(text) is not None or broker.entities.find_alias(text) is not None

    renewing = RenewingTls(
        partial(_names, settings, broker), is_label, partial(_issue, secrets), settings.tls_client_ca
    )
    return NodeTls(renewing.context, str(secrets.tls_files.ca.resolve()), secrets.tls_files.certificate)


def read_certificate(tls: NodeTls) -> Certificate | None:
    """The certificate that the node serves, for the portal; None if there is none or it cannot be read."""
    files = Files()
    try:
        if tls.certificate is None:
            return None
        expires_at = certificates.expires_at(files.read(tls.certificate))
        ca_pem = None if tls.ca_file is None else files.read(Path(tls.ca_file)).decode("ascii")
    except (OSError, ValueError):
        return None
    return Certificate(expires_ms=round(expires_at.timestamp() * 1000), ca_pem=ca_pem)


def _names(settings: Settings, broker: Broker) -> tuple[str, ...]:
    """Every host name by which clients reach the node now."""
    namespaces = [namespace.name for namespace in broker.entities.namespaces()]
    aliases = [alias.name for name in namespaces for alias in broker.entities.aliases(name)]
    return certificates.server_names(settings.client_hosts, [*namespaces, *aliases], socket.gethostname())


def _issue(secrets: NodeSecrets, names: tuple[str, ...]) -> tuple[Path, Path]:
    files = secrets.ensure_tls(names, datetime.now(UTC), certificates)
    return files.certificate, files.key
