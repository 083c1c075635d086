"""Host names and ports of a node, for connection strings, Kafka metadata, the portal and the ready file."""

from base64 import b64encode
from dataclasses import dataclass

from hubmere.model.entity import AccessRule
from hubmere.model.names import fold
from hubmere.model.security.connection_string import ConnectionString

# The port that SDKs use when a connection string names none.
_DEFAULT_AMQPS_PORT = 5671
_LOCALHOST = "localhost"
# Addresses on which a node listens and to which nobody can connect, and the loopback address for each.
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  compared, not bound
# `*.example` in the settings stands for one host name per namespace.
_WILDCARD = "*."


LISTENERS = ("amqp", "amqps", "kafka", "kafkas", "http", "https")


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """The host name and port that one listener advertises, as Kafka's `advertised.listeners`."""

    listener: str  # one of LISTENERS
    host: str
    port: int | None = None  # None: the port that the node listens on

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}" + ("" if self.port is None else f":{self.port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Host names and ports of a node; a port is None if the protocol is not served."""

    namespace: str  # the node's own namespace: host names without a namespace label mean this one
    hostnames: tuple[str, ...] = ()
    amqp: int | None = None
    amqps: int | None = None
    kafka: int | None = None
    kafkas: int | None = None
    http: int | None = None
    https: int | None = None
    advertised: tuple[AdvertisedListener, ...] = ()  # at most one for each listener
    ca_file: str | None = None  # certificate of the node's private CA, if it has one

    @property
    def host(self) -> str:
        """The default host name of the node: the first one in the settings.

        For a wildcard (`*.example`) it is the host name of the node's own namespace.
        """
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return f"{fold(self.namespace)}.{self._domain}" if first.startswith(_WILDCARD) else first

    @property
    def _domain(self) -> str:
        first = self.hostnames[0] if self.hostnames else _LOCALHOST
        return first.removeprefix(_WILDCARD)

    def host_of(self, namespace: str, listener: str | None = None) -> str:
        """The host name of a namespace: its label before the node's domain, unless it is the node's own namespace.

        The host name that a listener advertises is used instead of the node's.
        """
        is_own = fold(namespace) == fold(self.namespace)
        if listener is not None and (advertised := self.advertised_of(listener)) is not None:
            return advertised.host if is_own else f"{fold(namespace)}.{advertised.host}"
        if is_own:
            return self.host
        named = [name for name in self.hostnames if fold(name).partition(".")[0] == fold(namespace)]
        return named[0] if named else f"{fold(namespace)}.{self._domain}"

    def advertised_of(self, listener: str) -> AdvertisedListener | None:
        """The advertised address of a listener, if the settings have one."""
        return next((entry for entry in self.advertised if entry.listener == listener), None)

    def port_of(self, listener: str, host: str | None = None) -> int | None:
        """The port that a listener advertises; None if it is not served. A client that gets another host name than the
        advertised one (`host`) connects to the node directly.
        """
        port: int | None = getattr(self, listener)
        advertised = self.advertised_of(listener)
        if port is None or advertised is None or (host is not None and fold(host) != fold(advertised.host)):
            return port
        return advertised.port or port

    def address_of(self, listener: str, namespace: str | None = None) -> str | None:
        """`host:port` that a listener advertises; None if it is not served."""
        port = self.port_of(listener)
        if port is None:
            return None
        host = self.host_of(namespace or self.namespace, listener)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def bound_address_of(self, listener: str, listen_host: str) -> str | None:
        """`host:port` by which a program on the node's own machine reaches a listener, without advertised names."""
        port: int | None = getattr(self, listener)
        host = _ANY.get(listen_host, listen_host)
        return None if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def connection_string(self, rule: AccessRule, key: str, *, namespace: str | None = None) -> str:
        """Connection string of a rule, over TLS. The string of a hub's rule names the hub."""
        port = self.port_of("amqps")
        if port == _DEFAULT_AMQPS_PORT:
            port = None
        return self._build(rule, key, namespace or rule.namespace, "amqps", port)

    def capture_connection_string(self, rule: AccessRule, hub: str, credential: str) -> str:
        """Connection string with which the capture job reads one hub; `credential` identifies the job."""
        string = ConnectionString.parse(self.connection_string(rule, rule.primary_key)).with_entity(hub)
        return string.with_capture_credential(credential).text()

    def emulator_connection_string(self, rule: AccessRule, key: str) -> str:
        """Connection string for clients in emulator mode, without TLS."""
        return self._build(rule, key, rule.namespace, "amqp", self.port_of("amqp"))

    def blob_endpoint(self, account: str) -> str | None:
        """The URL of a storage account: plain HTTP where it is served, because clients may not trust the private CA."""
        scheme = "https" if self.http is None else "http"
        address = self.address_of(scheme)
        return None if address is None else f"{scheme}://{address}/{account}"

    def blob_connection_string(self, account: str, key: bytes) -> str | None:
        """Connection string of a storage account; None on a node without HTTP."""
        endpoint = self.blob_endpoint(account)
        if endpoint is None:
            return None
        scheme, secret = endpoint.partition(":")[0], b64encode(key).decode()
        return f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={secret};BlobEndpoint={endpoint};"

    def _build(self, rule: AccessRule, key: str, namespace: str, listener: str, port: int | None) -> str:
        return ConnectionString(
            host=self.host_of(namespace, listener),
            port=port,
            key_name=rule.name,
            key=key,
            entity_path=rule.hub,
            is_emulator=listener == "amqp",
        ).text()
